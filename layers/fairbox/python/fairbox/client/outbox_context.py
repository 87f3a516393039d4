"""The context that the parts of the outbox share: tables, topics, bodies, doorbells."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fairbox.client.outstanding_limits import OutstandingLimits
from fairbox.dispatch.ports import Doorbell
from fairbox.errors import FairboxError, UnknownTopic
from fairbox.model.clock import calls_until, check_seconds, milliseconds
from fairbox.tables.message_inserts import MessageInserts
from fairbox.tables.topic_cache import ProducerTopics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.dispatch.ports import Doorbells
    from fairbox.model.messages import MessageRef
    from fairbox.model.topic_states import TopicState
    from fairbox.model.topics import Topic
    from fairbox.tables.tables import Tables


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
        self.topics = ProducerTopics(tables.topics, self.clock)
        self.limits = OutstandingLimits(tables.rows, self.clock)
        self.inserts = MessageInserts(
            tables.calls, outbox=tables.outbox, deliveries=tables.deliveries, bodies=tables.bodies
        )
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
        """Return a topic as it stands now, past all copies.

        Raises:
            UnknownTopic: there is none of this name.
        """
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
