"""The context that the parts of the queue share: an outbox, its tables, cached rows, use cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from fairbox.client.purge import Purges
from fairbox.errors import FairboxError, TopicIsPushed, Unavailable, UnknownTopic
from fairbox.model.clock import milliseconds
from fairbox.model.receipts import TOKEN_BYTES, Receipt
from fairbox.model.receipts import Received
from fairbox.queue.known_rows import HintCache
from fairbox.queue.ordered import OrderedReceive
from fairbox.queue.ordered_settlement import OrderedSettlement
from fairbox.queue.rotation import Rounds
from fairbox.queue.unordered import UnorderedReceive
from fairbox.queue.unordered_settlement import UnorderedSettlement, checks_of
from fairbox.tables.dead_letters import read_dead
from fairbox.tables.hints import RECEIVES_CHECK_MS
from fairbox.tables.message_edits import Edits
from fairbox.tables.stored_messages import Claim

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairbox.client.outbox import Outbox
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.dead_letters import DeadLetter
    from fairbox.tables.stored_messages import StoredMessage


class DeadLetterClaims:
    """Receives the dead letters of an outbox, of pulled and pushed topics, and settles them."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._context = outbox._context  # noqa: SLF001 - a part over the same context
        self._dead = outbox.tables.dead
        self._rng = outbox.tables.calls.rng

    def receive(self, topic: TopicState, count: int, visibility: int) -> list[Received]:
        """Claim up to `count` dead letters of one shard, for so many milliseconds, oldest first."""
        failures: list[FairboxError] = []
        # receivers that begin at one time do not all begin at the first shard
        for epoch, shard in self._rng.sample(topic.shards(), len(topic.shards())):
            letters = self._dead.walk(topic.topic.name, epoch, shard, page=count)
            taken = (self._take(letter.stored, visibility, failures) for letter in letters)
            if found := list(islice(filter(None, taken), count)):
                return found
        if failures:
            raise failures[0]  # those that are left are free
        return []

    def _take(
        self, letter: StoredMessage | None, visibility: int, failures: list[FairboxError]
    ) -> Received | None:
        """Claim a dead letter (1 WRU a KB) unless it is unreadable, or another holds it."""
        now = self._context.now
        if letter is None or letter.claimed_until(now) is not None:
            return None

        try:
            message = self._outbox.fetch(letter).message
        except FairboxError as error:
            # told only if no other dead letter of the topic can be taken
            failures.append(error)
            return None

        count = 1 + (letter.claim.count if letter.claim else 0)
        token = self._rng.getrandbits(8 * TOKEN_BYTES).to_bytes(TOKEN_BYTES, "big")
        claim = Claim(count, now + visibility, token)
        if self._dead.claims.save(replace(letter, claim=claim), letter) != "saved":
            return None  # another was faster

        receipt = str(Receipt(letter.ref, "dead", token, claim.until))
        died = letter.pending or frozenset()
        return Received(message, receipt, count, claim.until, letter.reason, died)

    def ack(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Purge dead letters (1 RRU and 5 WRU each); return the stale receipts."""
        claimed = self._claimed(receipts)
        ends = Purges(self._outbox.tables, same_holder=True).purge(
            [d for d, _ in claimed.values()], "acknowledged"
        )
        purged = {r for r, end in zip(claimed, ends, strict=True) if end == "purged"}
        for receipt in purged:
            self._context.visit_blocked(receipt.ref)
        if "left" in ends:
            raise Unavailable("transact_write_items", "dead letters are being changed by others")
        return [receipt for receipt in receipts if receipt not in purged]

    def hold(self, receipts: Sequence[Receipt], ms: int, less: int | None = None) -> list[Receipt]:
        """End claims in so many milliseconds (1 RRU, and 1 WRU a KB, each); return stale receipts.

        With `less` nobody holds them from now on, and so many receives do not count.
        """
        until = self._context.now + ms
        claimed = self._claimed(receipts)
        stale = [receipt for receipt in receipts if receipt not in claimed]
        for receipt, (_, letter) in claimed.items():
            count = (letter.claim.count if letter.claim else 0) - (less or 0)
            claim = Claim(count, until, receipt.token if less is None else b"")
            after = replace(letter, claim=claim)
            if after != letter and self._dead.claims.save(after, letter) != "saved":
                stale += self.hold([receipt], ms, less)  # it has changed
        return stale

    def _claimed(
        self, receipts: Sequence[Receipt]
    ) -> dict[Receipt, tuple[DeadLetter, StoredMessage]]:
        """Return the dead letters that receipts hold."""
        letters = map(read_dead, self._dead.items([receipt.ref for receipt in receipts]))
        found = {(m.ref, m.holder): (one, m) for one in letters if (m := one.stored) is not None}
        return {r: found[r.ref, r.token] for r in receipts if (r.ref, r.token) in found}


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
