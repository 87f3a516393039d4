"""The store of the queue: `fairbox.queueing.ports` over DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.dynamodb.claims import Claims
from fairbox.dynamodb.hints import HintRows
from fairbox.dynamodb.store import DynamoStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.bodies import BodyStore
    from fairbox.dispatch.ports import Saved
    from fairbox.dynamodb.tables import Tables
    from fairbox.queueing.ports import Claiming, HintMove, Shard
    from fairbox.receipts import Receipt
    from fairbox.stored import Hint, StoredMessage


class DynamoQueueStore(DynamoStore):
    """The queue's view of the outbox and deliveries tables.

    Args:
        tables: the tables.
        body_store: where offloaded bodies lie; None: nowhere.
    """

    def __init__(self, tables: Tables, body_store: BodyStore | None = None) -> None:
        super().__init__(tables, body_store)
        self._hints = HintRows(tables.calls, tables.outbox)
        self._claims = Claims(tables.calls, tables.outbox)

    def hints(self, topic: str, epoch: int, group: int) -> Mapping[int, Hint]:
        """Return the hints of sixteen shards, eventually consistent, by shard (0.5 RRU)."""
        return self._hints.read(topic, epoch, group)

    def claim(self, claims: Sequence[Claiming], move: HintMove | None) -> list[bool]:
        """Write claims where the messages are as they were read, 25 a call; say which held."""
        others = () if move is None else (self._hints.statement(move),)
        return self._claims.claim(claims, *others)

    def move_hint(self, move: HintMove) -> bool:
        """Write a hint where it is as it was read; return whether it was."""
        return self._hints.move(move)

    def lower_after(self, shard: Shard, message_id: str) -> None:
        """Let receives begin no later than at this message."""
        self._hints.lower_after(shard, message_id)

    def lower_looks(self, topic: str, epoch: int, looks: Mapping[int, int]) -> None:
        """Let somebody look from the heads of these shards at these times (ms), if not before."""
        self._hints.lower_looks(topic, epoch, looks)

    def release(self, receipts: Sequence[Receipt], until: int) -> list[Receipt]:
        """Let go of messages uncounted, to be received from `until` (ms); return the stale ones."""
        return self._claims.release(receipts, until)

    def delete_held(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Delete messages by their receipts, 25 a call; return the stale receipts."""
        return self._claims.delete(receipts)

    def extend(self, receipt: Receipt, until: int) -> bool:
        """Hold a message until then (ms); return whether the receipt still holds it."""
        return self._claims.extend(receipt, until)

    def save_claimed(self, after: StoredMessage, before: StoredMessage) -> Saved:
        """Write claim, states, gone and reason where the message is as in `before`."""
        return self._claims.save(after, before)
