"""Spread of receives over a shard when consumers compete: they begin ahead of the hint.

All consumers read a shard from the same hint, so that concurrent receives want the same messages,
and every claim but one is lost, and billed. A consumer that loses claims begins its next receives
at random places further on. Ids are ordered by time, so that no read is needed to find such a
place: it is computed from the distance between the ids of the last page.
"""

from __future__ import annotations

import math
import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.queue.read_window import YOUNG_MS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from fairbox.model.stored_messages import StoredMessage
    from fairbox.queue.ports import Shard

LOST: Final = 2  # claims of one receive that are no accident
RECEIVES: Final = 64  # of a topic, that are spread after claims were lost
REACH: Final = 64.0  # pages, over which they are spread at the most
NEAREST: Final = 2.0
FROM_HINT: Final = 4  # each so many-th receive of a shard begins at the hint, at first
SELDOMEST: Final = 16  # and never fewer, so that nothing old is passed over for ever
_LAST_ID: Final = (1 << 128) - 1


@dataclass(slots=True)
class _Place:
    """The knowledge of one shard.

    Attributes:
        first: its first message as read last, as a number.
        receives: how many there were since one began at the hint; None: none competed.
        jumped: whether the last one began ahead.
        cursor: all up to this sort key was held when it was read; empty: not known.
        good_until: until when that is taken to be so (ms).
    """

    first: int = 0
    receives: int | None = None
    jumped: bool = False
    cursor: str = ""
    good_until: int = 0


@dataclass(slots=True)
class _Spread:
    """The spread of a topic's receives; its shards are much alike.

    Attributes:
        left: so many more receives are.
        first: the first message of the shard that was read last at its hint, as a number.
        page: how far apart the first and the last id of a page lie.
        reach: pages over which receives are spread: more where claims are lost ahead of the hint,
            fewer where nothing lies there.
        every: which receive of a shard begins at the hint, counted from the last that did: later
            ones where claims are lost there.
    """

    left: int = 0
    first: int = 0
    page: int = 0
    reach: float = REACH
    every: int = FROM_HINT


class StartSpread:
    """Spreads the receives of a process over what waits, while others compete for it.

    Args:
        rng: chooses places.
    """

    def __init__(self, rng: Random) -> None:
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
            spread.reach = min(REACH, spread.reach * 2) if lost >= LOST else spread.reach
        elif lost >= LOST:
            spread.every = min(SELDOMEST, spread.every * 2)
        else:
            spread.every = max(FROM_HINT, spread.every - 1)

    def start(self, shard: Shard, after: str, now: int) -> str:
        """Return the sort key behind which a receive begins; empty: at the hint.

        Args:
            shard: of which.
            after: where the hint says.
            now: milliseconds since 1970 UTC.
        """
        place, spread = self._places[shard], self._spreads[shard[0]]
        if now < place.good_until <= now + YOUNG_MS and place.cursor > after:
            return place.cursor
        if not spread.left or not spread.page:
            return ""
        spread.left -= 1
        # consumers that began together take turns at the hint
        before = self._rng.randrange(spread.every) if place.receives is None else place.receives
        place.receives = before + 1
        if place.receives >= spread.every:
            place.receives = 0
            return ""
        # behind the first page, which other consumers read in turn; rather far, because near
        # messages have been claimed most often
        pages = 1 + math.sqrt(self._rng.random()) * (spread.reach - 1)
        begin = max(place.first or spread.first, uuid.UUID(after).int if after else 0)
        return str(uuid.UUID(int=min(_LAST_ID, begin + int(pages * spread.page))))

    def held(self, shard: Shard, cursor: str, now: int) -> None:
        """Go on behind this sort key for a moment: all before it was held, and there was no room.

        It lasts as long as ids are too young for the hint to pass them.
        """
        place = self._places[shard]
        place.cursor, place.good_until = cursor, now + YOUNG_MS

    def read(self, shard: Shard, seen: Sequence[StoredMessage], *, jumped: bool) -> None:
        """Remember what a page showed; one that was jumped to and is empty lay too far ahead."""
        place, spread = self._places[shard], self._spreads[shard[0]]
        place.jumped = jumped
        if jumped and not seen:
            spread.reach = max(NEAREST, spread.reach / 2)
        if not seen:
            return
        first, last = uuid.UUID(seen[0].ref.id).int, uuid.UUID(seen[-1].ref.id).int
        spread.page = last - first
        if not jumped:
            place.first = spread.first = first
