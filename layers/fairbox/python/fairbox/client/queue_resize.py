"""Another number of partitions for a queue, while messages flow: announced like another width."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.client.topic_resize import Resizing
from fairbox.dynamodb.topics import check_stays
from fairbox.errors import InvalidInput, ResizeUnderway, TopicConflict, TopicIsPushed
from fairbox.model.clock import milliseconds
from fairbox.model.epochs import (
    ANNOUNCE_MS,
    CLOSE_AFTER_MS,
    MAX_EPOCHS,
    REMOVE_AFTER_MS,
    Epoch,
    announced,
    underway,
)
from fairbox.model.sharding import MAX_PARTITIONS, partition_name
from fairbox.model.topics import Partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.topics import TopicState

_WRITING_MS: Final = 10_000
_WRITING_MS_A_TOPIC: Final = 100
"""How much earlier than needed a width is announced: every topic is told before the queue is."""


@dataclass(frozen=True, slots=True)
class WidthResult:
    """What another number of partitions came to.

    Attributes:
        queue: the logical name.
        partitions: how many there are, or will be.
        before: how many there were before.
        since: the id time (ms) from which messages are routed so.
        changed: whether this call announced it; False: the queue has so many, or will.
    """

    queue: str
    partitions: int
    before: int
    since: int
    changed: bool


def check_partitions(partitions: int) -> int:
    """Return a number of partitions that is one.

    Raises:
        InvalidInput: it is not a whole number from 1 to 1,000.
    """
    whole = isinstance(partitions, int) and not isinstance(partitions, bool)
    if not whole or not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidInput("partitions", f"a whole number from 1 to {MAX_PARTITIONS:,}")
    return partitions


def logical_name(state: TopicState) -> Partition:
    """Return what a topic is registered as, where it is a partitioned queue's logical name.

    Raises:
        TopicConflict: it is a topic, but no partitioned queue's logical name.
    """
    part, name = state.topic.partition, state.topic.name
    if part is None or part.queue != name:
        raise TopicConflict(name, "it is not the logical name of a partitioned queue")
    return part


class Repartitioning(Resizing):
    """Gives partitioned queues another number of partitions."""

    def known_topic(self, name: str) -> TopicState:
        """Return a topic as producers of this process know it: at most 30 s old.

        Raises:
            UnknownTopic: there is no such topic.
        """
        return self._topics.get(name)

    def resize_queue(self, queue: str, partitions: int) -> WidthResult:
        """Give a partitioned queue another number of partitions, from some 70 s on.

        Which partition a message goes to is its id's time and its key alone, so no message is
        moved. New partitions get the settings of partition 0; those that are dropped stay, and
        their consumers empty them. On ordered queues each partition begins an epoch at the same
        time, so that a key goes on in its new partition once its old one holds nothing of it. 6 WRU
        a topic.

        Args:
            queue: the logical name.
            partitions: 1 to 1,000; the same as now changes nothing, so that it may be repeated.

        Raises:
            UnknownTopic: there is no such topic.
            TopicConflict: it is no partitioned queue's logical name, or too many old numbers are
                not done with, or announcing took too long; then it may be tried again.
            TopicIsPushed: a partition has subscriptions.
            ResizeUnderway: another number of partitions, or another shard count of one of them, is
                announced and has not begun.
            InvalidInput: `partitions` is not what it takes.
        """
        check_partitions(partitions)
        first = self.topic(queue)
        part = logical_name(first)
        now = milliseconds(self._clock)
        widths = first.widths or (Epoch(0, part.count, 0),)
        newest = widths[-1]
        if newest.shards == partitions:
            before = widths[-2] if len(widths) > 1 else newest
            return WidthResult(queue, partitions, before.shards, newest.since, changed=False)
        if underway(widths, now):
            raise ResizeUnderway(queue, newest.since)
        states = self._partitions_of(first, partitions)
        widths = _pruned(widths, states, now)
        if len(widths) >= MAX_EPOCHS:
            raise TopicConflict(queue, f"{len(widths)} numbers of partitions are not done with")
        since = now + ANNOUNCE_MS + _WRITING_MS + _WRITING_MS_A_TOPIC * len(states)
        for state in states[1:]:
            self._begin_epoch(state.topic.name, partitions, since)
        changed = announced(widths, partitions, since)
        self._begin_epoch(queue, partitions, since, changed, first.widths)
        return WidthResult(queue, partitions, newest.shards, changed[-1].since, changed=True)

    def _partitions_of(self, first: TopicState, partitions: int) -> list[TopicState]:
        """Return every topic of a queue, those included that it is to have, partition 0 first."""
        queue, there = first.topic.name, {0: first}
        for state in self.topics():
            part = state.topic.partition
            if part is not None and part.queue == queue:
                there[part.number] = state
        pushed = [state.topic.name for state in there.values() if state.pushed]
        if pushed:
            raise TopicIsPushed(pushed[0])
        now = milliseconds(self._clock)
        for state in there.values():
            if underway(state.epochs, now):
                raise ResizeUnderway(state.topic.name, state.epochs[-1].since)
        for number in range(partitions):
            if number not in there:
                name, part = partition_name(queue, number), Partition(queue, number, partitions)
                state = self.create_topic(replace(first.topic, name=name, partition=part))
                there[number] = state
        return [there[number] for number in sorted(there)]

    def _begin_epoch(
        self,
        name: str,
        partitions: int,
        since: int,
        widths: tuple[Epoch, ...] = (),
        read: tuple[Epoch, ...] = (),
    ) -> None:
        """Tell a topic of the number of partitions; an ordered one begins an epoch with it.

        What is not finished for a crash or a refusal does no harm: routes are by the queue's own
        row, which is told last.
        """

        def decide(there: TopicState) -> TopicState | None:
            check_stays(there)
            now = milliseconds(self._clock)
            if (there.widths == widths != read) or (not widths and there.epochs[-1].since == since):
                return None  # it is done: the answer to the write was lost
            if underway(there.epochs, now):
                raise ResizeUnderway(name, there.epochs[-1].since)
            if there.widths != read or since < now + ANNOUNCE_MS:
                raise TopicConflict(name, "it was changed meanwhile, or took too long: try again")
            if len(there.epochs) >= MAX_EPOCHS:
                raise TopicConflict(name, f"{len(there.epochs)} epochs still hold messages")
            part, epochs = there.topic.partition, there.epochs
            if part is not None and part.number < partitions:
                part = replace(part, count=partitions)
            if there.topic.ordering == "key":
                epochs = announced(epochs, there.topic.shards, since)
            topic = replace(there.topic, partition=part)
            return replace(there, topic=topic, epochs=epochs, widths=widths)

        self.tables.topics.change(name, decide)
        self._topics.forget(name)


def _pruned(widths: tuple[Epoch, ...], states: Sequence[TopicState], now: int) -> tuple[Epoch, ...]:
    """Return the widths without those that no message is of any more."""
    kept = list(widths)
    while len(kept) > 1:
        end = kept[1].since
        ordered = (s for s in states if s.topic.ordering == "key")
        holding = any(epoch.since < end for state in ordered for epoch in state.epochs)
        if holding or end + CLOSE_AFTER_MS + REMOVE_AFTER_MS > now:
            break
        kept.pop(0)
    return tuple(kept)
