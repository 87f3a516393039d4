"""Resize of topics and of partitioned queues while messages flow, and its progress."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.client.outbox_context import OutboxPart
from fairbox.errors import InvalidInput, ResizeUnderway, TopicConflict, TopicIsPushed
from fairbox.model.epochs import (
    ANNOUNCE_MS,
    CLOSE_AFTER_MS,
    MAX_EPOCHS,
    MAX_PARTITIONS,
    REMOVE_AFTER_MS,
    Epoch,
    announced,
    partition_name,
    phase_of,
    underway,
)
from fairbox.model.topics import Partition, check_shards
from fairbox.tables.topic_rows import check_stays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.epochs import Phase
    from fairbox.model.topic_states import TopicState

_WRITING_MS: Final = 10_000
_WRITING_MS_A_TOPIC: Final = 100
"""Extra lead time of an announcement: every topic is written before the queue's own row."""
_LANES = ("ready", "later", "dead")


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


@dataclass(frozen=True, slots=True)
class WidthResult:
    """The result of a queue's resize.

    Attributes:
        queue: the logical name.
        partitions: the new number of partitions.
        before: the number before.
        since: the id time (ms) from which the new number holds.
        changed: whether this call announced it; False: the queue has that number already, or it is
            announced.
    """

    queue: str
    partitions: int
    before: int
    since: int
    changed: bool


def check_partitions(partitions: int) -> int:
    """Return a number of partitions; InvalidInput where it is no whole number from 1 to 1,000."""
    whole = isinstance(partitions, int) and not isinstance(partitions, bool)
    if not whole or not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidInput("partitions", f"a whole number from 1 to {MAX_PARTITIONS:,}")
    return partitions


def logical_name(state: TopicState) -> Partition:
    """Return the registration of a partitioned queue's logical name; TopicConflict: it is none."""
    part, name = state.topic.partition, state.topic.name
    if part is None or part.queue != name:
        raise TopicConflict(name, "it is not the logical name of a partitioned queue")
    return part


class Resize(OutboxPart):
    """Resizes topics and partitioned queues."""

    def known_topic(self, name: str) -> TopicState:
        """Return this process's copy of a topic, as producers use it: at most 30 s old.

        Raises:
            UnknownTopic: there is no such topic.
        """
        return self._context.topics.get(name)

    def resize_queue(self, queue: str, partitions: int) -> WidthResult:
        """Give a partitioned queue a new number of partitions; in force after some 70 s.

        The time of a message's id and its key alone choose its partition, so that no message is
        moved. New partitions get the settings of partition 0. Removed partitions stay until their
        consumers have emptied them. On ordered queues each partition begins an epoch at the same
        time, so that a key continues in its new partition when its old partition holds no message
        of it. It costs 6 WRU a topic.

        Args:
            queue: the logical name.
            partitions: 1 to 1,000; the present number changes nothing, so that the call may be
                repeated.

        Raises:
            UnknownTopic: there is no such topic.
            TopicConflict: it is not a partitioned queue's logical name, too many earlier resizes
                are unfinished, or the announcement took too long; then it may be tried again.
            TopicIsPushed: a partition has subscriptions.
            ResizeUnderway: another resize, of the queue or of one of its topics, is announced and
                has not begun.
            InvalidInput: `partitions` is out of range.
        """
        check_partitions(partitions)
        first = self._context.topic(queue)
        part = logical_name(first)

        now = self._context.now
        widths = first.widths or (Epoch(0, part.count, 0),)
        newest = widths[-1]

        if newest.shards == partitions:
            before = _before(widths).shards
            return WidthResult(queue, partitions, before, newest.since, changed=False)
        if underway(widths, now):
            raise ResizeUnderway(queue, newest.since)

        states = self._partitions_of(first, partitions)
        widths = _pruned(widths, states, now)
        if len(widths) >= MAX_EPOCHS:
            raise TopicConflict(queue, f"{len(widths)} numbers of partitions are not done with")

        since = now + ANNOUNCE_MS + _WRITING_MS + _WRITING_MS_A_TOPIC * len(states)
        for state in states[1:]:
            self._begin_epoch(state.topic.name, partitions, since)

        # last: routes follow the queue's own row, so a crash before it changes no route
        changed = announced(widths, partitions, since)
        self._begin_epoch(queue, partitions, since, changed, first.widths)
        return WidthResult(queue, partitions, newest.shards, changed[-1].since, changed=True)

    def _partitions_of(self, first: TopicState, partitions: int) -> list[TopicState]:
        """Return every topic of a queue, partition 0 first; create the missing ones."""
        queue, there = first.topic.name, {0: first}
        for state in self.tables.topics.all():
            part = state.topic.partition
            if part is not None and part.queue == queue:
                there[part.number] = state

        pushed = [state.topic.name for state in there.values() if state.pushed]
        if pushed:
            raise TopicIsPushed(pushed[0])

        now = self._context.now
        for state in there.values():
            if underway(state.epochs, now):
                raise ResizeUnderway(state.topic.name, state.epochs[-1].since)

        for number in range(partitions):
            if number not in there:
                name, part = partition_name(queue, number), Partition(queue, number, partitions)
                state = self._context.create_topic(replace(first.topic, name=name, partition=part))
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
        """Write the number of partitions to a topic; an ordered one begins an epoch with it.

        A resize that a crash or a refusal cuts off does no harm: routes follow the queue's own row,
        which is written last.
        """

        def decide(there: TopicState) -> TopicState:
            check_stays(there)
            now = self._context.now
            if (there.widths == widths != read) or (not widths and there.epochs[-1].since == since):
                return there  # it is done: the answer to the write was lost

            if underway(there.epochs, now):
                raise ResizeUnderway(name, there.epochs[-1].since)
            # producers learn of a resize only from an announcement that is early enough
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
        self._context.topics.forget(name)

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
            counts = [sum(max(0, getattr(row, lane)) for row in own) for lane in _LANES]
            found.append(EpochStatus(epoch, phase_of(state.epochs, epoch, now), *counts))
        return found


def _before(epochs: tuple[Epoch, ...]) -> Epoch:
    """Return the epoch before the newest; the newest itself where it is the only one."""
    return epochs[-2] if len(epochs) > 1 else epochs[-1]


def _pruned(widths: tuple[Epoch, ...], states: Sequence[TopicState], now: int) -> tuple[Epoch, ...]:
    """Return the widths without those of which no message can remain."""
    kept = list(widths)
    while len(kept) > 1:
        end = kept[1].since
        ordered = (s for s in states if s.topic.ordering == "key")
        holding = any(epoch.since < end for state in ordered for epoch in state.epochs)
        # late messages of a width may come as long as an epoch takes them
        if holding or end + CLOSE_AFTER_MS + REMOVE_AFTER_MS > now:
            break
        kept.pop(0)
    return tuple(kept)
