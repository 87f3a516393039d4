"""The sweep: checks the shards that the index lists as due.

It enqueues visits of overdue ones, and lets messages of pulled topics expire.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Final, TypeVar

from fairbox.dispatch.parallel import Run, one_by_one
from fairbox.dispatch.ports import OVERDUE_MS, Doorbell, Doorbells
from fairbox.dispatch.walks import AHEAD_MS, ONLY_LATER, next_delayed
from fairbox.errors import NewerVersion
from fairbox.model.clock import Clock, milliseconds
from fairbox.model.ids import sent_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fairbox.dispatch.maintenance.expiry import Expiry
    from fairbox.model.messages import Shard
    from fairbox.tables.shard_rows import ShardRow
    from fairbox.tables.tables import Tables

_T = TypeVar("_T")

PERIOD_SECONDS: Final = 60
"""Time between the begins of two runs."""
HEADS_A_SECOND: Final = 1000
"""Shards checked a second at most: 500 RRU/s for heads, twice as many where both lanes are read."""
MAX_LISTED: Final = 100_000
"""Rows of the index that a run holds: the oldest of each bucket; the next run lists the rest."""
EXPIRY_SECONDS: Final = 10
"""The end of a run that is left for messages to expire, where some may."""
_CHUNK: Final = 160
_DOORBELLS_A_CALL: Final = 10


@dataclass(slots=True)
class SweepReport:
    """The result of a sweep.

    Attributes:
        looked: shards checked.
        rung: doorbells rung.
        unfinished: its time ran out.
        newer: shards whose row only a newer release can read.
        remaining: shards that are due and were left to the next run.
        seconds_to_all: time until these are checked too, at the pace of this run; 0 without any.
        expired: messages of pulled topics that were removed after their retention, by topic.
        unexpired: shards whose messages are left to expire in the next run.
    """

    looked: int = 0
    rung: int = 0
    unfinished: bool = False
    newer: int = 0
    remaining: int = 0
    seconds_to_all: int = 0
    expired: dict[str, int] = field(default_factory=dict)
    unexpired: int = 0


class Sweep:
    """Enqueues visits of overdue shards.

    An idle sweep costs eight queries of the index (4 RRU), for any number of topics; each listed
    shard costs half a unit for its head. It writes nothing. Topics take turns, from a shard chosen
    by chance, and a run begins with the shards that the runs before did not reach; a new process
    does not know these, and checks some shards twice before others.

    Args:
        doorbells: enqueues visits.
        run: makes many independent calls; `one_by_one` or `in_threads`.
        expiry: removes messages after their topic's retention; None: nothing does.
    """

    def __init__(
        self,
        tables: Tables,
        doorbells: Doorbells,
        clock: Clock,
        *,
        run: Run = one_by_one,
        expiry: Expiry | None = None,
    ) -> None:
        self._tables = tables
        self._doorbells = doorbells
        self._clock = clock
        self._run = run
        self._expiry = expiry
        self._checked: set[Shard] = set()

    def run(self, *, deadline: float) -> SweepReport:
        """Check every shard whose check is due, until the deadline (seconds since 1970).

        Raises:
            FairboxError: the tables or the queue failed; the next sweep checks again.
        """
        report = SweepReport()
        now = milliseconds(self._clock)
        # over a minute ahead: a long delay that ends before the next run gets its doorbell now
        listed = self._tables.rows.listed(milliseconds(self._clock) + AHEAD_MS)
        rows = list(islice((r for r in listed if _due(r, now) or r.later > 0), MAX_LISTED))

        expiring: list[ShardRow] = []
        if rows:
            self._tables.topic_cache.refresh()  # not before: an idle sweep needs no topic
            rows, expiring = self._divided(rows, now)

        end = deadline - EXPIRY_SECONDS if expiring else deadline
        waiting = [row for row in rows if row.place not in self._checked]
        if not waiting:  # a new round
            self._checked.clear()
            waiting = rows

        order = iter(_fair(waiting, random.Random(int(self._clock.now()))))  # noqa: S311 - no secret
        while chunk := list(islice(order, _CHUNK)):
            began = self._clock.now()
            if began >= end:
                report.unfinished = True
                break
            self._check(chunk, report)
            left = len(waiting) - report.looked
            # an even pace leaves the tables' throughput to messages
            if left:
                spent = self._clock.now() - began
                self._clock.sleep(max(0.0, len(chunk) / HEADS_A_SECOND - spent))

        report.remaining = len(waiting) - report.looked
        if report.remaining:
            runs = ceil(report.remaining / max(1, report.looked))
            report.seconds_to_all = runs * PERIOD_SECONDS
        else:
            self._checked.clear()

        if expiring and self._expiry is not None:
            report.expired, report.unexpired = self._expiry.run(expiring, deadline=deadline)
        return report

    def _divided(self, rows: Sequence[ShardRow], now: int) -> tuple[list[ShardRow], list[ShardRow]]:
        """Return the rows of topics that the dispatcher delivers, and rows with a due expiry."""
        names = sorted({row.topic for row in rows})  # neighbours are read together
        topics = {name: self._tables.topic_cache.get(name) for name in names}
        pushed = [row for row in rows if (topic := topics[row.topic]) and topic.pushed]
        expiring = [
            row
            for row in rows
            if (topic := topics[row.topic]) and topic.kept_ms is not None and _due(row, now)
        ]
        return pushed, expiring

    def _check(self, rows: Sequence[ShardRow], report: SweepReport) -> None:
        """Check shards at the same time, and enqueue visits of the overdue ones, ten a call."""
        overdue: list[Doorbell] = []
        ahead: list[Doorbell] = []
        newer: list[ShardRow] = []

        def check(row: ShardRow) -> None:
            now = milliseconds(self._clock)
            if row.later > 0 and (due := next_delayed(self._tables, row.place, now)) is not None:
                ahead.append(Doorbell(*row.place, not_before=due, after=ONLY_LATER))
            try:
                if _due(row, now) and self._overdue(row):
                    overdue.append(Doorbell(*row.place))
            except NewerVersion:  # its row: the functions of that release take care of it
                newer.append(row)

        self._run([partial(check, row) for row in rows])
        bells = [*overdue, *ahead]
        calls = range(0, len(bells), _DOORBELLS_A_CALL)
        self._run([partial(self._doorbells.ring, bells[n : n + _DOORBELLS_A_CALL]) for n in calls])

        # behind the doorbells: if they fail, the next run checks these shards again
        self._checked.update(row.place for row in rows)
        report.looked += len(rows)
        report.rung += len(overdue)
        report.newer += len(newer)

    def _overdue(self, row: ShardRow) -> bool:
        now = milliseconds(self._clock)
        # the shard row lies first in lane `ready`
        head = self._tables.lanes.page("ready", *row.place, limit=2, consistent=False)
        if (
            head.unreadable
            or head.newer
            or any(m.gone or now - sent_at(m.ref.id, now) > OVERDUE_MS for m in head.messages)
        ):
            return True

        doubtful = row.odd or (head.row is not None and head.row.recount is not None)
        if row.later == 0 and not doubtful:
            return False  # where a count may be wrong, messages may lie in either lane
        later = self._tables.lanes.page(
            "later", *row.place, limit=1, until_due=now, consistent=False
        )
        return bool(later.messages or later.unreadable or later.newer)


def _due(row: ShardRow, now: int) -> bool:
    return row.next_check is None or row.next_check <= now


def _fair(rows: Iterable[ShardRow], rng: random.Random) -> Iterator[ShardRow]:
    """Yield a shard of each topic in turn; begin in each topic, and with the topics, anywhere."""
    by_topic: dict[str, list[ShardRow]] = defaultdict(list)
    for row in rows:
        by_topic[row.topic].append(row)
    lines = [_rotated(line, rng) for line in _rotated(list(by_topic.values()), rng)]
    for turn in range(max(map(len, lines), default=0)):
        yield from (line[turn] for line in lines if turn < len(line))


def _rotated(line: Sequence[_T], rng: random.Random) -> list[_T]:
    start = rng.randrange(len(line)) if line else 0
    return [*line[start:], *line[:start]]
