"""Receiving from ordered topics: the first messages of keys, claimed in the shard's row.

The messages are not touched. One write a shard claims all that a call takes, under the version of
the row that was read before the messages were: nothing that was claimed, acknowledged or deleted in
between can be taken for free.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.burials import bury_marked
from fairbox.dispatch.ordered.barriers import ResizeBarrier
from fairbox.model.clock import Clock, milliseconds
from fairbox.queue.claims import dying, new_token
from fairbox.queue.known_rows import KnownRows
from fairbox.queue.models import Taken
from fairbox.queue.ordered_plan import Ask, Plan
from fairbox.queue.ordered_reader import ShardRead, ShardReader, Spent, Wanted, Window
from fairbox.queue.rotation import Place, ShardRotation
from fairbox.queue.waiting_keys import WaitingKeys
from fairbox.tables.stored_messages import Claim, StoredMessage

if TYPE_CHECKING:
    from random import Random

    from fairbox.model.messages import Shard
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.key_claims import KeyClaim, KeyClaims
    from fairbox.tables.tables import Tables

logger = logging.getLogger("fairbox.queue")
_SHARDS_A_CALL: Final = 8
_CAS_TRIES: Final = 4
_BLOCKED_MS: Final = 1_000  # how long a shard is not read while it waits for older ones
_ENOUGH_UNITS: Final = 4  # read by a receive that found nothing; the next goes on with other shards
_TOLD_MS: Final = 60_000  # how often a full row is told of


class OrderedReceive:
    """Receives from ordered topics.

    Attributes:
        rows: the rows that this process knows.
        waiting: the keys that wait beside them.
    """

    def __init__(self, tables: Tables, clock: Clock, rng: Random) -> None:
        self._tables = tables
        self._clock = clock
        self._rng = rng
        self._rotation = ShardRotation(rng, at_most=_SHARDS_A_CALL)
        self._barrier = ResizeBarrier(tables, clock)
        self._blocked: dict[Shard, int] = {}  # until when (ms) all of a shard waits for older ones
        self._told = 0  # when a full row was told of last (ms)
        self.rows = KnownRows(clock)
        self.waiting = WaitingKeys(tables, clock, rng)
        self._reader = ShardReader(tables, self.rows, self.waiting, clock)

    def receive(
        self, topic: TopicState, wanted: Wanted, left: set[Place] | None = None
    ) -> list[Taken]:
        """Claim messages of the next shard that has any; see `UnorderedReceive.receive`."""
        epoch, shards = self._rotation.next(topic, left)
        spent = Spent()
        for number, place in enumerate(shards, start=1):
            shard = topic.topic.name, epoch, place
            taken = self._from_shard(topic, shard, wanted, spent)
            if taken or number == len(shards) or spent.units >= _ENOUGH_UNITS:
                done = [(epoch, shard) for shard in shards[: number - bool(taken)]]
                self._rotation.visited(topic, (epoch, place), done, left)
                return taken
        return []

    def _from_shard(
        self, topic: TopicState, shard: Shard, wanted: Wanted, spent: Spent
    ) -> list[Taken]:
        if milliseconds(self._clock) < self._blocked.get(shard, 0):
            return []

        self._blocked.pop(shard, None)
        if self._reader.silent(shard, spent):
            return []

        for attempt in range(_CAS_TRIES):
            if attempt:
                # others write the same row: a random wait keeps them from meeting again
                self._clock.sleep(self._rng.random() * 0.005 * 2**attempt)

            row, window = self._row(shard, wanted, spent)
            if row is None:
                continue

            waits = self._barrier.waits(topic, shard, settled=row.settled)
            if waits.everything:
                now = milliseconds(self._clock)
                self._blocked[shard] = min(waits.again, now + _BLOCKED_MS)
                return []

            read = self._reader.read(shard, row, window, wanted, spent)
            exhausted = _exhausted(read, topic.topic.retry.max_attempts)
            if exhausted is not None:
                self.rows.forget(shard)
                self._bury(shard, row, exhausted, read.there[exhausted.id])
                continue

            until = read.now + wanted.visibility
            ask = Ask(wanted.count, wanted.per_key, until, new_token(self._rng), waits)
            plan = Plan(read, ask)
            if self._write(shard, plan, row.version):
                return [Taken(m, "held", token, count, until)
                        for m, count, token in plan.taken]  # fmt: skip
            if not (plan.taken or plan.moved):
                return []

        return []

    def _row(self, shard: Shard, wanted: Wanted, spent: Spent) -> tuple[KeyClaims | None, Window]:
        """Return a shard's row with its waiting keys where they belong; None: it has changed."""
        found, window = self._reader.row(shard, wanted.count, spent)
        row = self.waiting.tend(shard, found)
        if row is None:
            self.rows.forget(shard, shared=True)
        elif row is not found:
            self.rows.keep(shard, row)
        return row, window

    def _write(self, shard: Shard, plan: Plan, version: int) -> bool:
        """Write a plan; return whether its messages are claimed."""
        if plan.short:
            self._tell(shard)

        if plan.taken or plan.moved:
            # before the row: once its start is behind them, nobody else would find these messages
            for key, follower in plan.followed.items():
                self._tables.keys_aside.follow(shard, plan.row.aside.name, key, follower)
            other = self._tables.key_claims.write(shard, plan.row, version)
            if other is not None:
                self.rows.forget(shard, shared=True)
                return _all_claimed(other, plan)
            self.rows.keep(shard, replace(plan.row, version=version + 1))

        if plan.quiet:
            self.rows.silence(shard, plan.last)
        return bool(plan.taken)

    def _tell(self, shard: Shard) -> None:
        now = milliseconds(self._clock)
        if not self._told <= now < self._told + _TOLD_MS:
            self._told = now
            logger.warning(
                "Shard %s/%d/%d has as many messages in flight as its row holds: receives from it "
                "are short until some are settled.", *shard,
            )  # fmt: skip

    def _bury(self, shard: Shard, row: KeyClaims, entry: KeyClaim, stored: StoredMessage) -> None:
        """Bury a message after its last attempt, and remove its claim (4 WRU)."""
        token = entry.token if entry.state == "claimed" else b""
        claimed = replace(stored, claim=Claim(entry.count, entry.until, token))
        dead = replace(dying(claimed, entry.count, entry.until), claim=stored.claim)
        changed = row.change(entry, entry.forget(entry.id, milliseconds(self._clock)))
        if self._tables.key_claims.write_with(
            self._tables.claims.save_action(dead, stored), shard, changed, row.version
        ):
            bury_marked(self._tables, dead)


def _exhausted(read: ShardRead, attempts: int) -> KeyClaim | None:
    """Return an ended entry whose message was received as often as the topic lets it."""
    return next(
        (
            entry
            for entry in read.ended
            if entry.state != "acked" and entry.count >= attempts and entry.id in read.there
        ),
        None,
    )


def _all_claimed(row: KeyClaims, plan: Plan) -> bool:
    """Whether claims whose answer was lost were written, although others changed the row."""
    entries = ((row.entry(stored.ref.id), stored.ref.id, token) for stored, _, token in plan.taken)
    ours = [entry is not None and entry.claimed_by(i, token) for entry, i, token in entries]
    return bool(ours) and all(ours)
