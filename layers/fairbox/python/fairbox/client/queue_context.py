"""The context that the parts of the queue share: an outbox, its tables, cached rows, use cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from fairbox.client.purge import Purges
from fairbox.dispatch.burials import finish_marked
from fairbox.errors import FairboxError, MessagesNotFound, TopicIsPushed, Unavailable, UnknownTopic
from fairbox.model.clock import milliseconds
from fairbox.model.messages import MessageRef
from fairbox.model.receipts import TOKEN_BYTES, Receipt, Received
from fairbox.queue.claim_settlement import OrderedSettlement, UnorderedSettlement, checks_of
from fairbox.queue.claims import dying
from fairbox.queue.known_rows import HintCache
from fairbox.queue.ordered import OrderedReceive
from fairbox.queue.rotation import Rounds
from fairbox.queue.unordered import UnorderedReceive
from fairbox.tables.dead_letters import DeadLetter, read_dead
from fairbox.tables.hints import RECEIVES_CHECK_MS
from fairbox.tables.key_claims import KeyClaim, KeyClaims
from fairbox.tables.message_edits import Edits
from fairbox.tables.stored_messages import Claim, Gone, StoredMessage, key_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.client.outbox import Outbox
    from fairbox.model.topic_states import TopicState

Both = tuple[StoredMessage, KeyClaim]
"""A message, and the entry of its key in the row of its shard."""
Change = Callable[[StoredMessage, KeyClaim, int], Both]
"""Returns both as they shall be, of what they are at a time (ms)."""
_CAS_TRIES: Final = 12
_NO_ENTRY: Final = KeyClaim(b"", "", "waiting", 0, 0, b"")  # of an unordered topic or a free key


class SettlementByRef:
    """Settles messages whether consumers hold them or not; the holders' receipts are stale then."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context

    def settle(self, refs: MessageRef | Iterable[MessageRef], change: Change) -> None:
        """Change messages, each where it, or its shard's row, is as it was read.

        Raises:
            UnknownTopic, TopicIsPushed: nothing was changed.
            MessagesNotFound: some are not outstanding; the others are changed.
        """
        given = [refs] if isinstance(refs, MessageRef) else refs
        ordered = {ref: self._context.pulled(ref.topic).topic.ordering == "key" for ref in given}
        missing = [ref for ref in ordered if not self._settled(ref, change, ordered=ordered[ref])]
        if missing:
            raise MessagesNotFound(missing)

    def _settled(self, ref: MessageRef, change: Change, *, ordered: bool) -> bool:
        """Change one message; return whether it was outstanding."""
        tables = self._context.tables
        for _ in range(_CAS_TRIES):
            # the row first: an ack writes it, then deletes the message
            row = tables.key_claims.get((ref.topic, ref.epoch, ref.shard)) if ordered else None
            stored = next(iter(tables.lanes.read([ref])[0]), None)
            if stored is None:
                return False
            if stored.gone:
                finish_marked(tables, [stored])
                return False

            if row is not None and (row := self._with_key(stored, row)) is None:
                # the row has changed: both are read again
                continue
            entry = (row.of_key(key_digest(stored)) if row else None) or _NO_ENTRY
            if ref.id in entry.done:
                # it is acknowledged: only its delete has not been made yet
                return False

            before, both = (stored, entry), change(stored, entry, self._context.now)
            if both == before or self._write(before, both, row):
                self._finish(both[0])
                return True
        raise Unavailable("update_item", "the message is being changed by others")

    def _finish(self, after: StoredMessage) -> None:
        if after.gone:
            finish_marked(self._context.tables, [after])
        elif after.claim is not None and not after.claim.token:
            # also of one that came back before: the call may repeat one that failed here
            self._context.unordered_settlement.come_back([after.ref], self._context.now)

    def _with_key(self, stored: StoredMessage, row: KeyClaims) -> KeyClaims | None:
        """Return a row with a message's key in it, if that waits; None: the row has changed."""
        shard, key = (stored.ref.topic, stored.ref.epoch, stored.ref.shard), key_digest(stored)
        waiting = self._context.ordered.waiting
        return waiting.recall(shard, row, key) if waiting.among(shard, row, [key]) else row

    def _write(self, before: Both, after: Both, row: KeyClaims | None) -> bool:
        """Write a message, or its shard's row, or both; return whether they were as read."""
        tables, (stored, entry), ref = self._context.tables, before, before[0].ref
        if row is None:
            return tables.claims.save(after[0], stored) == "saved"
        shard, changed = (ref.topic, ref.epoch, ref.shard), row.change(entry, after[1])
        # whatever comes of the write, this process's copy of the row is out of date
        self._context.ordered.rows.forget(shard)
        if after[0] == stored:
            return tables.key_claims.write(shard, changed, row.version) is None
        return tables.key_claims.write_with(
            tables.claims.save_action(after[0], stored), shard, changed, row.version
        )


def given_back(stored: StoredMessage, entry: KeyClaim, now: int, *, reset: bool = False) -> Both:
    """Release a message at a time (ms), or end its wait; with `reset` no receive counts."""
    claim, ref = stored.claim, stored.ref
    if claim is not None and (reset or claim.until > now):
        # the receive of a holder is taken back; one that only waits has failed, which counts
        count = 0 if reset else claim.count - bool(claim.token)
        stored = replace(stored, claim=Claim(count, now))
    return stored, entry.forget(ref.id, now) if reset else entry.release(ref.id, now)


def leaving(stored: StoredMessage, entry: KeyClaim, now: int, gone: Gone, reason: str) -> Both:
    """Mark a message as leaving at a time (ms), and free its key."""
    count = stored.claim.count if stored.claim else entry.receives_of(stored.ref.id)
    if gone == "dead":
        marked = dying(stored, max(1, count), now, reason or "buried without a reason")
    else:
        marked = replace(stored, gone=gone, reason=reason)
    return marked, entry.forget(stored.ref.id, now)


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
        self.by_ref = SettlementByRef(self)

    @property
    def now(self) -> int:
        """The time in milliseconds since 1970 UTC."""
        return milliseconds(self.clock)

    def topic(self, name: str) -> TopicState:
        """Return a topic as it stood at most a second ago; UnknownTopic where there is none."""
        self.tables.topic_cache.refresh()
        topic = self.tables.topic_cache.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def pulled(self, name: str) -> TopicState:
        """Return a topic as `topic` does; TopicIsPushed where it has subscriptions."""
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
