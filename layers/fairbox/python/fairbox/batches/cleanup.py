"""The hourly cleanup: idle batches looked at, orphans reaped, what has ended erased."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairbox.batches.lifecycle import Ending
from fairbox.errors import FairboxError

if TYPE_CHECKING:
    from fairbox.batches.lifecycle import Look

ERASE_GROUPS: Final = 1000
"""Groups erased between two looks at the clock: 80 calls at most."""


@dataclass(slots=True)
class Cleaned:
    """What a run of the cleanup did; with a dry run, what it would have done.

    Attributes:
        looked: batches whose look was due.
        kept: those that are alive, or were changed meanwhile.
        reaped: orphans: their ids.
        cancelled: ids of nested batches whose parent was cancelled or reaped.
        ended: batches that had ended meanwhile, or that only a crash had kept from completing.
        erased: ended batches of which nothing but the root remains.
        pending: items of the orphans that were not settled.
        failed: batches left to the next run, for a call failed.
        finished: whether the run came to its end.
        dry_run: whether nothing was changed.
    """

    looked: int = 0
    kept: int = 0
    reaped: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    ended: int = 0
    erased: int = 0
    pending: int = 0
    failed: int = 0
    finished: bool = False
    dry_run: bool = False


class Cleaning(Ending):
    """Looks at every batch whose look is due."""

    def clean(
        self, *, deadline: float, open_hours: int, sealed_hours: int, dry_run: bool = False
    ) -> Cleaned:
        """Clean until nothing is due or the deadline (seconds since 1970).

        What is dealt with is due later or never again, so the next run goes on behind it.

        Args:
            deadline: when to stop.
            open_hours: without activity for so long, an open batch is an orphan.
            sealed_hours: and a sealed one.
            dry_run: report, and change nothing.

        Raises:
            Throttled, Unavailable: the index could not be read.
        """
        report = Cleaned(dry_run=dry_run)
        for batch in self.due():
            if self.clock.now() >= deadline:
                return report
            report.looked += 1
            try:
                look = self.look(
                    batch, open_hours=open_hours, sealed_hours=sealed_hours, dry_run=dry_run
                )
                done = self._note(look, report, deadline)
            except FairboxError:
                report.failed += 1
                continue
            if not done:
                return report
        report.finished = True
        return report

    def _note(self, look: Look, report: Cleaned, deadline: float) -> bool:
        """Count a look, and erase what had ended; return whether there was time enough."""
        match look.fate:
            case "reaped":
                report.reaped.append(look.batch)
                report.pending += look.progress.pending if look.progress else 0
            case "cancelled":
                report.cancelled.append(look.batch)
            case "ended" if look.active > self.hour:  # its time to be erased is still to come
                report.ended += 1
            case "ended" if report.dry_run:
                report.erased += 1
            case "ended":
                while not self.erase(look.batch, ERASE_GROUPS):
                    if self.clock.now() >= deadline:
                        return False
                report.erased += 1
            case _:
                report.kept += 1
        return True
