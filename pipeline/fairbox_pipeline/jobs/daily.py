"""Job `daily`: every job but `replay` in one session, with one update of the tables."""

from __future__ import annotations

from typing import Final

from fairbox_pipeline.job import combine
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

JOB: Final = combine(
    "daily",
    "Run history, latency, sizing, reconcile, batches, advise and report; maintain when due.",
    [
        *(history.JOB, latency.JOB, sizing.JOB, reconcile.JOB, batches.JOB),
        *(advise.JOB, report.JOB, maintain.WEEKLY),
    ],
    # the page shows their tables: a page over those of the day before would mislead
    after={"advise": ["sizing", "reconcile"], "report": ["reconcile", "batches", "advise"]},
    of_a_day=True,
)
