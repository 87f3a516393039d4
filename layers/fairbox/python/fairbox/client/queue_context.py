"""The context that the parts of the queue share: an outbox, its tables, cached hint rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.client.dead_letter_claims import DeadLetterClaims
from fairbox.errors import TopicIsPushed, UnknownTopic
from fairbox.model.clock import milliseconds
from fairbox.queue.known_rows import HintCache
from fairbox.queue.ordered import OrderedReceive
from fairbox.queue.ordered_settlement import OrderedSettlement
from fairbox.queue.rotation import Rounds
from fairbox.queue.unordered import UnorderedReceive
from fairbox.queue.unordered_settlement import UnorderedSettlement, checks_of
from fairbox.tables.hints import RECEIVES_CHECK_MS
from fairbox.tables.message_edits import Edits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairbox.client.outbox import Outbox
    from fairbox.model.receipts import Receipt
    from fairbox.model.topic_states import TopicState


class QueueContext:
    """An open outbox, with the use cases of a queue over its tables."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.tables = tables = outbox.tables
        calls = tables.calls
        self.clock, self.rng = clock, rng = calls.clock, calls.rng
        self.hints = HintCache(self.clock)
        self.edits = Edits(tables)
        self.unordered = UnorderedReceive(tables, self.hints, clock, rng)
        self.unordered_settlement = UnorderedSettlement(tables, self.hints, clock, rng)
        self.ordered = OrderedReceive(tables, clock, rng)
        self.rounds = Rounds(clock, self.pulled)
        self.ordered_settlement = OrderedSettlement(tables, self.ordered.rows, clock, rng)
        self.dead_letters = DeadLetterClaims(outbox)

    @property
    def now(self) -> int:
        """The time in milliseconds since 1970 UTC."""
        return milliseconds(self.clock)

    def topic(self, name: str) -> TopicState:
        """Return a topic as it stood at most a second ago.

        Raises:
            UnknownTopic: there is no such topic.
        """
        self.tables.topic_cache.refresh()
        topic = self.tables.topic_cache.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def pulled(self, name: str) -> TopicState:
        """Return a pulled topic as it stood at most a second ago.

        Raises:
            UnknownTopic: there is no such topic.
            TopicIsPushed: the topic has subscriptions.
        """
        topic = self.topic(name)
        if topic.pushed:
            raise TopicIsPushed(name)
        return topic

    def settlement(self, receipt: Receipt) -> UnorderedSettlement | OrderedSettlement:
        """Return the use case that settles the claim of a receipt."""
        return self.ordered_settlement if receipt.place == "held" else self.unordered_settlement

    def announce(self, due: Iterable[tuple[str, int, int, int]]) -> None:
        """Make receives scan these shards from their heads when they are due, not a minute later.

        Args:
            due: topic, epoch, shard and milliseconds since 1970 UTC; a time at least a minute
                ahead needs no announcement.
        """
        bound = self.now + RECEIVES_CHECK_MS
        soon = [place for place in due if place[3] < bound]
        for (topic, epoch), checks in checks_of(soon).items():
            for shard in checks:
                # this process's copy still has the later time
                self.hints.forget((topic, epoch, shard))
            self.tables.hints.lower_checks(topic, epoch, checks)


class QueuePart:
    """A part of `Queue`: methods over the shared context, and no state of its own."""

    outbox: Outbox
    _context: QueueContext

    def _open(self, context: QueueContext) -> None:
        self._context = context
        self.outbox = context.outbox
