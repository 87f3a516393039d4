"""Job `all`: `history`, `reconcile` and `report` in one session, with one update of the tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from fairbox_pipeline.job import combine, run
from fairbox_pipeline.jobs import history, reconcile, report

if TYPE_CHECKING:
    from collections.abc import Sequence

JOB: Final = combine(
    "all",
    "Run history, reconcile and report.",
    [history.JOB, reconcile.JOB, report.JOB],
    after={"report": ["reconcile"]},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the jobs; return the exit code."""
    return run(JOB, argv)


if __name__ == "__main__":
    sys.exit(main())
