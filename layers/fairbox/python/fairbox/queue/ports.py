"""The queue's ports to the tables, on top of those of delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fairbox.dispatch.ports import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.dynamodb.claims import Claiming
    from fairbox.dynamodb.hints import HintMove
    from fairbox.model.key_claims import KeyClaim, KeyClaims
    from fairbox.model.messages import MessageRef
    from fairbox.model.receipts import Receipt
    from fairbox.model.segments import Segment
    from fairbox.model.stored_messages import (
        Hint,
        Saved,
        Shard,
        StoredMessage,
    )


class ClaimStore(Store, Protocol):
    """The outbox table, as unordered receiving uses it."""

    def hints(self, topic: str, epoch: int, group: int) -> Mapping[int, Hint]:
        """Return the hints of sixteen shards, eventually consistent, by shard (0.5 RRU)."""
        ...

    def claim(self, claims: Sequence[Claiming], move: HintMove | None) -> list[int]:
        """Write claims of messages that are unchanged, 25 a call.

        The move of the hint and its segments are part of the call; their success does not matter.

        Returns:
            0 for each claim that was written, else until when another consumer holds the message
            (ms); -1: nobody is known to hold it.

        Raises:
            Throttled, Unavailable: each claim may or may not be written.
        """
        ...

    def move_hint(self, move: HintMove) -> Hint | None:
        """File a move's segments, and write its hint if it is unchanged since it was read.

        Returns:
            None if it was written; the present hint if another process was faster.
        """
        ...

    def segments(self, shard: Shard, checked: int) -> tuple[Sequence[Segment], bool]:
        """Return some segments that end behind a time (ms), in order, and whether there are more.

        They are consistent (1 RRU for 4 KB).
        """
        ...

    def file_segments(self, shard: Shard, segments: Sequence[Segment]) -> None:
        """Let stretches of a shard be read again when they end (1 WRU each).

        Raises:
            Throttled, Unavailable: some may not be filed.
        """
        ...

    def come_back(self, shard: Shard, segments: Sequence[Segment]) -> None:
        """File segments that end before the next check of a shard, and let it come in time."""
        ...

    def lower_after(self, shard: Shard, message_id: str) -> None:
        """Let receives begin no later than at this message."""
        ...

    def lower_checks(self, topic: str, epoch: int, checks: Mapping[int, int]) -> None:
        """Let these shards be scanned from their heads at these times (ms), if not before."""
        ...

    def release(self, receipts: Sequence[Receipt], until: int) -> list[Receipt]:
        """Release messages, uncounted, to be received from `until` (ms); return stale receipts."""
        ...

    def delete_claimed(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Delete messages by their receipts, 25 a call; return the stale receipts.

        Raises:
            Throttled, Unavailable: some may not be deleted; the call may be repeated with all.
        """
        ...

    def extend(self, receipts: Sequence[Receipt], until: int) -> list[Receipt]:
        """Hold messages until then (ms), 25 a call; return the stale receipts.

        Raises:
            Throttled, Unavailable: some may not be extended; the call may be repeated with all.
        """
        ...

    def save_claimed(self, after: StoredMessage, before: StoredMessage) -> Saved:
        """Write claim, states, gone and reason if claim, states and edits are as in `before`.

        Returns:
            `saved`; `absent` if there is no such message; the present message if it differs.
        """
        ...


class KeyClaimStore(ClaimStore, Protocol):
    """The outbox table, as ordered receiving uses it."""

    def claims(self, shard: Shard) -> KeyClaims:
        """Return the key claims of a shard (consistent, 1 RRU for 4 KB)."""
        ...

    def write_claims(self, shard: Shard, row: KeyClaims, version: int) -> KeyClaims | None:
        """Write the key claims of a shard if its version is this one (1 WRU a KB).

        Returns:
            None if they were written; the present row if another process was faster.
        """
        ...

    def keys_aside(self, shard: Shard, name: bytes, keys: Sequence[bytes]) -> dict[bytes, KeyClaim]:
        """Return which of these keys wait beside a row, with their entries (1 RRU each)."""
        ...

    def times_aside(self, shard: Shard, name: bytes, limit: int) -> list[tuple[int, bytes]]:
        """Return the first times (ms) at which keys beside a row are due, with their digests."""
        ...

    def set_keys_aside(
        self, shard: Shard, row: KeyClaims, version: int, entries: Sequence[KeyClaim]
    ) -> bool:
        """Write a row without these entries, and them beside it, if its version is this one."""
        ...

    def take_keys(
        self,
        shard: Shard,
        row: KeyClaims,
        version: int,
        name: bytes,
        times: Sequence[tuple[int, bytes]],
    ) -> bool:
        """Write a row, and delete these keys beside it, if its version is this one."""
        ...

    def follow_aside(self, shard: Shard, name: bytes, key: bytes, follower: str) -> None:
        """Note the first message of a key beside a row that receives pass (1 WRU)."""
        ...

    def delete_refs(self, refs: Sequence[MessageRef]) -> None:
        """Delete messages, 25 a call.

        Raises:
            Unavailable: some are not deleted; the call may be repeated with all.
        """
        ...

    def save_and_hold(
        self,
        after: StoredMessage,
        before: StoredMessage,
        shard: Shard,
        row: KeyClaims,
        version: int,
    ) -> bool:
        """Save a message and write the key claims if both are unchanged; else neither."""
        ...
