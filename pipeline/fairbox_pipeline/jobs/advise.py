"""Job `advise`: what to do, why, and the command for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline import advice
from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.jobs import sizing
from fairbox_pipeline.jobs.reconcile import STUCK_AFTER_SECONDS
from fairbox_pipeline.schemas import FINDINGS_TABLE
from fairbox_pipeline.transforms.causes import dead_causes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_CAUSES: Final = 100


def figures(context: Context) -> Figures:
    """Return the advice, the most urgent first; of one run it is found once."""
    if "advise" not in context.found:
        rows = [one.as_row() for one in advice.in_order(_advice(context))]
        context.found["advise"] = {"advice": rows}
    return context.found["advise"]


def _advice(context: Context) -> list[advice.Advice]:
    options, known = context.options, context.topics
    named = context.warehouse.read(FINDINGS_TABLE).where(F.col("kind").isin("lost", "stuck"))
    findings = named.groupBy("kind", "topic").agg(F.count(F.lit(1)).alias("messages"))
    places = ["--archive", options.archive, "--warehouse", options.warehouse]
    after: float = getattr(options, "stuck_after", STUCK_AFTER_SECONDS)
    every = [
        *advice.of_load(sizing.figures(context)["topics"]),
        *advice.of_findings(_rows(findings), places, after),
        *advice.of_causes(_rows(dead_causes(context.judged, MOST_CAUSES))),
    ]
    # where topics are known, one that is only seen no longer exists
    return [one for one in every if not known or one.topic in known]


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


JOB: Final = Job("advise", "Tell what to do, why, and the command.", figures, sizing.JOB.arguments)
