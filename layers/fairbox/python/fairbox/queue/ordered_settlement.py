"""Settlement of claims in shard rows: acknowledged, given back, released, extended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.burials import bury_marked
from fairbox.errors import StaleReceipt, Unavailable
from fairbox.model.clock import milliseconds
from fairbox.model.swap import swap
from fairbox.model.topics import RetryPolicy
from fairbox.queue.claims import dying, failed
from fairbox.tables.key_claims import KeyClaim
from fairbox.tables.keys import message_key
from fairbox.tables.stored_messages import StoredMessage

if TYPE_CHECKING:
    from random import Random

    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef, Shard
    from fairbox.model.receipts import Receipt
    from fairbox.queue.known_rows import KnownRows
    from fairbox.tables.key_claims import KeyClaims
    from fairbox.tables.tables import Tables

Change = Callable[[KeyClaim, Sequence[int]], tuple[KeyClaim, Sequence[int]]]
"""A change of an entry, and the places among its claimed messages for which it was made."""
_CAS_TRIES: Final = 12


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
