"""Settlement of claims, in place or in shard rows: acknowledged, given back, released, extended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.burials import bury_marked
from fairbox.errors import StaleReceipt, Unavailable
from fairbox.model.clock import Clock, milliseconds
from fairbox.model.swap import swap
from fairbox.model.topics import RetryPolicy
from fairbox.queue.claims import dying, failed
from fairbox.tables.key_claims import KeyClaim, KeyClaims
from fairbox.tables.keys import message_key
from fairbox.tables.segments import segments_of_refs
from fairbox.tables.stored_messages import Claim, StoredMessage

if TYPE_CHECKING:
    from random import Random

    from fairbox.model.messages import MessageRef, Shard
    from fairbox.model.receipts import Receipt
    from fairbox.queue.known_rows import HintCache, KnownRows
    from fairbox.tables.tables import Tables

Change = Callable[[KeyClaim, Sequence[int]], tuple[KeyClaim, Sequence[int]]]
"""A change of an entry, and the places among its claimed messages for which it was made."""
_CAS_TRIES: Final = 12


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


class OrderedSettlement:
    """Ends or prolongs claims on ordered topics.

    Args:
        rows: the rows as this process knows them: they save a read if no other wrote since.
        clock, rng: time, and jitter.
    """

    def __init__(self, tables: Tables, rows: KnownRows, clock: Clock, rng: Random) -> None:
        self._tables = tables
        self._rows = rows
        self._clock = clock
        self._rng = rng

    def ack(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Acknowledge messages: one write a shard and one a message; return the stale receipts.

        The row is marked, then the messages are deleted; the row's next write drops the marks. A
        receive finishes the work of a crash between the two. A deleted message counts as
        acknowledged. A message is not acknowledged before those of its key that were received
        before it: its receipt counts as stale.
        """
        now = milliseconds(self._clock)
        lost: list[Receipt] = []
        for shard, mine in _by_shard(receipts).items():
            left = self._change(shard, mine, lambda e, places: _acked(e, places, now))
            lost += self._not_acked(shard, left) if left else []

        done = [r.ref for r in receipts if r not in lost]
        if done:
            self._tables.lanes.delete_keys([message_key(ref) for ref in done])
            self._rows.delete([ref.id for ref in done])

        there = (
            {m.ref for m in self._tables.lanes.read([r.ref for r in lost])[0]} if lost else set()
        )
        now = milliseconds(self._clock)  # the time-out may have passed in the middle of this
        return [r for r in lost if r.ref in there or r.until <= now]

    def _not_acked(self, shard: Shard, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Return the receipts that no earlier call has marked."""
        row = self._tables.key_claims.get(shard)
        return [
            receipt
            for receipt in receipts
            if not any(e.acked_by(receipt.ref.id, receipt.token) for e in row.entries)
        ]

    def release(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Give messages back uncounted (1 WRU a shard); return the stale receipts.

        Those of the same key that were received behind them go back too.
        """
        now = milliseconds(self._clock)
        lost: list[Receipt] = []
        for shard, mine in _by_shard(receipts).items():
            lost += self._change(shard, mine, lambda e, places: _released(e, places, now))
        return lost

    def extend(self, receipts: Sequence[Receipt], visibility: int) -> list[Receipt]:
        """Hold messages for so many milliseconds from now (1 WRU a KB of a shard's row).

        Messages of one key that were received together end together: one of them ends no sooner
        than it did.

        Returns:
            The stale receipts.
        """
        until = milliseconds(self._clock) + visibility
        lost: list[Receipt] = []
        for shard, mine in _by_shard(receipts).items():
            lost += self._change(shard, mine, lambda e, places: (_extended(e, until), places))
        return lost

    def fail(self, receipt: Receipt, delay: int | None, reason: str, *, dead: bool = False) -> None:
        """Give a message back with a reason (2 WRU, 2 RRU), or bury it (6 WRU).

        Its key waits with it. See `UnorderedSettlement.fail`.
        """
        self._tables.topic_cache.refresh()
        ref, shard = receipt.ref, receipt.ref.place
        topic = self._tables.topic_cache.get(ref.topic)
        retry = topic.topic.retry if topic is not None else RetryPolicy()

        for _ in range(_CAS_TRIES):
            row = self._tables.key_claims.get(shard)
            entry = row.entry(ref.id)
            if entry is None or not entry.claimed_by(ref.id, receipt.token):
                raise StaleReceipt([str(receipt)], [receipt.ref])

            now = milliseconds(self._clock)
            # the entry counts the receives of its first message; those behind came but once
            count = entry.count if entry.id == ref.id else 1
            if dead or count >= retry.max_attempts:
                reason = reason or "given back without a reason"
                if self._bury(row, entry, ref, reason):
                    return
                continue

            wait = retry.delay(count, self._rng) * 1000 if delay is None else delay
            lost = self._change(shard, [receipt], _waiting(now + round(wait)))
            if lost:
                raise StaleReceipt([str(receipt)], [receipt.ref])
            self._remember(ref, count, now, reason)
            return

        raise Unavailable("update_item", "the shard is being changed by others")

    def _bury(self, row: KeyClaims, entry: KeyClaim, ref: MessageRef, reason: str) -> bool:
        """Bury a message, its claim with it (4 WRU); return whether both were as read."""
        found = [m for m in self._tables.lanes.read([ref])[0] if m.gone is None]
        now = milliseconds(self._clock)
        changed = row.change(entry, entry.forget(ref.id, now))
        self._rows.forget(ref.place)
        if not found:  # cancelled or purged in the meantime: only the claim is left
            return self._tables.key_claims.write(ref.place, changed, row.version) is None

        dead = dying(found[0], entry.receives_of(ref.id), now, reason)
        if not self._tables.key_claims.write_with(
            self._tables.claims.save_action(dead, found[0]), ref.place, changed, row.version
        ):
            return False
        bury_marked(self._tables, dead)
        return True

    def _remember(self, ref: MessageRef, attempt: int, at: int, reason: str) -> None:
        """Write a failure down with its message, unless others keep changing it (1 WRU)."""

        def failing(stored: StoredMessage) -> StoredMessage:
            if stored.gone:
                return stored
            return replace(stored, states=failed(stored, attempt, at, reason))

        def write(after: StoredMessage, before: StoredMessage) -> StoredMessage | None:
            saved = self._tables.claims.save(after, before)
            return saved if isinstance(saved, StoredMessage) else None

        for stored in self._tables.lanes.read([ref])[0]:
            swap(stored, failing, write, _CAS_TRIES)

    def _change(self, shard: Shard, receipts: Sequence[Receipt], change: Change) -> list[Receipt]:
        """Change the entries that receipts hold, in one write; return receipts that hold none."""
        known = self._rows.take(shard)
        row = known or self._tables.key_claims.get(shard)

        for attempt in range(_CAS_TRIES):
            changed, lost = _changed(row, receipts, change)
            if known is not None and lost:
                known, row = None, self._tables.key_claims.get(shard)  # the copy may be old
                continue
            if len(lost) == len(receipts):
                return lost

            other = self._tables.key_claims.write(shard, changed, row.version)
            if other is None:
                self._rows.keep(shard, replace(changed, version=row.version + 1))
                return lost
            if {e for e in changed.entries if e not in row.entries} <= set(other.entries):
                return lost  # ours stands, its answer was lost, and others wrote since
            known, row = None, other
            self._clock.sleep(self._rng.random() * min(0.2, 0.005 * 2.0**attempt))

        raise Unavailable("update_item", "the shard is being changed by others")


def _changed(
    row: KeyClaims, receipts: Sequence[Receipt], change: Change
) -> tuple[KeyClaims, list[Receipt]]:
    """Return a row with the entries changed that receipts hold, and the receipts that hold none."""
    of_id = {i: entry for entry in row.entries for i in entry.claimed}
    valid: dict[KeyClaim, dict[int, Receipt]] = defaultdict(dict)
    lost: list[Receipt] = []
    for receipt in receipts:
        entry = of_id.get(receipt.ref.id)
        if entry is None or not entry.claimed_by(receipt.ref.id, receipt.token):
            lost.append(receipt)
        else:
            valid[entry][entry.claimed.index(receipt.ref.id)] = receipt

    after: dict[KeyClaim, KeyClaim] = {}
    for entry, mine in valid.items():
        after[entry], done = change(entry, sorted(mine))
        lost += [receipt for place, receipt in mine.items() if place not in done]
    entries = tuple(after.get(entry, entry) for entry in row.entries)
    return replace(row, entries=entries), lost


def _acked(entry: KeyClaim, places: Sequence[int], now: int) -> tuple[KeyClaim, Sequence[int]]:
    """Acknowledge the messages of these places, up to the first that is not among them."""
    number = next((n for n, place in enumerate(places) if n != place), len(places))
    return (entry.ack(number, now) if number else entry), range(number)


def _released(entry: KeyClaim, places: Sequence[int], now: int) -> tuple[KeyClaim, Sequence[int]]:
    count = entry.count - 1 if places[0] == 0 else 0
    return entry.cut(places[0], now, count), places


def _waiting(until: int) -> Change:
    """Give the first of the messages back, to wait until then (ms)."""
    return lambda entry, places: (
        entry.cut(places[0], until, 1 if places[0] else entry.count),
        places,
    )


def _extended(entry: KeyClaim, until: int) -> KeyClaim:
    return replace(entry, until=max(until, entry.until) if entry.run else until)


def _by_shard(receipts: Sequence[Receipt]) -> dict[Shard, list[Receipt]]:
    shards: dict[Shard, list[Receipt]] = defaultdict(list)
    for receipt in receipts:
        shards[receipt.ref.place].append(receipt)
    return shards


def checks_of(refs: Sequence[tuple[str, int, int, int]]) -> dict[tuple[str, int], dict[int, int]]:
    """Return by topic and epoch when to check each shard, from (topic, epoch, shard, ms)."""
    checks: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for topic, epoch, shard, due in refs:
        there = checks[topic, epoch].get(shard)
        checks[topic, epoch][shard] = due if there is None else min(due, there)
    return checks
