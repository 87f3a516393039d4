"""Where a receive begins when others compete for the same messages: somewhere ahead of the hint.

All consumers read a shard from the same hint, so those that come at once want the same messages,
and every claim but one is lost, and billed. Who loses claims begins its next receives at random
places further on. Ids are ordered by time, so a place in between needs no read: it is computed from
how far apart the ids of the last page lay.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.queueing.windows import YOUNG_MS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from fairbox.queueing.ports import Shard
    from fairbox.stored import StoredMessage

LOST: Final = 2  # claims of one receive that are no accident
RECEIVES: Final = 64  # of a topic, that are spread after claims were lost
REACH: Final = 16.0  # pages, over which they are spread
FROM_HINT: Final = (
    4  # each so many-th receive of a shard begins at the hint: what is old goes first
)
_LAST_ID: Final = (1 << 128) - 1


@dataclass(slots=True)
class _Place:
    """What is known of a shard.

    Attributes:
        first: its first message as read last, as a number.
        page: how far apart the first and the last id of a page lie.
        reach: pages over which receives are spread.
        receives: how many there were while others competed.
        cursor: all up to this sort key was held when it was read; empty: not known.
        good_until: until when that is taken to be so (ms).
    """

    first: int = 0
    page: int = 0
    reach: float = REACH
    receives: int = 0
    cursor: str = ""
    good_until: int = 0


class Ahead:
    """Spreads the receives of a process over what waits, while others compete for it.

    Args:
        rng: chooses places.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._places: dict[Shard, _Place] = {}
        self._left: dict[str, int] = {}

    def competing(self, topic: str) -> bool:
        """Whether claims were lost a short while ago."""
        return self._left.get(topic, 0) > 0

    def lost(self, topic: str) -> None:
        """Others were faster: spread the next receives."""
        self._left[topic] = RECEIVES

    def start(self, shard: Shard, after: str, now: int) -> str:
        """Return the sort key behind which a receive begins; empty: at the hint.

        Args:
            shard: of which.
            after: where the hint says.
            now: milliseconds since 1970 UTC.
        """
        place = self._places.get(shard)
        if place is None:
            return ""
        if now < place.good_until and place.cursor > after:
            return place.cursor
        if not self.competing(shard[0]) or not place.page:
            return ""
        self._left[shard[0]] -= 1
        place.receives += 1
        pages = self._rng.random() * place.reach
        if place.receives % FROM_HINT == 0 or pages <= 1 / 2:
            return ""
        begin = max(place.first, uuid.UUID(after).int if after else 0)
        return str(uuid.UUID(int=min(_LAST_ID, begin + int(pages * place.page))))

    def held(self, shard: Shard, cursor: str, now: int) -> None:
        """Go on behind this sort key for a moment: all before it was held, and there was no room.

        It lasts as long as ids are too young for the hint to pass them.
        """
        place = self._places.setdefault(shard, _Place())
        place.cursor, place.good_until = cursor, now + YOUNG_MS

    def read(self, shard: Shard, seen: Sequence[StoredMessage], *, jumped: bool) -> None:
        """Remember what a page showed; one that was jumped to and is empty lay too far ahead."""
        place = self._places.setdefault(shard, _Place())
        if jumped:
            place.reach = min(REACH, place.reach * 2) if seen else max(1.0, place.reach / 2)
        if not seen:
            return
        first, last = uuid.UUID(seen[0].ref.id).int, uuid.UUID(seen[-1].ref.id).int
        place.page = last - first
        if not jumped:
            place.first = first
