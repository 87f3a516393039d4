"""Job `latency`: due to delivered, by topic, subscription and hour."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from fairbox_pipeline.job import Context, Figures, Job, run
from fairbox_pipeline.transforms.deliveries import first_deliveries
from fairbox_pipeline.transforms.latency import latencies

if TYPE_CHECKING:
    from collections.abc import Sequence


def figures(context: Context) -> Figures:
    """Return one row each topic, subscription and hour, and one of all hours."""
    rows = [row.asDict() for row in latencies(first_deliveries(context.messages())).collect()]
    for row in rows:
        if row["precision"] is None:
            del row["precision"]
    return {"rows": rows}


JOB: Final = Job("latency", "Measure due to delivered by topic, subscription and hour.", figures)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; return the exit code."""
    return run(JOB, argv)


if __name__ == "__main__":
    sys.exit(main())
