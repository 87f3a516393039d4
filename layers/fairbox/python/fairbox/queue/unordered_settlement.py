"""Settlement of claims in place: acknowledged, given back, released, extended."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from fairbox.dispatch.burials import bury_marked
from fairbox.errors import StaleReceipt, Unavailable
from fairbox.model.clock import milliseconds
from fairbox.model.swap import swap
from fairbox.model.topics import RetryPolicy
from fairbox.queue.claims import dying, failed
from fairbox.tables.segments import segments_of_refs
from fairbox.tables.stored_messages import Claim, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef, Shard
    from fairbox.model.receipts import Receipt
    from fairbox.queue.known_rows import HintCache
    from fairbox.tables.tables import Tables


class UnorderedSettlement:
    """Ends or prolongs claims on unordered topics.

    Args:
        hints: cached hint rows: messages given back are found at once.
        clock, rng: time, and jitter of back-off.
    """

    def __init__(self, tables: Tables, hints: HintCache, clock: Clock, rng: Random) -> None:
        self._tables = tables
        self._hints = hints
        self._clock = clock
        self._rng = rng

    def ack(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Delete messages (1 WRU each); return the stale receipts.

        A deleted message counts as acknowledged. Messages of ended claims are read first (1 RRU
        each), because another consumer may have finished or buried them.
        """
        now = milliseconds(self._clock)
        late = [r for r in receipts if r.until <= now]
        lost: list[Receipt] = []
        if late:
            found = self._tables.lanes.read([r.ref for r in late])[0]
            tokens = {m.ref: m.claim.token for m in found if m.claim is not None}
            lost = [r for r in late if tokens.get(r.ref) != r.token]

        valid = [r for r in receipts if r not in lost]
        return lost + (self._tables.claims.delete(valid) if valid else [])

    def release(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Give messages back uncounted (1 WRU each, and 2 a shard); return the stale receipts."""
        now = milliseconds(self._clock)
        stale = self._tables.claims.release(receipts, now)
        self.come_back([r.ref for r in receipts if r not in stale], now)
        return stale

    def extend(self, receipts: Sequence[Receipt], visibility: int) -> list[Receipt]:
        """Hold messages for so many milliseconds from now; return the stale receipts.

        It costs 1 WRU each, and 2 a shard whose messages come back sooner than their receipts say.
        """
        until = milliseconds(self._clock) + visibility
        stale = self._tables.claims.extend(receipts, until)
        early = [r.ref for r in receipts if until < r.until and r not in stale]
        self.come_back(early, until)
        return stale

    def fail(self, receipt: Receipt, delay: int | None, reason: str, *, dead: bool = False) -> None:
        """Give a message back with a reason (3 WRU, 1 RRU), or bury it.

        Args:
            receipt: the message's receipt.
            delay: milliseconds until it may be received again; None: the topic's back-off.
            reason: the consumer's reason.
            dead: bury it, regardless of its attempts.

        Raises:
            StaleReceipt: it no longer holds the message.
            Unavailable: other processes kept changing the message.
        """
        self._tables.topic_cache.refresh()
        topic = self._tables.topic_cache.get(receipt.ref.topic)
        retry = topic.topic.retry if topic is not None else RetryPolicy()

        def decide(before: StoredMessage) -> StoredMessage:
            claim = before.claim or Claim(1, 0)
            now = milliseconds(self._clock)
            if dead or claim.count >= retry.max_attempts:
                return dying(before, claim.count, now, reason or "given back without a reason")
            wait = retry.delay(claim.count, self._rng) * 1000 if delay is None else delay
            states = failed(before, claim.count, now, reason)
            return replace(before, claim=Claim(claim.count, now + round(wait)), states=states)

        def write(after: StoredMessage, before: StoredMessage) -> StoredMessage | None:
            saved = self._tables.claims.save(after, before)
            if saved == "saved":
                return None
            return self._claimed(receipt, [saved] if isinstance(saved, StoredMessage) else [])

        after = swap(
            self._claimed(receipt, self._tables.lanes.read([receipt.ref])[0]), decide, write
        )
        if after is None:
            raise Unavailable("update_item", "the message is being changed by others")
        if after.gone:
            # by its mark it is dead: if the move fails, whoever reads it next finishes it
            bury_marked(self._tables, after)
        elif after.claim is not None:
            self.come_back([receipt.ref], after.claim.until)

    def _claimed(self, receipt: Receipt, found: Sequence[StoredMessage]) -> StoredMessage:
        for stored in found:
            if stored.gone is None and stored.claim and stored.claim.token == receipt.token:
                return stored
        raise StaleReceipt([str(receipt)], [receipt.ref])

    def come_back(self, refs: Sequence[MessageRef], until: int) -> None:
        """Let receives find messages at a time although hints are past them.

        It costs 2 WRU a shard, and 1 for each further segment.
        """
        shards: dict[Shard, list[MessageRef]] = defaultdict(list)
        for ref in refs:
            shards[ref.place].append(ref)
        for shard, members in shards.items():
            self._hints.forget(shard)
            self._tables.hints.come_back(shard, segments_of_refs(members, until))


def checks_of(refs: Sequence[tuple[str, int, int, int]]) -> dict[tuple[str, int], dict[int, int]]:
    """Return by topic and epoch when to check each shard, from (topic, epoch, shard, ms)."""
    checks: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for topic, epoch, shard, due in refs:
        there = checks[topic, epoch].get(shard)
        checks[topic, epoch][shard] = due if there is None else min(due, there)
    return checks
