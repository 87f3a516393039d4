"""Job `all`: `history`, `reconcile` and `report` in one session, with one update of the tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from fairbox_pipeline.job import Context, Figures, Job, run
from fairbox_pipeline.jobs import history, reconcile, report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `reconcile` and `report`."""
    for job in (reconcile.JOB, report.JOB):
        job.arguments(parser)


def figures(context: Context) -> Figures:
    """Return the figures of each, by its name."""
    return {job.name: job.figures(context) for job in (history.JOB, reconcile.JOB, report.JOB)}


JOB: Final = Job("all", "Run history, reconcile and report.", figures, arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the jobs; return the exit code."""
    return run(JOB, argv)


if __name__ == "__main__":
    sys.exit(main())
