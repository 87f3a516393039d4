"""Reads of a lane for messages to claim, within the read units that a receive may spend."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.burials import bury_marked, readable
from fairbox.model.clock import Clock, milliseconds
from fairbox.model.ids import time_of
from fairbox.queue.claims import dying
from fairbox.tables.hints import RECEIVES_CHECK_MS, Hint
from fairbox.tables.segments import ClaimEnd, Segment, segments_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.model.messages import MessageRef, OpenLane, Shard
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

SPARE: Final = 5  # messages read in addition, because others may claim some
PAGE: Final = 100  # messages read at once at most
MOVE_OVER: Final = 4  # held messages that are worth a write to pass
YOUNG_MS: Final = 500  # ids behind which others may still be committed
_ROOM_UNITS: Final = 4.0  # of a receive, beside its hint row: eight empty shards, or a full page
_LEAST_UNITS: Final = 0.5  # the cost of a query that finds nothing
_ITEMS_A_UNIT: Final = 8  # of up to 1 KB, eventually consistent


@dataclass(frozen=True, slots=True)
class Ask:
    """The request of a receive to one shard: messages, visibility (ms), attempts, its name."""

    shard: Shard
    wanted: int
    visibility: int
    max_attempts: int
    consumer: str = ""


@dataclass(slots=True)
class Window:
    """The part of a lane that was read, in key order.

    Attributes:
        lane: the lane.
        cursor: the sort key up to which it was read.
        seen: the messages in that part, due or not.
        ended: it was read to its end, or to messages that are not due within the minute.
        upto: its last sort key; None: the lane's end.
    """

    lane: OpenLane
    cursor: str = ""
    upto: str | None = None
    seen: list[StoredMessage] = field(default_factory=list)
    ended: bool = False


class Room:
    """Read units that a receive may still spend on messages of up to 1 KB.

    Args:
        wanted: how many messages it asks for; many take more room.

    Attributes:
        all: units that there were.
        left: units that are left.
    """

    def __init__(self, wanted: int) -> None:
        self.all = self.left = max(_ROOM_UNITS, 2 * _units(wanted + SPARE))

    def items(self, limit: int, *, spare: float = 0.0) -> int:
        """Return the number of items that may be read, up to a limit; keep `spare` units."""
        return max(0, min(limit, int((self.left - spare) * _ITEMS_A_UNIT)))

    def add_reclaim(self) -> None:
        """Add the extra cost of a check: a read of lane `later` that finds nothing.

        An idle shard is checked once a minute, so that this is cheap. With it, a new consumer
        process sees all eight shards of a topic at its first receive, not four.
        """
        self.left += _LEAST_UNITS

    def spend(self, items: int) -> None:
        """Count a query that gave so many items."""
        self.left -= _units(items)


def _units(items: int) -> float:
    return max(_LEAST_UNITS, math.ceil(items * 2 / _ITEMS_A_UNIT) / 2)


class LaneReader:
    """Reads pages of lanes, and removes messages that no consumer will receive.

    Args:
        clock: the time, for due and held messages.
    """

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock

    def read(
        self, window: Window, ask: Ask, room: Room, *, spare: float = 0.0, whole: bool = False
    ) -> list[StoredMessage] | None:
        """Read the next page; return the messages that may be claimed.

        Args:
            window: takes the messages read.
            ask: the request.
            room: the units left.
            spare: units of these that are kept for other reads.
            whole: read as much as there is room for, not only a few more than are wanted.

        Returns:
            None if there was no room, and nothing was read.
        """
        if window.upto is not None and window.cursor >= window.upto:
            window.ended = True
            return []

        limit = room.items(PAGE if whole else ask.wanted + SPARE, spare=spare)
        if limit <= 0:
            return None

        now = milliseconds(self._clock)
        found = self._tables.lanes.page(
            window.lane,
            *ask.shard,
            limit=limit,
            after=window.cursor or None,
            until_due=now + RECEIVES_CHECK_MS if window.lane == "later" else None,
            upto=window.upto,
            # half the price: claims are conditional, and the next receive finds what is missed
            consistent=False,
        )

        rows = 0 if window.cursor else 1  # the shard's row, at the head
        room.spend(rows + len(found.messages) + len(found.unreadable))
        free = []
        for stored in readable(self._tables, found.messages, found.unreadable):
            if self._exhausted(stored, ask, now):
                continue
            window.seen.append(stored)
            if stored.claimed_until(now) is None and (stored.ref.due or 0) <= now:
                free.append(stored)

        window.cursor = found.last or window.cursor
        window.ended = found.last is None
        return free

    def _exhausted(self, stored: StoredMessage, ask: Ask, now: int) -> bool:
        """Bury a message after its last attempt, if no consumer holds it."""
        claim = stored.claim
        if claim is None or claim.count < ask.max_attempts or claim.until > now:
            return False
        dead = dying(stored, claim.count, claim.until)
        if self._tables.claims.save(dead, stored) == "saved":
            bury_marked(self._tables, dead)
        return True


def passed(
    seen: Sequence[StoredMessage],
    claiming: Mapping[MessageRef, int],
    hint: Hint,
    now: int,
) -> tuple[Hint, tuple[Segment, ...]] | None:
    """Return a hint behind the held messages at the front, and the segments of these messages.

    None: too few are held to be worth a write.

    Args:
        seen: messages from the hint on, in key order.
        claiming: messages about to be held, with the ends of their claims (ms).
        hint: as it is.
        now: milliseconds since 1970 UTC.
    """
    passed = []
    for stored in seen:
        until = claiming.get(stored.ref) or stored.claimed_until(now)
        if until is None or time_of(stored.ref.id) > now - YOUNG_MS:
            break
        if stored.ref.id > hint.after:
            # a check has read all segments up to `checked`
            passed.append(ClaimEnd(stored.ref.id, max(until, hint.checked + 1)))

    if len(passed) < MOVE_OVER:
        return None

    segments = segments_of(passed, hint.after)
    checks = [
        hint.next_check or now,
        now + RECEIVES_CHECK_MS,
        *(segment.end for segment in segments),
    ]
    return replace(hint, after=passed[-1].key, next_check=min(checks)), tuple(segments)
