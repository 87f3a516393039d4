"""The sweep: checks the shards that the index lists as due, and enqueues visits of overdue ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairbox.dispatch.ports import OVERDUE_MS, Doorbell
from fairbox.errors import NewerVersion
from fairbox.model.clock import milliseconds
from fairbox.model.ids import time_of

if TYPE_CHECKING:
    from fairbox.dispatch.ports import Doorbells, ShardPage, Store
    from fairbox.model.clock import Clock
    from fairbox.model.stored_messages import ShardRow


@dataclass(slots=True)
class SweepReport:
    """The result of a sweep.

    Attributes:
        looked: shards checked.
        rung: doorbells rung.
        unfinished: its time ran out.
        newer: shards whose row only a newer release can read.
    """

    looked: int = 0
    rung: int = 0
    unfinished: bool = False
    newer: int = 0


class Sweep:
    """Enqueues visits of overdue shards.

    An idle sweep costs the two queries of the index, whatever the number of topics; each listed
    shard costs half a unit for its head. It writes nothing.
    """

    def __init__(self, store: Store, doorbells: Doorbells, clock: Clock) -> None:
        self._store = store
        self._doorbells = doorbells
        self._clock = clock

    def run(self, *, deadline: float) -> SweepReport:
        """Check every shard whose check is due, until the deadline (seconds since 1970).

        Raises:
            FairboxError: the tables or the queue failed; the next sweep checks again.
        """
        report = SweepReport()
        for number, row in enumerate(self._store.due_shards()):
            if number == 0:
                self._store.refresh()  # not before: an idle sweep needs no topic
            if self._clock.now() >= deadline:
                report.unfinished = True
                break
            topic = self._store.topic(row.topic)
            if topic is None or not topic.pushed:
                continue
            report.looked += 1
            try:
                overdue = self._overdue(row)
            except NewerVersion:  # its row: the functions of that release take care of it
                report.newer += 1
                continue
            if overdue:
                self._doorbells.ring([Doorbell(row.topic, row.epoch, row.shard)])
                report.rung += 1
        return report

    def _overdue(self, row: ShardRow) -> bool:
        now = milliseconds(self._clock)
        head = self._head("ready", row)
        if (
            head.unreadable
            or head.newer
            or any(m.gone or now - time_of(m.ref.id) > OVERDUE_MS for m in head.messages)
        ):
            return True
        doubtful = row.odd or (head.row is not None and head.row.recount is not None)
        if row.later == 0 and not doubtful:
            return False  # where a count may be wrong, messages may lie in either lane
        later = self._head("later", row, until_due=now)
        return bool(later.messages or later.unreadable or later.newer)

    def _head(self, lane: str, row: ShardRow, until_due: int | None = None) -> ShardPage:
        return self._store.read_lane(
            "later" if lane == "later" else "ready",
            row.topic,
            row.epoch,
            row.shard,
            limit=2 if lane == "ready" else 1,  # the shard row lies first in lane `ready`
            until_due=until_due,
            consistent=False,
        )
