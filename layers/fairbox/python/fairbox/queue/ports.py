"""What the queue needs of the tables, beside what delivery needs of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fairbox.dispatch.ports import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.dispatch.ports import Saved
    from fairbox.model.key_claims import HeldRow
    from fairbox.model.messages import MessageRef
    from fairbox.model.receipts import Receipt
    from fairbox.model.stored_messages import Claim, Hint, StoredMessage, SubscriptionState

Shard = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Claiming:
    """A claim to be written: of a message as it was read, with the state that goes with it."""

    stored: StoredMessage
    claim: Claim
    states: Mapping[str, SubscriptionState]


@dataclass(frozen=True, slots=True)
class HintMove:
    """A hint to be written where it is as it was read."""

    shard: Shard
    before: Hint
    after: Hint


class ClaimStore(Store, Protocol):
    """The outbox table, as unordered receiving uses it."""

    def hints(self, topic: str, epoch: int, group: int) -> Mapping[int, Hint]:
        """Return the hints of sixteen shards, eventually consistent, by shard (0.5 RRU)."""
        ...

    def claim(self, claims: Sequence[Claiming], move: HintMove | None) -> list[bool]:
        """Write claims where the messages are as they were read, 25 a call; say which held.

        The move of the hint goes with them; whether it held does not matter.

        Raises:
            Throttled, Unavailable: none of them is known to be written.
        """
        ...

    def move_hint(self, move: HintMove) -> bool:
        """Write a hint where it is as it was read; return whether it was."""
        ...

    def lower_after(self, shard: Shard, message_id: str) -> None:
        """Let receives begin no later than at this message."""
        ...

    def lower_looks(self, topic: str, epoch: int, looks: Mapping[int, int]) -> None:
        """Let somebody look from the heads of these shards at these times (ms), if not before."""
        ...

    def release(self, receipts: Sequence[Receipt], until: int) -> list[Receipt]:
        """Let go of messages uncounted, to be received from `until` (ms); return the stale ones."""
        ...

    def delete_held(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Delete messages by their receipts, 25 a call; return the stale receipts.

        Raises:
            Throttled, Unavailable: some are not known to be deleted; all may be given again.
        """
        ...

    def extend(self, receipt: Receipt, until: int) -> bool:
        """Hold a message until then (ms); return whether the receipt still holds it."""
        ...

    def save_claimed(self, after: StoredMessage, before: StoredMessage) -> Saved:
        """Write claim, states, gone and reason where claim, states and edits are as in `before`.

        Returns:
            `saved`; `absent` when the message is not there; the message as it is, when it differs.
        """
        ...


class HeldStore(ClaimStore, Protocol):
    """The outbox table, as ordered receiving uses it."""

    def held(self, shard: Shard) -> HeldRow:
        """Return what is held of a shard (consistent, 1 RRU for 4 KB)."""
        ...

    def write_held(self, shard: Shard, row: HeldRow, version: int) -> HeldRow | None:
        """Write what is held where the version is this one (1 WRU a KB).

        Returns:
            None when it was written; the row as it is, when others were faster.
        """
        ...

    def delete_refs(self, refs: Sequence[MessageRef]) -> None:
        """Delete messages, 25 a call.

        Raises:
            Unavailable: some stayed; all may be deleted again.
        """
        ...

    def save_and_hold(
        self,
        after: StoredMessage,
        before: StoredMessage,
        shard: Shard,
        row: HeldRow,
        version: int,
    ) -> bool:
        """Save a message and write what is held, both where they are as read, or neither."""
        ...
