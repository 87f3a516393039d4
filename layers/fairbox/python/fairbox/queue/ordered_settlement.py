"""Settlement of claims in shard rows: acknowledged, given back, released, extended."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.tombstones import bury_marked
from fairbox.errors import StaleReceipt, Unavailable
from fairbox.model.clock import milliseconds
from fairbox.model.stored_messages import StoredMessage
from fairbox.model.topics import RetryPolicy
from fairbox.queue.attempts import dying, failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from fairbox.model.clock import Clock
    from fairbox.model.key_claims import KeyClaim, KeyClaims
    from fairbox.model.messages import MessageRef
    from fairbox.model.receipts import Receipt
    from fairbox.queue.ports import KeyClaimStore, Shard

_CAS_TRIES: Final = 12


class OrderedSettlement:
    """Ends or prolongs claims on ordered topics.

    Args:
        store: the tables.
        rows: the rows as this process wrote them last: they save a read if no other wrote since.
        clock, rng: time, and jitter.
    """

    def __init__(
        self, store: KeyClaimStore, rows: dict[Shard, KeyClaims], clock: Clock, rng: Random
    ) -> None:
        self._store = store
        self._rows = rows
        self._clock = clock
        self._rng = rng

    def ack(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Acknowledge messages: one write a shard and one a message; return the stale receipts.

        The row is marked, then the messages are deleted; the row's next write drops the marks. A
        receive finishes the work of a crash between the two. A deleted message counts as
        acknowledged.
        """
        now = milliseconds(self._clock)
        lost: list[Receipt] = []
        for shard, mine in _by_shard(receipts).items():
            left = self._change(shard, mine, lambda e: replace(e, state="acked", until=now))
            lost += self._not_acked(shard, left) if left else []
        done = [r.ref for r in receipts if r not in lost]
        if done:
            self._store.delete_refs(done)
        there = {m.ref for m in self._store.read([r.ref for r in lost])[0]} if lost else set()
        now = milliseconds(self._clock)  # the time-out may have passed in the middle of this
        return [r for r in lost if r.ref in there or r.until <= now]

    def _not_acked(self, shard: Shard, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Return the receipts that no earlier call has marked."""
        row = self._store.held(shard)
        acked = {(e.id, e.token) for e in row.entries if e.state == "acked"}
        return [r for r in receipts if (r.ref.id, r.token) not in acked]

    def release(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Give messages back uncounted (1 WRU a shard); return the stale receipts."""
        now = milliseconds(self._clock)

        def waiting(entry: KeyClaim) -> KeyClaim:
            return replace(entry, state="waiting", until=now, count=entry.count - 1)

        lost: list[Receipt] = []
        for shard, mine in _by_shard(receipts).items():
            lost += self._change(shard, mine, waiting)
        return lost

    def extend(self, receipts: Sequence[Receipt], visibility: int) -> list[Receipt]:
        """Hold messages for so many milliseconds from now (1 WRU a KB of a shard's row).

        Returns:
            The stale receipts.
        """
        until = milliseconds(self._clock) + visibility
        lost: list[Receipt] = []
        for shard, mine in _by_shard(receipts).items():
            lost += self._change(shard, mine, lambda e: replace(e, until=until))
        return lost

    def fail(self, receipt: Receipt, delay: int | None, reason: str, *, dead: bool = False) -> None:
        """Give a message back with a reason (2 WRU, 2 RRU), or bury it (6 WRU).

        Its key waits with it. See `UnorderedSettlement.fail`.
        """
        self._store.refresh()
        ref, shard = receipt.ref, _shard(receipt.ref)
        topic = self._store.topic(ref.topic)
        retry = topic.topic.retry if topic is not None else RetryPolicy()
        for _ in range(_CAS_TRIES):
            row = self._store.held(shard)
            entry = row.entry(ref.id)
            if entry is None or not entry.held_by(receipt.token):
                raise StaleReceipt([str(receipt)], [receipt.ref])
            now = milliseconds(self._clock)
            if dead or entry.count >= retry.max_attempts:
                reason = reason or "given back without a reason"
                if self._bury(row, entry, ref, reason):
                    return
                continue
            wait = retry.delay(entry.count, self._rng) * 1000 if delay is None else delay
            lost = self._change(shard, [receipt], _waiting(now + round(wait)))
            if lost:
                raise StaleReceipt([str(receipt)], [receipt.ref])
            self._remember(ref, entry.count, now, reason)
            return
        raise Unavailable("update_item", "the shard is being changed by others")

    def _bury(self, row: KeyClaims, entry: KeyClaim, ref: MessageRef, reason: str) -> bool:
        """Bury a message, its claim with it (4 WRU); return whether both were as read."""
        found = [m for m in self._store.read([ref])[0] if m.gone is None]
        now = milliseconds(self._clock)
        changed = row.without(entry, now)
        self._rows.pop(_shard(ref), None)
        if not found:  # cancelled or purged in the meantime: only the claim is left
            return self._store.write_held(_shard(ref), changed, row.version) is None
        dead = dying(found[0], entry.count, now, reason)
        if not self._store.save_and_hold(dead, found[0], _shard(ref), changed, row.version):
            return False
        bury_marked(self._store, dead)
        return True

    def _remember(self, ref: MessageRef, attempt: int, at: int, reason: str) -> None:
        """Write a failure down with its message, unless others keep changing it (1 WRU)."""
        found = self._store.read([ref])[0]
        for _ in range(_CAS_TRIES):
            if not found or found[0].gone:
                return
            after = replace(found[0], states=failed(found[0], attempt, at, reason))
            saved = self._store.save_claimed(after, found[0])
            if not isinstance(saved, StoredMessage):
                return
            found = [saved]

    def _change(
        self, shard: Shard, receipts: Sequence[Receipt], change: Callable[[KeyClaim], KeyClaim]
    ) -> list[Receipt]:
        """Change the entries that receipts hold, in one write; return those that hold none."""
        known = self._rows.pop(shard, None)
        row = known or self._store.held(shard)
        for attempt in range(_CAS_TRIES):
            held, lost = _sort(row, receipts)
            if known is not None and lost:
                known, row = None, self._store.held(shard)  # the copy may be old
                continue
            ids = {r.ref.id for r in held}
            if not ids:
                return lost
            entries = tuple(change(e) if e.id in ids else e for e in row.entries)
            changed = replace(row, entries=entries)
            other = self._store.write_held(shard, changed, row.version)
            if other is None:
                self._rows[shard] = replace(changed, version=row.version + 1)
                return lost
            if all(change(e) in other.entries for e in row.entries if e.id in ids):
                return lost  # ours stands, its answer was lost, and others wrote since
            known, row = None, other
            self._clock.sleep(self._rng.random() * min(0.2, 0.005 * 2.0**attempt))
        raise Unavailable("update_item", "the shard is being changed by others")


def _sort(row: KeyClaims, receipts: Sequence[Receipt]) -> tuple[list[Receipt], list[Receipt]]:
    """Return the receipts that hold their messages, and those that do not."""
    held: list[Receipt] = []
    lost: list[Receipt] = []
    for receipt in receipts:
        entry = row.entry(receipt.ref.id)
        holds = entry is not None and entry.held_by(receipt.token)
        (held if holds else lost).append(receipt)
    return held, lost


def _waiting(until: int) -> Callable[[KeyClaim], KeyClaim]:
    return lambda entry: replace(entry, state="waiting", until=until)


def _shard(ref: MessageRef) -> Shard:
    return ref.topic, ref.epoch, ref.shard


def _by_shard(receipts: Sequence[Receipt]) -> dict[Shard, list[Receipt]]:
    shards: dict[Shard, list[Receipt]] = defaultdict(list)
    for receipt in receipts:
        shards[_shard(receipt.ref)].append(receipt)
    return shards
