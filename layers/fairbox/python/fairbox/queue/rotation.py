"""Rotation over the shards of topics: which shards a receive reads next, and how soon."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from fairbox.model.clock import Clock, out_of_time
from fairbox.tables.hints import group_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from fairbox.model.topic_states import TopicState

Place = tuple[int, int]  # epoch and shard
_VISITS: Final = 10_000  # of a round, whatever a clock or a row says
_SHORTEST_SECONDS: Final = 0.1
_LONGEST_SECONDS: Final = 2.0
_SHARE: Final = 10  # of the time for which nothing came
_QUIET_SECONDS: Final = 60.0
_WIDE: Final = 32  # shards that may be read each second though nothing comes

T = TypeVar("T")


@dataclass(slots=True)
class Reading:
    """The progress of one receive in a shard of an unordered topic.

    Attributes:
        ahead: sort key up to which it has read ahead of the hint; None: it does not read there.
        upto: where that reading began, so that another one need not go on behind it.
        ready: sort key up to which it has read lane `ready` from the hint on; None: not begun.
        later: the same of due messages in lane `later`.
        later_ends: when the first message that it passed in lane `later` is free (ms); 0: none.
        scans: visits in which a scan from the head was not ended.
    """

    ahead: str | None = None
    upto: str | None = None
    ready: str | None = None
    later: str = ""
    later_ends: int = 0
    scans: int = 0


@dataclass(slots=True)
class Round:
    """The progress of one receive through a topic.

    Attributes:
        left: the shards that it has not read to the end.
        readings: how far it has read the others, by shard.
    """

    left: set[Place]
    readings: dict[Place, Reading] = field(default_factory=dict)

    def reading(self, place: Place) -> Reading:
        """Return how far a shard was read."""
        return self.readings.setdefault(place, Reading())


class Rounds:
    """Reads rounds, and says how soon the next one is worth its cost.

    Args:
        pulled: returns a topic as it stood at most a second ago, or raises.
    """

    def __init__(self, clock: Clock, pulled: Callable[[str], TopicState]) -> None:
        self._clock = clock
        self._pulled = pulled
        self._seen: dict[str, tuple[float, int]] = {}  # when a message came last, and the shards

    def read(self, name: str, take: Callable[[TopicState, Round], list[T]]) -> list[T]:
        """Read a round; return its messages.

        Args:
            name: the topic's name.
            take: claims messages of the shards of a round, and takes off the shards that it read.

        Raises:
            FairboxError: as a receive does.
        """
        topic = self._pulled(name)
        found = self._round(topic, take)
        now = self._clock.now()
        came, _ = self._seen.get(name, (now, 0))
        self._seen[name] = now if found else came, len(topic.shards())
        return found

    def pause(self, name: str) -> float:
        """Return the seconds until the next round of a topic is worth its cost.

        They are a tenth of the time for which nothing came, from 0.1 s to 2 s; on a wide topic
        where nothing came for a minute, a second for each 32 shards, if that is longer.
        """
        now = self._clock.now()
        came, shards = self._seen.get(name, (now, 1))
        quiet = now - came
        pause = min(_LONGEST_SECONDS, max(_SHORTEST_SECONDS, quiet / _SHARE))
        return max(pause, shards / _WIDE) if quiet > _QUIET_SECONDS else pause

    def _round(self, topic: TopicState, take: Callable[[TopicState, Round], list[T]]) -> list[T]:
        round_ = Round(set(topic.shards()))
        for _ in range(_VISITS):
            if not round_.left or topic.paused:
                break
            found = take(topic, round_)
            if found or out_of_time():
                return found
            # it may have been paused or resized meanwhile
            topic = self._pulled(topic.topic.name)
            round_.left &= set(topic.shards())
        return []


class ShardRotation:
    """Rotates over the shards of topics; each process begins somewhere else.

    Args:
        rng: chooses where to begin.
        at_most: shards of one call.
    """

    def __init__(self, rng: Random, *, at_most: int) -> None:
        self._rng = rng
        self._at_most = at_most
        self._next: dict[str, int] = {}

    def next(self, topic: TopicState, left: set[Place] | None = None) -> tuple[int, list[int]]:
        """Return an epoch, and those of its shards that come next: all of one hint row.

        Args:
            topic: the topic.
            left: shards of the topic, one at least, to which the turn is limited; None: all.
        """
        shards = topic.shards()
        name = topic.topic.name
        start = self._next.get(name)
        if start is None or start >= len(shards):
            start = self._rng.randrange(len(shards)) if start is None else 0
            self._next[name] = start

        turned = [*shards[start:], *shards[:start]]
        if left is not None:
            turned = [place for place in turned if place in left]

        epoch, first = turned[0]
        row = group_of(first)
        same = takewhile(lambda place: (place[0], group_of(place[1])) == (epoch, row), turned)
        return epoch, [shard for _, shard in same][: self._at_most]

    def visited(
        self, topic: TopicState, last: Place, done: list[Place], left: set[Place] | None
    ) -> None:
        """Begin the next receive behind the last shard, and take the done ones off `left`."""
        shards = topic.shards()
        self._next[topic.topic.name] = (shards.index(last) + 1) % len(shards)
        if left is not None:
            left.difference_update(done)

    def scatter(self, topic: TopicState) -> None:
        """Begin the next receive at a random shard, to leave consumers that visit the same ones."""
        self._next[topic.topic.name] = self._rng.randrange(len(topic.shards()))
