"""Spread of receives over a shard when consumers compete: each works off a range of its own.

All consumers read a shard from the same hint, so that concurrent receives want the same messages,
and every claim but one is lost, and billed. A consumer that loses claims reserves ranges ahead of
the hint: one write moves the shard's reservation on by a time, and gives the messages with ids of
that time to this consumer for its next receives. Nothing depends on a reservation. What a consumer
leaves in its range is found by those who begin at the hint.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.model.ids import bound_of, time_of
from fairbox.queue.read_window import YOUNG_MS, Window

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from fairbox.model.stored_messages import Hint, StoredMessage
    from fairbox.queue.ports import ClaimStore, Shard

LOST: Final = 2  # claims of one receive that are no accident
RECEIVES: Final = 64  # of a topic, that are spread after claims were lost
RANGE_MESSAGES: Final = 40  # that a range is meant to hold
WIDEST_MS: Final = 60_000
FROM_HINT: Final = 16  # each so many-th receive of a shard begins at the hint, at first
LEFT_BEHIND: Final = 0.25  # share of these that claim what others have reserved
SELDOMEST: Final = 64  # and never fewer, so that nothing old is passed over for ever
_EMPTY: Final = 2  # ranges in a row without messages, after which nothing lies ahead


@dataclass(slots=True)
class _Place:
    """The knowledge of one shard.

    Attributes:
        first: time of its first message as read last at the hint (ms).
        receives: how many there were since one began at the hint; None: none competed.
        jumped: whether the last one began ahead.
        cursor: all up to this sort key was held when it was read; empty: not known.
        good_until: until when that is taken to be so (ms).
        range: what is left of the range that this process reserved.
        found: messages that it has held so far.
    """

    first: int = 0
    receives: int | None = None
    jumped: bool = False
    cursor: str = ""
    good_until: int = 0
    range: Window | None = None
    found: int = 0


@dataclass(slots=True)
class _Spread:
    """The spread of a topic's receives; its shards are much alike.

    Attributes:
        left: so many more receives are.
        width: milliseconds of a range that holds some receives.
        empty: ranges in a row that held nothing.
        every: which receive of a shard begins at the hint, counted from the last that did: later
            ones where claims are lost there.
    """

    left: int = 0
    width: int = 0
    empty: int = 0
    every: int = FROM_HINT


class StartSpread:
    """Spreads the receives of a process over what waits, while others compete for it.

    Args:
        store: the tables.
        rng: chooses whose turn it is at the hint.
    """

    def __init__(self, store: ClaimStore, rng: Random) -> None:
        self._store = store
        self._rng = rng
        self._places: defaultdict[Shard, _Place] = defaultdict(_Place)
        self._spreads: defaultdict[str, _Spread] = defaultdict(_Spread)

    def claimed(self, shard: Shard, lost: int) -> None:
        """Take note of how many claims of a shard's messages were lost to others."""
        spread = self._spreads[shard[0]]
        if lost >= LOST:
            spread.left = RECEIVES
        elif not spread.left:
            return
        if self._places[shard].jumped:
            return
        if lost >= LOST:
            spread.every = min(SELDOMEST, spread.every * 2)
        else:
            spread.every = max(FROM_HINT, spread.every - 1)

    def unreserved(
        self, shard: Shard, hint: Hint, free: list[StoredMessage]
    ) -> list[StoredMessage]:
        """Return the messages that a receive at the hint may claim while others compete.

        Now and then these are all: their consumers may have died.
        """
        after = time_of(hint.after) if hint.after else 0
        spread = self._spreads[shard[0]]
        if hint.reserved > after and not spread.left:
            spread.left = RECEIVES  # others compete already
        if not spread.left or self._rng.random() < LEFT_BEHIND:
            return free
        return [stored for stored in free if time_of(stored.ref.id) >= hint.reserved]

    def start(self, shard: Shard, after: str, now: int) -> Window | None:
        """Return the part of lane `ready` that a receive begins with; None: at the hint.

        A new range costs 1 WRU.

        Args:
            shard: of which.
            after: where the hint says.
            now: milliseconds since 1970 UTC.

        Raises:
            Throttled, Unavailable: no range could be reserved.
        """
        place, spread = self._places[shard], self._spreads[shard[0]]
        held = now < place.good_until <= now + YOUNG_MS and place.cursor > after
        if held and not spread.left:
            return Window("ready", cursor=place.cursor)
        if not spread.left or not spread.width:
            place.range = None
            return None
        spread.left -= 1
        # consumers that began together take turns at the hint
        before = self._rng.randrange(spread.every) if place.receives is None else place.receives
        place.receives = before + 1
        if place.receives >= spread.every:
            place.receives = 0
            return None
        if place.range is None or place.range.ended or (place.range.upto or "") <= after:
            place.range = self._reserve(shard, after, spread.width, now)
            place.found = 0
        return place.range

    def _reserve(self, shard: Shard, after: str, width: int, now: int) -> Window | None:
        # the first range lies behind the messages that others read at the hint
        low = (time_of(after) if after else self._places[shard].first) + 1
        start = self._store.reserve(shard, low, width, now)
        if start is None:
            return None
        return Window("ready", cursor=bound_of(start), upto=bound_of(start + width))

    def held(self, shard: Shard, cursor: str, now: int) -> None:
        """Go on behind this sort key for a moment: all before it was held, and there was no room.

        It lasts as long as ids are too young for the hint to pass them.
        """
        if self._spreads[shard[0]].left:
            return  # others would go on there too
        place = self._places[shard]
        place.cursor, place.good_until = cursor, now + YOUNG_MS

    def read(self, shard: Shard, seen: Sequence[StoredMessage]) -> None:
        """Remember what a page at the hint showed."""
        place, spread = self._places[shard], self._spreads[shard[0]]
        place.jumped = False
        if not seen:
            return
        place.first, last = time_of(seen[0].ref.id), time_of(seen[-1].ref.id)
        if not spread.width:
            each = (last - place.first) / len(seen)
            spread.width = min(WIDEST_MS, max(1, round(each * RANGE_MESSAGES)))

    def read_ahead(self, shard: Shard, window: Window) -> None:
        """Remember what a page ahead of the hint showed; the width follows what ranges hold."""
        place, spread = self._places[shard], self._spreads[shard[0]]
        place.jumped = True
        if window is not place.range:
            return
        place.found += len(window.seen)
        window.seen.clear()
        if not window.ended:
            return
        spread.empty = 0 if place.found else spread.empty + 1
        factor = RANGE_MESSAGES / max(1, place.found)
        wanted = round(spread.width * min(2.0, max(0.5, factor)))
        spread.width = min(WIDEST_MS, max(1, wanted))
        place.range = None
        if spread.empty >= _EMPTY:
            spread.empty = spread.left = 0
