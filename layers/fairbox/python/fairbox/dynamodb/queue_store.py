"""The store of the queue: `fairbox.queue.ports` over DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.codec.keys import message_key
from fairbox.dynamodb.claims import Claims
from fairbox.dynamodb.delivery_store import DynamoStore
from fairbox.dynamodb.hints import HintRows
from fairbox.dynamodb.key_claims import KeyClaimTable
from fairbox.dynamodb.keys_aside import KeysAsideTable
from fairbox.dynamodb.segments import SegmentRows
from fairbox.errors import Unavailable
from fairbox.model.clock import milliseconds
from fairbox.model.stored_messages import RECEIVES_CHECK_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.dynamodb.claims import Claiming
    from fairbox.dynamodb.hints import HintMove
    from fairbox.dynamodb.tables import Tables
    from fairbox.model.bodies import BodyStore
    from fairbox.model.key_claims import KeyClaim, KeyClaims
    from fairbox.model.messages import MessageRef
    from fairbox.model.receipts import Receipt
    from fairbox.model.segments import Segment
    from fairbox.model.stored_messages import Hint, Saved, Shard, ShardRow, StoredMessage


class DynamoQueueStore(DynamoStore):
    """The queue's view of the outbox and deliveries tables.

    Args:
        tables: the tables.
        body_store: where offloaded bodies lie; None: nowhere.
    """

    def __init__(self, tables: Tables, body_store: BodyStore | None = None) -> None:
        super().__init__(tables, body_store)
        self._hints = HintRows(tables.calls, tables.outbox)
        self._segments = SegmentRows(tables.calls, tables.deliveries)
        self._claims = Claims(tables.calls, tables.outbox)
        self._key_claims = KeyClaimTable(tables.calls, tables.outbox)
        self._aside = KeysAsideTable(tables, self._key_claims)

    def hints(self, topic: str, epoch: int, group: int) -> Mapping[int, Hint]:
        """Return the hints of sixteen shards, eventually consistent, by shard (0.5 RRU)."""
        return self._hints.read(topic, epoch, group)

    def claim(self, claims: Sequence[Claiming], move: HintMove | None) -> list[int]:
        """Write claims where the messages are as they were read; see `ports.ClaimStore.claim`."""
        if move is None:
            return self._claims.claim(claims)
        filed = self._segments.statements(move.shard, move.passes)
        return self._claims.claim(claims, self._hints.statement(move), *filed)

    def move_hint(self, move: HintMove) -> Hint | None:
        """File a move's segments, then write its hint where it is as it was read."""
        self._segments.file(move.shard, move.passes)
        return self._hints.move(move)

    def segments(self, shard: Shard, checked: int) -> tuple[Sequence[Segment], bool]:
        """Return some segments that end behind a time (ms), and whether there are more."""
        return self._segments.read(shard, checked)

    def file_segments(self, shard: Shard, segments: Sequence[Segment]) -> None:
        """Let stretches of a shard be read again when they end."""
        self._segments.file(shard, segments)

    def come_back(self, shard: Shard, segments: Sequence[Segment]) -> None:
        """File segments, then let the next check of their shard come in time for them."""
        self._segments.file(shard, segments)
        first = min(segment.end for segment in segments)
        if first < milliseconds(self._tables.calls.clock) + RECEIVES_CHECK_MS:
            self._hints.come_back(shard, first)

    def lower_after(self, shard: Shard, message_id: str) -> None:
        """Let receives begin no later than at this message."""
        self._hints.lower_after(shard, message_id)

    def lower_checks(self, topic: str, epoch: int, checks: Mapping[int, int]) -> None:
        """Schedule scans from the heads of these shards at these times (ms), if not before."""
        self._hints.lower_checks(topic, epoch, checks)

    def release(self, receipts: Sequence[Receipt], until: int) -> list[Receipt]:
        """Let go of messages uncounted, to be received from `until` (ms); return the stale ones."""
        return self._claims.release(receipts, until)

    def delete_claimed(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Delete messages by their receipts, 25 a call; return the stale receipts."""
        return self._claims.delete(receipts)

    def extend(self, receipts: Sequence[Receipt], until: int) -> list[Receipt]:
        """Hold messages until then (ms), 25 a call; return the stale receipts."""
        return self._claims.extend(receipts, until)

    def save_claimed(self, after: StoredMessage, before: StoredMessage) -> Saved:
        """Write claim, states, gone and reason where the message is as in `before`."""
        return self._claims.save(after, before)

    def claims(self, shard: Shard) -> KeyClaims:
        """Return what is held of a shard (consistent, 1 RRU for 4 KB)."""
        return self._key_claims.get(shard)

    def claims_of(self, shards: Sequence[Shard]) -> list[tuple[ShardRow, KeyClaims]]:
        """Return the shard rows that are there, with what is held (consistent)."""
        return self._key_claims.get_many(shards)

    def write_claims(self, shard: Shard, row: KeyClaims, version: int) -> KeyClaims | None:
        """Write what is held where the version is this one; return the row where it is not."""
        return self._key_claims.write(shard, row, version)

    def keys_aside(self, shard: Shard, name: bytes, keys: Sequence[bytes]) -> dict[bytes, KeyClaim]:
        """Return which of these keys wait beside a row, with their entries (1 RRU each)."""
        return self._aside.read(shard, name, keys)

    def times_aside(self, shard: Shard, name: bytes, limit: int) -> list[tuple[int, bytes]]:
        """Return the first times (ms) at which keys beside a row are due, with their digests."""
        return self._aside.times(shard, name, limit)

    def set_keys_aside(
        self, shard: Shard, row: KeyClaims, version: int, entries: Sequence[KeyClaim]
    ) -> bool:
        """Move these entries out of a row where its version is this one; say if it was."""
        return self._aside.put(shard, row, version, entries)

    def take_keys(
        self,
        shard: Shard,
        row: KeyClaims,
        version: int,
        name: bytes,
        times: Sequence[tuple[int, bytes]],
    ) -> bool:
        """Move these keys into a row where its version is this one; say if it was."""
        return self._aside.take(shard, row, version, name, times)

    def follow_aside(self, shard: Shard, name: bytes, key: bytes, follower: str) -> None:
        """Note the first message of a key beside a row that receives pass (1 WRU)."""
        self._aside.follow(shard, name, key, follower)

    def delete_refs(self, refs: Sequence[MessageRef]) -> None:
        """Delete messages, 25 a call."""
        left = self._tables.lanes.delete([message_key(ref) for ref in refs])
        if left:
            raise Unavailable("batch_write_item", f"{len(left)} messages were not deleted")

    def save_and_hold(
        self,
        after: StoredMessage,
        before: StoredMessage,
        shard: Shard,
        row: KeyClaims,
        version: int,
    ) -> bool:
        """Save a message and write what is held, both where they are as read, or neither."""
        action = self._claims.save_action(after, before)
        return self._key_claims.write_with(action, shard, row, version)
