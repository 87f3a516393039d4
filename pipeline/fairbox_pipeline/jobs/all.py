"""Job `all`: `history`, `reconcile` and `report` in one session, with one update of the tables."""

from __future__ import annotations

from typing import Final

from fairbox_pipeline.job import combine
from fairbox_pipeline.jobs import history, reconcile, report

JOB: Final = combine(
    "all",
    "Run history, reconcile and report.",
    [history.JOB, reconcile.JOB, report.JOB],
    after={"report": ["reconcile"]},
)
