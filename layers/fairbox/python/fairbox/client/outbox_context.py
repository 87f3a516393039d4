"""The context that the parts of the outbox share: tables, topics, bodies, doorbells, limits."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.ports import Doorbell, Doorbells
from fairbox.errors import FairboxError, TopicFull, UnknownTopic
from fairbox.model.clock import Clock, calls_until, check_seconds, milliseconds
from fairbox.tables.message_inserts import MessageInserts
from fairbox.tables.topic_cache import ProducerTopics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairbox.model.messages import MessageRef
    from fairbox.model.topic_states import TopicState
    from fairbox.model.topics import Topic
    from fairbox.tables.shard_rows import ShardRows
    from fairbox.tables.tables import Tables

COPY_SECONDS: Final = 5.0
"""For how long a process counts on by itself before it reads a topic's counts again."""


class OutstandingLimits:
    """The messages of topics with a `max_outstanding`, as one process knows them.

    Shard rows are counted from the stream, half a minute late. Between two reads, a process adds
    the messages that it admits itself; it sees those of other processes with the next read.
    """

    def __init__(self, rows: ShardRows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}

    def admit(self, wanted: Iterable[tuple[TopicState, int]]) -> None:
        """Let so many messages of topics through, those of all or of none.

        Costs nothing where no topic has a limit, else 0.5 RRU a shard in five seconds.

        Raises:
            TopicFull: a topic has no room for its messages.
        """
        after: dict[str, tuple[float, int]] = {}
        for state, new in wanted:
            name, limit = state.topic.name, state.topic.max_outstanding
            if limit is None:
                continue
            at, count = self._copy(state)
            if count + new > limit:
                raise TopicFull(name, count, limit)
            after[name] = at, count + new
        # only now: a call that is refused for one topic counts for none
        self._counts |= after

    def _copy(self, state: TopicState) -> tuple[float, int]:
        """Return when a topic was counted, and its messages."""
        name, now = state.topic.name, self._clock.now()
        copy = self._counts.get(name)
        if copy is None or not 0 <= now - copy[0] < COPY_SECONDS:
            shards = [(name, *shard) for shard in state.shards()]
            copy = self._counts[name] = now, self._rows.outstanding(shards)
        return copy


class OutboxContext:
    """Open tables, with the stores beside them.

    Args:
        doorbells: enqueues visits; None: there is no doorbell queue.
        deadline: seconds for a call that publishes; None: only those of its tries.
    """

    def __init__(
        self,
        tables: Tables,
        doorbells: Doorbells | None = None,
        deadline: float | None = None,
    ) -> None:
        self.tables = tables
        self._deadline = deadline
        if deadline is not None:
            check_seconds(deadline, longest_call=tables.calls.longest_call)
        self.clock = tables.calls.clock
        self.topics = ProducerTopics(tables.topics.changes, tables.topics.near, self.clock)
        self.limits = OutstandingLimits(tables.rows, self.clock)
        self.inserts = MessageInserts(tables)
        self.doorbells = doorbells

    @property
    def now(self) -> int:
        """The time in milliseconds since 1970 UTC."""
        return milliseconds(self.clock)

    @contextmanager
    def ends_within(self, seconds: float | None) -> Iterator[None]:
        """End the calls of the block within so many seconds; None: the outbox's deadline, if any.

        Raises:
            InvalidInput: a single call may take over half of it.
        """
        seconds = self._deadline if seconds is None else seconds
        if seconds is None:
            yield
            return
        longest = self.tables.calls.longest_call
        check_seconds(seconds, longest_call=longest)
        # the last call begins early enough to end in time
        with calls_until(self.clock, self.clock.now() + seconds - longest):
            yield

    def topic(self, name: str) -> TopicState:
        """Return a topic as it stands now, past all copies; UnknownTopic where there is none."""
        state = self.tables.topics.load(name)
        if state is None:
            raise UnknownTopic(name)
        return state

    def create_topic(self, topic: Topic) -> TopicState:
        """Create a topic, or change it as far as it may be changed."""
        state = self.tables.topics.create(topic)
        self.topics.forget(topic.name)
        return state

    def visit(self, ref: MessageRef) -> None:
        """Enqueue a visit of a message's shard after a change that does not wake the relay.

        Without a doorbell queue, or when it cannot be reached, the sweep finds the message.
        """
        if self.doorbells is not None:
            with suppress(FairboxError):
                self.doorbells.ring([Doorbell(ref.topic, ref.epoch, ref.shard, (ref,), kept=True)])

    def visit_blocked(self, ref: MessageRef) -> None:
        """Enqueue a visit if the message is no longer dead and its key waited for it."""
        with suppress(FairboxError):  # the sweep finds the key
            if self.topics.get(ref.topic).topic.on_dead == "block":
                self.visit(ref)


class OutboxPart:
    """A part of `Outbox`: methods over the shared context, and no state of its own."""

    tables: Tables
    _context: OutboxContext

    def _open(self, context: OutboxContext) -> None:
        self._context = context
        self.tables = context.tables
