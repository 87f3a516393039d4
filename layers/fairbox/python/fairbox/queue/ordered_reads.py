"""Reads of a receive from an ordered shard: parts of its lane, and waiting keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.tables.key_claims import KeyClaim, KeyClaims
    from fairbox.tables.stored_messages import StoredMessage


YOUNG_MS: Final = 2_000  # ids behind which others may still be committed


@dataclass(slots=True)
class Window:
    """The messages read from lane `ready`, in the order of ids.

    Attributes:
        after: it begins behind this id; empty: at the head.
        cursor: the sort key up to which it was read.
        messages: the messages.
        ended: it was read to its end.
        newer: only a newer release can read the next message: none behind it is handed out.
    """

    after: str = ""
    cursor: str = ""
    messages: list[StoredMessage] = field(default_factory=list)
    ended: bool = False
    newer: bool = False

    def covers(self, message_id: str) -> bool:
        """Whether a message of this id would have been read."""
        return self.after < message_id and (self.ended or message_id <= self.cursor)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request of a receive.

    Attributes:
        count: number of messages at most.
        visibility: milliseconds until others may receive them.
        per_key: number of messages of one key at most.
    """

    count: int
    visibility: int
    per_key: int = 1


@dataclass(slots=True)
class Spent:
    """Read units that a receive has spent on messages of up to 1 KB."""

    units: float = 0.0


@dataclass(slots=True)
class ShardRead:
    """A shard as it was read: its row first, then the rest.

    Attributes:
        row: the row.
        now: the time after that, in milliseconds since 1970 UTC.
        ended: entries that may end now: their messages were looked for.
        window: messages from where the row says, or from the head; it begins before the next
            message of each ended entry that has no window of its own.
        sides: windows of ended keys whose next message lies far before the others.
        there: by id, the messages of the windows, and the messages that ended entries name.
        aside: keys of the window that wait in items of their own.
    """

    row: KeyClaims
    now: int
    ended: Sequence[KeyClaim]
    window: Window
    sides: dict[bytes, Window] = field(default_factory=dict)
    there: Mapping[str, StoredMessage] = field(default_factory=dict)
    aside: Mapping[bytes, KeyClaim] = field(default_factory=dict)
