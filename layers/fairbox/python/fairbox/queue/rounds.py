"""Rounds: a receive reads all shards of a topic in turn, until one yields messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from fairbox.model.clock import out_of_time
from fairbox.queue.shard_rotation import Round

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.model.clock import Clock
    from fairbox.model.topic_states import TopicState

_VISITS: Final = 10_000  # of a round, whatever a clock or a row says
_SHORTEST_SECONDS: Final = 0.1
_LONGEST_SECONDS: Final = 2.0
_SHARE: Final = 10  # of the time for which nothing came
_QUIET_SECONDS: Final = 60.0
_WIDE: Final = 32  # shards that may be read each second though nothing comes

T = TypeVar("T")


class Rounds:
    """Reads rounds, and says how soon the next one is worth its cost.

    Args:
        clock: the time.
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
