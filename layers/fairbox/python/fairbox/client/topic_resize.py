"""Resizing: another shard count of a topic, while messages flow, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairbox.client.topic_administration import Administration
from fairbox.dynamodb.topics import check_stays
from fairbox.errors import ResizeUnderway, TopicConflict
from fairbox.model.clock import milliseconds
from fairbox.model.epochs import ANNOUNCE_MS, MAX_EPOCHS, announced, phase_of, underway
from fairbox.model.topics import check_shards

if TYPE_CHECKING:
    from fairbox.model.epochs import Epoch, Phase
    from fairbox.model.topics import TopicState


@dataclass(frozen=True, slots=True)
class ResizeResult:
    """What a resize came to.

    Attributes:
        topic: the topic's name.
        epoch: the newest epoch: its number, its shard count, the id time (ms) from which it holds.
        before: the shard count before it.
        changed: whether this call announced it; False: the topic has so many shards, or will.
    """

    topic: str
    epoch: Epoch
    before: int
    changed: bool


@dataclass(frozen=True, slots=True)
class EpochStatus:
    """What lies in an epoch of a topic, as counted from the stream (it trails by half a minute).

    Attributes:
        epoch: which.
        phase: `announced`, not begun; `current`; `draining`, for a newer one has begun; `closed`,
            found empty, and taking no messages any more, until repair takes it off the list.
        ready, later, dead: messages in its lanes.
    """

    epoch: Epoch
    phase: Phase
    ready: int
    later: int
    dead: int

    @property
    def empty(self) -> bool:
        """Whether nothing is counted in it."""
        return not (self.ready or self.later or self.dead)


class Resizing(Administration):
    """Resizes topics."""

    def resize(self, topic: str, shards: int) -> ResizeResult:
        """Give a topic another number of shards, from a minute on, while messages flow.

        Which epoch a message goes to is its id's time alone, so no message is moved, and adding
        one again finds it. Old epochs go on being delivered, received and redriven until they are
        empty, dead letters included; then repair takes them off the list. On ordered topics a key
        goes on in its new shard once its old one holds nothing of it. 6 WRU; on ordered topics 1
        more a new shard.

        Args:
            topic: the topic.
            shards: 1 to 1,000; the same as now changes nothing, so that it may be repeated.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: `shards` is not what it takes.
            ResizeUnderway: another width is announced and has not begun.
            TopicConflict: too many old epochs hold messages, or it changes too often.
        """
        check_shards(shards)
        first: list[TopicState] = []

        def decide(there: TopicState) -> TopicState | None:
            first.append(there)
            check_stays(there)
            newest = there.epochs[-1]
            if newest.shards == shards:
                return None
            now = milliseconds(self._clock)
            if underway(there.epochs, now):
                raise ResizeUnderway(topic, newest.since)
            if len(there.epochs) >= MAX_EPOCHS:
                detail = f"{len(there.epochs)} epochs still hold messages"
                raise TopicConflict(topic, detail)
            epochs = announced(there.epochs, shards, now + ANNOUNCE_MS)
            return replace(there, topic=replace(there.topic, shards=shards), epochs=epochs)

        state = self.tables.topics.change(topic, decide)
        self._topics.forget(topic)
        # the answer to a write may be lost: what was read first tells whether it changed
        newest, read = state.epochs[-1], first[0].epochs
        changed = newest.number > read[-1].number
        return ResizeResult(topic, newest, _before(state.epochs).shards, changed)

    def epochs(self, topic: str) -> list[EpochStatus]:
        """Return a topic's epochs, oldest first, with what lies in each (1 RRU a shard).

        Raises:
            UnknownTopic: there is no such topic.
        """
        state = self.topic(topic)
        now = milliseconds(self._clock)
        rows = self.tables.rows.get_many([(topic, *shard) for shard in state.shards()])
        found = []
        for epoch in state.epochs:
            own = [row for row in rows if row.epoch == epoch.number]
            counts = [sum(max(0, n) for n in (getattr(r, lane) for r in own)) for lane in _LANES]
            found.append(EpochStatus(epoch, phase_of(state.epochs, epoch, now), *counts))
        return found


_LANES = ("ready", "later", "dead")


def _before(epochs: tuple[Epoch, ...]) -> Epoch:
    """Return the epoch before the newest; the newest itself where it is the only one."""
    return epochs[-2] if len(epochs) > 1 else epochs[-1]
