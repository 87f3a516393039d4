"""Job `latency`: due to delivered, by topic, subscription and hour."""

from __future__ import annotations

from typing import Final

from pyspark.sql import functions as F

from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.schemas import DAY_MS, LATENCY_TABLE
from fairbox_pipeline.transforms.latency import first_deliveries, hourly, latencies


def figures(context: Context) -> Figures:
    """Return one row each topic, subscription and hour, and one of all hours."""
    rows = [row.asDict() for row in latencies(first_deliveries(context.messages)).collect()]
    for row in rows:
        if row["precision"] is None:
            del row["precision"]
    if context.of_a_day or not context.window:
        _keep_hours(context)
    return {"rows": rows}


def _keep_hours(context: Context) -> None:
    """Replace the hours of table `latency_hourly`: all, or those from the window's day on."""
    since = context.window.since
    kept = F.lit(True) if since is None else F.col("hour") >= since // DAY_MS * DAY_MS
    found = hourly(first_deliveries(context.touched)).where(kept)
    context.warehouse.replace(LATENCY_TABLE, found.select(*LATENCY_TABLE.names), where=kept)


JOB: Final = Job("latency", "Measure due to delivered by topic, subscription and hour.", figures)
