"""Partitioned queues: one logical name over several topics, with routes by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fairbox.client.partition_types import KeyRoute, PartitionResults, Route
from fairbox.client.resize import WidthResult, check_partitions, logical_name
from fairbox.consumer.consumer import Consumer
from fairbox.consumer.group import Consumers
from fairbox.consumer.options import Permits
from fairbox.errors import FairboxError, InvalidInput, TopicConflict
from fairbox.model.clock import milliseconds
from fairbox.model.epochs import MAX_PARTITIONS, partition_name, partition_number
from fairbox.model.ids import time_of
from fairbox.model.messages import Message, MessageRef, check_text, check_topic
from fairbox.model.topics import Partition, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fairbox.client.outbox import Outbox
    from fairbox.client.queue import Queue
    from fairbox.client.redrive import RedriveResult
    from fairbox.consumer.ports import Source
    from fairbox.model.receipts import Received
    from fairbox.model.topic_states import TopicState
    from fairbox.queue.models import QueueStats
    from fairbox.tables.dead_letters import DeadLetter

T = TypeVar("T")


class PartitionedQueue:
    """One logical queue over several topics, each with shards, consumers and limits of its own.

    Partition 0 has the logical name, so that a queue of one partition is a plain topic, and
    messages sent to the logical name directly are consumed. Messages of one key are in one
    partition, and on topics with `ordering="key"` they are in order; there is no order across
    partitions.

    A queue from this constructor routes over the number of partitions that it is given. A queue
    from `registered` follows each resize. So do `send_many` and `transact_items` in both cases.

    Partitions may be given by name, such as topics that exist. Keys and indexes choose among the
    names in their order, so keep it. Such topics are plain: nothing registers them as partitions.
    Messages are addressed to the logical name, but it is no topic unless it is one of the names.
    `registered`, `resize`, and `fairbox ... --all-partitions` take only numbered partitions.

    Queues are equal if they route over the same partitions; those from `registered`, if they have
    the same name and the same `Outbox`. A queue is also a collection of the topics' `names`.

    Args:
        name: the logical name; with the last partition's suffix it must be a valid topic name.
        partitions: 1 to 1,000; or the names of the topics, as a list without repetition.

    Raises:
        InvalidInput: `name` or `partitions` is invalid.

    Example:
        ```python
        emails = PartitionedQueue("email", partitions=4)
        emails.create(outbox, ordering="key")
        queue.send(Message(body=b"...", **emails.route_by_key("customer-42")))
        emails.consumers(queue, handler, concurrency_per_partition=2).run()
        ```
    """

    def __init__(self, name: str, partitions: int | Sequence[str] = 1) -> None:
        self.name = check_topic(name)
        self._outbox: Outbox | None = None  # whose topics tell how many partitions there are
        self._named = None if isinstance(partitions, int) else _topic_names(partitions)
        count = partitions if isinstance(partitions, int) else len(partitions)
        self._given = check_partitions(count)

        # the last partition has the longest name
        last = self._topic(count - 1)
        try:
            check_topic(last)
        except InvalidInput:
            room = 120 - len(last) + len(name)
            raise InvalidInput(
                "name", f"at most {room} characters with {count} partitions"
            ) from None

    def __len__(self) -> int:
        return len(self.names)

    def __bool__(self) -> bool:
        return True  # without a read of the number of partitions

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, topic: object) -> bool:
        return topic in self.names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionedQueue) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        if self._outbox is not None:
            return f"PartitionedQueue.registered(outbox, {self.name!r})"
        given = self._given if self._named is None else list(self._named)
        return f"PartitionedQueue({self.name!r}, partitions={given})"

    @property
    def _identity(self) -> tuple[object, ...]:
        if self._outbox is not None:
            return self.name, self._outbox
        return self.name, self._given, self._named

    @property
    def partitions(self) -> int:
        """The number of partitions over which messages made now are routed."""
        if self._outbox is None:
            return self._given
        return self._width(milliseconds(self._outbox.tables.calls.clock))

    @property
    def names(self) -> tuple[str, ...]:
        """The topics of all partitions, including those before and after a resize under way."""
        if self._named is not None:
            return self._named
        most = self._given
        if self._outbox is not None:
            widths = self._outbox.known_topic(self.name).widths
            most = max([most, *(width.shards for width in widths)])
        return tuple(partition_name(self.name, number) for number in range(most))

    @classmethod
    def registered(cls, outbox: Outbox, name: str) -> PartitionedQueue:
        """Return the queue as it was registered, so that producers and consumers agree.

        It follows each resize: it reads the topic's row again when its copy is 30 s old (0.5 RRU).

        Raises:
            UnknownTopic: there is no topic of this name.
            TopicConflict: it is a topic, but no partitioned queue's logical name.
        """
        count = logical_name(outbox.topic(name)).count
        # partitions that a resize has removed stay until their consumers have emptied them
        parts = [state.topic.partition for state in outbox.topics()]
        found = cls(name, max([count, *(p.number + 1 for p in parts if p and p.queue == name)]))
        found._outbox = outbox
        return found

    def create(self, outbox: Outbox, **settings: Any) -> list[TopicState]:
        """Create and register the topics; again brings their settings up to date.

        With the registration, metrics and lists show the logical name and the partition of each
        topic. Topics that are given by name are created and not registered. A queue that is
        registered with another number of partitions is refused: `resize` changes that number.

        Args:
            outbox: where to create them.
            settings: settings of each `Topic`: `shards`, `ordering`, `retry`, `dedup_window`,
                `retention`...

        Raises:
            TopicConflict: a topic exists with another number of partitions, ordering or shard
                count, or as a partition of another queue; the topics before it are created.
            InvalidInput: a setting is invalid.
        """
        count = self.partitions
        parts = [
            Partition(self.name, n, count) if self._named is None else None for n in range(count)
        ]
        topics = [
            Topic(name, partition=part, **settings)
            for name, part in zip(self.names, parts, strict=False)
        ]

        # the number of partitions is checked for all topics before the first is created
        there = {state.topic.name: state.topic.partition for state in outbox.topics()}
        for topic in topics:
            self._check_width(topic.name, there.get(topic.name))

        return [outbox.create_topic(topic) for topic in topics]

    def resize(self, outbox: Outbox, partitions: int) -> WidthResult:
        """Give the queue another number of partitions while messages flow; see `resize_queue`.

        Consumers, and producers that call `route_by_key` or `route_by_index`, follow the resize if
        they use a `registered` queue. Otherwise make the queue again with the new number.

        Raises:
            TopicConflict: the partitions are given by name.
            FairboxError: as `Outbox.resize_queue`.
        """
        if self._named is not None:
            raise TopicConflict(self.name, "its partitions are given by name, not by number")
        return outbox.resize_queue(self.name, partitions)

    def route_by_key(self, key: str) -> KeyRoute:
        """Return the arguments of `Message` that a key decides: `topic` and `partition_key`.

        The route of a `registered` queue is valid for messages made now, so make the message at
        once.

        Raises:
            InvalidInput: the key is no text of at most 256 bytes.
        """
        if key is None or check_text("partition_key", key) is None:
            raise InvalidInput("partition_key", "text of at most 256 bytes of UTF-8")
        return {"topic": self._of_key(key, self.partitions), "partition_key": key}

    def route_by_index(self, index: int) -> Route:
        """Return the argument `topic` of `Message` for partition `index` modulo their number.

        Raises:
            InvalidInput: the index is no whole number from 0.
        """
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise InvalidInput("index", "a whole number from 0")
        return {"topic": self._topic(index % self.partitions)}

    def route(self, message: Message) -> Message:
        """Return a message of the logical name as one of its partition, under the same id.

        The partition is chosen by the partition key or, without one, by the id. For a `registered`
        queue the time of the id counts too, so that a message always goes to the same partition.

        Raises:
            InvalidInput: it is addressed to another topic.
        """
        return self._routed(message, self._outbox)

    def send_many(
        self, queue: Queue, messages: Iterable[Message], *, new: bool = False
    ) -> list[MessageRef]:
        """Send messages of the logical name, each to its own partition, 25 a call.

        Args:
            queue: sends them.
            messages: the messages.
            new: none of them was ever sent; see `Outbox.add_many`.

        Raises:
            As `Queue.send_many` does.
        """
        outbox = queue.outbox
        return queue.send_many([self._routed(m, outbox) for m in messages], new=new)

    def transact_items(self, outbox: Outbox, *messages: Message) -> list[dict[str, Any]]:
        """Return the actions that publish messages of the logical name, each in its partition.

        Raises:
            As `Outbox.transact_items` does.
        """
        return outbox.transact_items(*(self._routed(message, outbox) for message in messages))

    def consumers(
        self,
        queue: Source,
        handler: Callable[[Received], object],
        *,
        concurrency_per_partition: int = 2,
        partitions: Iterable[int] | None = None,
        concurrency_cap: int | None = None,
        **settings: Any,
    ) -> Consumers:
        """Return a consumer for each partition, to be run together.

        Consumers of a `registered` queue follow each resize: new partitions get consumers while
        they run, and removed partitions keep theirs.

        Args:
            queue: the queue.
            handler: as `Consumer` takes it.
            concurrency_per_partition: workers of each partition: four partitions with two workers
                each have eight.
            partitions: numbers of the partitions; None: all.
            concurrency_cap: maximum number of concurrent handlers over all these partitions; None:
                only the number of workers limits them.
            settings: further settings of each `Consumer`; each has its own `rate`.

        Raises:
            InvalidInput: a setting is invalid, or there is no such partition.
        """
        permits = None if concurrency_cap is None else Permits(concurrency_cap)

        def consumer(number: int) -> Consumer:
            return Consumer(
                queue,
                self._topic(number),
                handler,
                concurrency=concurrency_per_partition,
                permits=permits,
                labels={"queue": self.name, "partition": str(number)},
                **settings,
            )

        def more(there: int) -> list[Consumer]:
            return [consumer(number) for number in range(there, len(self.names))]

        follows = partitions is None and self._outbox is not None
        made = map(consumer, self._chosen(partitions))
        return Consumers(made, more=more if follows else None)

    def stats(
        self, queue: Queue, *, partitions: Iterable[int] | None = None
    ) -> PartitionResults[QueueStats]:
        """Return the figures of each partition."""
        return self.each(queue.stats, partitions=partitions)

    def pause(
        self, outbox: Outbox, *, partitions: Iterable[int] | None = None
    ) -> PartitionResults[None]:
        """Pause each partition: receives return nothing; in force when this returns, 2 s later."""
        # one wait for all of them, not 2 s for each
        done = self.each(partial(outbox.pause_topic, wait=False), partitions=partitions)
        outbox.wait_until_in_force(*done.results)
        return done

    def resume(
        self, outbox: Outbox, *, partitions: Iterable[int] | None = None
    ) -> PartitionResults[None]:
        """Resume each partition."""
        return self.each(outbox.resume_topic, partitions=partitions)

    def purge(
        self,
        queue: Queue,
        *,
        partitions: Iterable[int] | None = None,
        reason: str = "",
        progress: Callable[[str, int], None] | None = None,
    ) -> PartitionResults[int]:
        """Empty each partition, as `Queue.purge` does; return the number of messages deleted.

        A partition that has subscriptions is refused, and is among the errors of the result.

        Args:
            queue: the queue.
            partitions: numbers of the partitions; None: all.
            reason: kept in the archive with each message.
            progress: called with a topic's name and the number of its messages deleted.
        """

        def purge(name: str) -> int:
            report = None if progress is None else partial(progress, name)
            return queue.purge(name, reason=reason, progress=report)

        return self.each(purge, partitions=partitions)

    def redrive(
        self,
        outbox: Outbox,
        refs: Iterable[MessageRef | str] | None = None,
        *,
        partitions: Iterable[int] | None = None,
        where: Callable[[DeadLetter], bool] | None = None,
        limit_per_partition: int | None = None,
        dry_run: bool = False,
    ) -> PartitionResults[RedriveResult]:
        """Put the dead letters of each partition back, as `Outbox.redrive` does.

        Args:
            outbox: the outbox.
            refs: the dead letters; None: all.
            partitions: numbers of the partitions; None: all, or the partitions of `refs`.
            where: puts back only dead letters for which it is true.
            limit_per_partition: maximum number of each partition.
            dry_run: change nothing, and return the messages that would be put back.

        Raises:
            InvalidInput: a text is not a ref, or a ref belongs to another queue; nothing has
                changed.
        """
        named: dict[str, list[MessageRef]] | None = None
        if refs is not None:
            named = self._by_partition(refs)
            wanted = self._chosen(partitions)
            partitions = [n for n in wanted if self.names[n] in named]
            if not partitions:
                return PartitionResults({}, {})

        def redrive(name: str) -> RedriveResult:
            ids = None if named is None else named[name]
            return outbox.redrive(
                name, ids, where=where, limit=limit_per_partition, dry_run=dry_run
            )

        return self.each(redrive, partitions=partitions)

    def each(
        self, operation: Callable[[str], T], *, partitions: Iterable[int] | None = None
    ) -> PartitionResults[T]:
        """Call an operation for each partition's topic; one failure does not stop the others.

        Args:
            operation: called with the name of a topic.
            partitions: numbers of the partitions; None: all.
        """
        results: dict[str, T] = {}
        errors: dict[str, FairboxError] = {}
        for number in self._chosen(partitions):
            name = self.names[number]
            try:
                results[name] = operation(name)
            except FairboxError as error:
                errors[name] = error
        return PartitionResults(results, errors)

    def _of_key(self, key: str, partitions: int) -> str:
        return self._topic(partition_number(key, partitions))

    def _topic(self, number: int) -> str:
        return partition_name(self.name, number) if self._named is None else self._named[number]

    def _routed(self, message: Message, outbox: Outbox | None) -> Message:
        if message.topic != self.name:
            raise InvalidInput("topic", f"{self.name!r}, the logical name")
        width = self._width(time_of(message.id), outbox)
        return replace(message, topic=self._of_key(message.shard_key, width))

    def _width(self, ms: int, outbox: Outbox | None = None) -> int:
        """Return the number of partitions at an id's time (ms)."""
        known = outbox or self._outbox
        if known is None or self._named is not None:
            return self._given
        state = known.known_topic(self.name)
        return self._given if state.topic.partition is None else state.width_at(ms).shards

    def _by_partition(self, refs: Iterable[MessageRef | str]) -> dict[str, list[MessageRef]]:
        found: dict[str, list[MessageRef]] = {}
        for given in refs:
            ref = MessageRef.parse(given) if isinstance(given, str) else given
            if ref.topic not in self.names:
                raise InvalidInput("refs", f"refs of queue {self.name!r}, got {ref}")
            found.setdefault(ref.topic, []).append(ref)
        return found

    def _check_width(self, name: str, there: Partition | None) -> None:
        own = (self.name, self.partitions, None)
        if there is not None and (there.queue, there.count, self._named) != own:
            detail = f"it is partition {there.number} of {there.count} of queue {there.queue!r}"
            raise TopicConflict(name, f"{detail}; resize changes the number of partitions")

    def _chosen(self, partitions: Iterable[int] | None) -> Sequence[int]:
        count = len(self.names)
        if partitions is None:
            return range(count)

        chosen = sorted(set(partitions))
        for number in chosen:
            whole = isinstance(number, int) and not isinstance(number, bool)
            if not whole or not 0 <= number < count:
                raise InvalidInput("partitions", f"whole numbers from 0 to {count - 1}")
        if not chosen:
            raise InvalidInput("partitions", "one at least")
        return chosen


def _topic_names(given: Sequence[str]) -> tuple[str, ...]:
    """Return the names of partitions' topics if they are valid."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidInput("partitions", f"1 to {MAX_PARTITIONS:,}, or a list of topics' names")
    try:
        names = tuple(check_topic(name) for name in given)
    except InvalidInput as error:
        raise InvalidInput("partitions", f"topics' names, each {error.expected}") from None
    if not 1 <= len(names) <= MAX_PARTITIONS or len(set(names)) < len(names):
        raise InvalidInput("partitions", f"1 to {MAX_PARTITIONS:,} names, each once")
    return names
