"""Job `daily`: every job but `replay` in one session, with one update of the tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from fairbox_pipeline.job import combine, run
from fairbox_pipeline.jobs import (
    advise,
    batches,
    history,
    latency,
    maintain,
    reconcile,
    report,
    sizing,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

JOB: Final = combine(
    "daily",
    "Run history, latency, sizing, reconcile, batches, advise and report; maintain when due.",
    [
        *(history.JOB, latency.JOB, sizing.JOB, reconcile.JOB, batches.JOB),
        *(advise.ADVICE, report.JOB, maintain.WEEKLY),
    ],
    # the page shows their tables: a page over those of the day before would mislead
    after={"advise": ["sizing", "reconcile"], "report": ["reconcile", "batches", "advise"]},
    of_a_day=True,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the jobs; return the exit code."""
    return run(JOB, argv)


if __name__ == "__main__":
    sys.exit(main())
