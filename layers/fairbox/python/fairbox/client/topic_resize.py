"""Resize of a topic: a new shard count while messages flow, and its progress."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairbox.client.outbox_context import OutboxPart
from fairbox.errors import ResizeUnderway, TopicConflict
from fairbox.model.epochs import ANNOUNCE_MS, MAX_EPOCHS, announced, phase_of, underway
from fairbox.model.topics import check_shards
from fairbox.tables.topic_rows import check_stays

if TYPE_CHECKING:
    from fairbox.model.epochs import Epoch, Phase
    from fairbox.model.topic_states import TopicState


@dataclass(frozen=True, slots=True)
class ResizeResult:
    """The result of a resize.

    Attributes:
        topic: the topic's name.
        epoch: the newest epoch: its number, its shard count, the id time (ms) from which it holds.
        before: the shard count before it.
        changed: whether this call announced it; False: the topic has that number of shards
            already, or it is announced.
    """

    topic: str
    epoch: Epoch
    before: int
    changed: bool


@dataclass(frozen=True, slots=True)
class EpochStatus:
    """The messages of a topic's epoch, as counted from the stream (half a minute behind).

    Attributes:
        epoch: which.
        phase: `announced`: not begun; `current`; `draining`: a newer one has begun; `closed`: found
            empty, and takes no messages any more, until repair removes it from the list.
        ready, later, dead: messages in its lanes.
    """

    epoch: Epoch
    phase: Phase
    ready: int
    later: int
    dead: int

    @property
    def empty(self) -> bool:
        """Whether the count of every lane is 0."""
        return not (self.ready or self.later or self.dead)


class TopicResize(OutboxPart):
    """Resizes topics."""

    def resize(self, topic: str, shards: int) -> ResizeResult:
        """Give a topic a new number of shards while messages flow; in force after a minute.

        The time of a message's id alone chooses its epoch, so that no message is moved, and a
        repeated add finds its message. Old epochs are delivered, received and redriven until they
        are empty, including dead letters; then repair removes them from the list. On ordered topics
        a key continues in its new shard when its old shard holds no message of it. It costs 6 WRU;
        on ordered topics 1 more for each new shard.

        Args:
            topic: the topic.
            shards: 1 to 1,000; the present number changes nothing, so that the call may be
                repeated.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: `shards` is out of range.
            ResizeUnderway: another resize is announced and has not begun.
            TopicConflict: too many old epochs hold messages, or the topic changes too often.
        """
        check_shards(shards)
        first: list[TopicState] = []

        def decide(there: TopicState) -> TopicState:
            first.append(there)
            check_stays(there)
            newest = there.epochs[-1]
            if newest.shards == shards:
                return there

            now = self._context.now
            if underway(there.epochs, now):
                raise ResizeUnderway(topic, newest.since)
            if len(there.epochs) >= MAX_EPOCHS:
                detail = f"{len(there.epochs)} epochs still hold messages"
                raise TopicConflict(topic, detail)

            epochs = announced(there.epochs, shards, now + ANNOUNCE_MS)
            return replace(there, topic=replace(there.topic, shards=shards), epochs=epochs)

        state = self.tables.topics.change(topic, decide)
        self._context.topics.forget(topic)

        # the answer to a write may be lost: the state that was read first shows whether it changed
        newest, read = state.epochs[-1], first[0].epochs
        changed = newest.number > read[-1].number
        return ResizeResult(topic, newest, _before(state.epochs).shards, changed)

    def epochs(self, topic: str) -> list[EpochStatus]:
        """Return a topic's epochs, oldest first, with the messages in each (1 RRU a shard).

        Raises:
            UnknownTopic: there is no such topic.
        """
        state = self._context.topic(topic)
        now = self._context.now
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
