"""Rotation of shards: which shards of a topic the next receive reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from fairbox.tables.hints import group_of

if TYPE_CHECKING:
    from random import Random

    from fairbox.model.topic_states import TopicState

Place = tuple[int, int]  # epoch and shard


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
