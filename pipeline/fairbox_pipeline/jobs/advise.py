"""Job `advise`: what to do, why, and the command for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline import advice
from fairbox_pipeline.advice import GAP
from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.jobs import sizing
from fairbox_pipeline.jobs.reconcile import STUCK_AFTER_SECONDS
from fairbox_pipeline.schemas import FINDINGS_TABLE, KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_CAUSES: Final = 100
_UUID: Final = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_WITH_DIGITS: Final = r"[A-Za-z]*\d\w*"


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


def dead_causes(messages: DataFrame, most: int) -> DataFrame:
    """Return `topic` `subscription` `reason` `messages` `first_at` `last_at`, the fullest first.

    They count messages that are dead now, by the latest death of each subscription since the last
    redrive; times are ms. In `reason` each number and id is `*`.
    """
    dead = messages.where(F.col("state") == "dead")
    deaths = dead.select(*KEY, "redriven_at", F.explode("subscriptions").alias("taker")).select(
        *KEY,
        "redriven_at",
        "taker.subscription",
        "taker.reason",
        F.col("taker.dead_at").alias("at"),
    )
    since = deaths.where(F.col("at") > F.coalesce("redriven_at", F.lit(-1)))
    plain = F.regexp_replace(F.coalesce("reason", F.lit("")), "^max_attempts: ", "")
    reason = F.regexp_replace(F.regexp_replace(plain, _UUID, GAP), _WITH_DIGITS, GAP)
    causes = since.groupBy("topic", "subscription", reason.alias("reason")).agg(
        F.count_distinct("epoch", "shard", "id").alias("messages"),
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
    )
    return causes.orderBy(F.desc("messages"), "topic", "subscription", "reason").limit(most)


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


JOB: Final = Job("advise", "Tell what to do, why, and the command.", figures, sizing.JOB.arguments)
