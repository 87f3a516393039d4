"""Recounts: exact counts of a shard, however busy it is.

A recount reads the keys of a shard's lanes while messages come and go, and marking keeps the keys
that change meanwhile. Then an item passes through each lane: once marking has met it in the stream,
the kept changes reach beyond all that was read. The keys read, corrected by the newest state of
each changed key, are then the content of the lane at the row's sequence number. This is a fuzzy
snapshot with a log of changes, as databases take their checkpoints; decision 0012 has the proof.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.errors import FairboxError
from fairbox.model.clock import Clock, milliseconds
from fairbox.model.ids import time_of
from fairbox.tables.recounts import PARTS, Part, Recount, digest, fence_sk
from fairbox.tables.shard_rows import NEVER_MS, ShardRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.tables.tables import Tables

logger = logging.getLogger("fairbox")

UNITS_A_SECOND: Final = 200.0
FENCES_MS: Final = 3_600_000
"""Time after which a recount begins anew if marking has not met its fences: it may be past them."""
_TRIES: Final = 8
_LANES: Final[tuple[Part, ...]] = ("ready", "later")


@dataclass(slots=True)
class RecountReport:
    """The result of a run.

    Attributes:
        ended: recounts that came to their end.
        corrected: rows among them whose counts were wrong.
        waiting: shards whose recount goes on in the next run.
        units: read units used.
    """

    ended: int = 0
    corrected: int = 0
    waiting: int = 0
    units: float = 0.0


class Recounts:
    """Carries out the recounts that were asked for.

    It reads a shard once, consistently: 1 RRU for 4 KB, 200 RRU/s at most, and keeps nine bytes for
    each key. A recount goes on where the run before stopped, so a shard may have any size.

    Args:
        next_id: makes ids.
    """

    def __init__(self, tables: Tables, clock: Clock, next_id: Callable[[], str]) -> None:
        self._recounts = tables.recounts
        self._rows = tables.rows
        self._clock = clock
        self._next_id = next_id

    def run(self, *, deadline: float) -> RecountReport:
        """Begin, continue and end recounts until the deadline (seconds since 1970).

        A shard whose recount fails is logged, stays, and stops no other.

        Raises:
            FairboxError: the requests could not be read.
        """
        report = RecountReport()
        for recount in self._recounts.asked():
            report.waiting += 1
            if self._clock.now() >= deadline:
                continue
            try:
                self._go_on(recount, report, deadline)
            except FairboxError as error:
                logger.warning(
                    "a shard could not be recounted",
                    extra={"shard": "#".join(map(str, recount.place)), "error": str(error)},
                )
        return report

    def _go_on(self, recount: Recount, report: RecountReport, deadline: float) -> None:
        row = next(iter(self._rows.get_many([recount.place])), ShardRow(*recount.place))
        # marking keeps changes for the recount that the row names: without them nothing is exact
        if not recount.since or row.recount != recount.since:
            begun = self._begin(recount, row)
            if begun is None:
                return
            recount = begun

        while recount.part is not None:
            if self._clock.now() >= deadline:
                return
            recount = self._read(recount, report)

        if self._end(recount, report):
            report.ended += 1
            report.waiting -= 1
        elif milliseconds(self._clock) - time_of(recount.fences["ready"]) >= FENCES_MS:
            # a replayed batch took the row's sequence number past the fences, or they were lost
            self._begin(recount, row)

    def _begin(self, recount: Recount, row: ShardRow) -> Recount | None:
        """Let marking keep the changes from now on; None: the row has changed meanwhile."""
        # what an earlier try has gathered is of other sequence numbers
        self._recounts.forget(recount, done=False)
        # greater than each before: marks of two tries never mix, even if a clock goes back
        since = max(milliseconds(self._clock), recount.since + 1, (row.recount or 0) + 1)
        begun = Recount(*recount.place, since=since, purged=row.purged_dead)
        doubted = row.doubted(milliseconds(self._clock))
        if not self._rows.change(replace(doubted, recount=since), row):
            return None
        self._recounts.save(begun)
        return begun

    def _read(self, recount: Recount, report: RecountReport) -> Recount:
        """Read a page; behind the last, let fences into the lanes."""
        started = self._clock.now()
        after, units = self._recounts.read(recount)
        report.units += units
        self._clock.sleep(max(0.0, units / UNITS_A_SECOND - (self._clock.now() - started)))

        part = recount.part
        if not after:
            rest = PARTS[PARTS.index(part or "ready") + 1 :]
            part = rest[0] if rest else None
        recount = replace(recount, part=part, after=after, pages=recount.pages + 1)
        if part is None:
            recount = replace(recount, fences=self._fence(recount))

        self._recounts.save(recount)
        return recount

    def _fence(self, recount: Recount) -> dict[str, str]:
        fences: dict[str, str] = {}
        for lane in _LANES:
            message_id, now = self._next_id(), milliseconds(self._clock)
            self._recounts.fence(recount, lane, message_id, now)
            fences[lane] = fence_sk(lane, message_id, now)
        return fences

    def _end(self, recount: Recount, report: RecountReport) -> bool:
        """Write the counts where marking has met the fences; say whether the recount is over."""
        for _ in range(_TRIES):
            row = next(iter(self._rows.get_many([recount.place])), None)
            if row is None or row.recount != recount.since:
                return False  # asked for again, or deleted: the next run begins anew

            after = self._recounted(recount, row)
            if after is None:
                return False
            # only over the row as it was read: the sums hold for its sequence numbers
            if self._rows.change(after, row):
                counted = row.ready, row.later, row.dead
                report.corrected += (after.ready, after.later, after.dead) != counted
                self._recounts.forget(recount, done=True)
                return True
        return False

    def _recounted(self, recount: Recount, row: ShardRow) -> ShardRow | None:
        """Return the row with its counts as of its sequence numbers; None: marking is behind."""
        sequences = {"ready": row.ready_sequence, "later": row.later_sequence}
        changes = {lane: self._recounts.changes(recount, lane, sequences[lane]) for lane in _LANES}
        # once marking has met the fences, the changes reach beyond all that was read
        if not all(digest(recount.fences[lane]) in changes[lane].present for lane in _LANES):
            return None

        if row.purged_dead != recount.purged:
            self._begin(recount, row)  # dead letters went without a record: read them again
            return None

        dead: set[bytes] = set()
        counts = dict.fromkeys(_LANES, 0)
        for part in PARTS:
            for page in self._recounts.pages(recount, part):
                dead.update(page.dead)
                if part != "dead":
                    # a key that changed counts below, as its newest change leaves it
                    counts[part] += sum(at not in changes[part].present for at in page.present)

        for lane in _LANES:
            counts[lane] += sum(changes[lane].present.values())
            dead -= {at for at, there in changes[lane].dead.items() if not there}
        for lane in _LANES:
            dead |= {at for at, there in changes[lane].dead.items() if there}

        # the row counts deaths less purges: the difference goes where deaths are
        off = len(dead) - row.dead
        after = replace(
            row,
            ready=counts["ready"],
            later=counts["later"],
            ready_deaths=row.ready_deaths + off,
            recount=None,
        )

        if after.outstanding:
            return after
        return replace(after, next_check=NEVER_MS if after.dead > 0 else None, backoff=0)
