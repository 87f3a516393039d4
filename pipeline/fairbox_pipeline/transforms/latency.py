"""Messages to first deliveries, and these to latencies: exact percentiles by any group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from fairbox_pipeline.schemas import HOUR_MS, KEY, PERCENTS
from fairbox_pipeline.times import COARSE, SECOND_MS, iso_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HOUR_SECONDS: Final = HOUR_MS // 1000
_GROUP: Final = ("topic", "subscription")


def due_at() -> Column:
    """Return when a message was due (ms): when it was added, or when its delay ended."""
    return F.greatest("added_at", "due")


def first_deliveries(messages: DataFrame) -> DataFrame:
    """Return one row of each message and subscription that has taken it.

    Columns: `topic` `epoch` `shard` `id` `partition_key` `ordering` `added_at` `subscription`;
    `at` (ms, of the earliest delivery) and its `precision`; `latency` (ms, from due to `at`; null
    where no `added` was seen). A delivery whose event names no subscription stands under null.

    A latency under a second of a delivery that is stamped by the second is not known: it counts as
    1,000, which bounds it.
    """
    about = (*KEY, "partition_key", "ordering", "added_at")
    due = F.when(F.col("added_at").isNotNull(), due_at()).alias("due_at")
    entries = messages.select(*about, due, F.explode("subscriptions").alias("taker"))
    taken = entries.where(F.col("taker.deliveries") > 0).select(
        *about,
        "due_at",
        F.col("taker.subscription").alias("subscription"),
        F.col("taker.first_delivered_at").alias("at"),
        F.col("taker.precision").alias("precision"),
    )
    latency = F.col("at") - F.col("due_at")
    unknown = (F.col("precision") == COARSE) & (latency < SECOND_MS)
    known = F.when(unknown, SECOND_MS).otherwise(latency).cast("long")
    return taken.withColumn("latency", known).drop("due_at")


def measures() -> list[Column]:
    """Return `count`, `p50_ms`, `p90_ms`, `p99_ms`, `max_ms` and `precision` of deliveries."""
    return [
        F.count(F.lit(1)).alias("count"),
        *(F.percentile("latency", p / 100).alias(f"p{p}_ms") for p in PERCENTS),
        F.max("latency").alias("max_ms"),
        F.max("precision").alias("precision"),
    ]


def hourly(deliveries: DataFrame) -> DataFrame:
    """Return `topic` `subscription` `hour` (ms) and figures of each that had deliveries.

    `deliveries` is from `first_deliveries`; those of which no `added` was seen count nowhere.
    """
    return _measured(deliveries).groupBy(*_GROUP, "hour").agg(*_figures(F.lit(1)))


def latencies(deliveries: DataFrame) -> DataFrame:
    """Return the rows of job `latency`, ordered; `hour` is null in the row of all hours.

    `deliveries` is from `first_deliveries`; those of which no `added` was seen count nowhere. The
    throughput of all hours is the mean of the hours that had deliveries.
    """
    overall = _measured(deliveries).groupBy(*_GROUP)
    every = overall.agg(
        F.lit(None).cast("bigint").alias("hour"), *_figures(F.count_distinct("hour"))
    )
    rows = hourly(deliveries).unionByName(every)
    text = iso_text(F.col("hour"), "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return rows.orderBy(*_GROUP, F.col("hour").asc_nulls_last()).withColumn("hour", text)


def _measured(deliveries: DataFrame) -> DataFrame:
    hour = F.col("at") - F.pmod(F.col("at"), F.lit(HOUR_MS))
    known = deliveries.where(F.col("latency").isNotNull())
    return known.select(*_GROUP, "latency", "precision", hour.alias("hour"))


def _figures(hours: Column) -> list[Column]:
    throughput = F.count(F.lit(1)) / (hours * _HOUR_SECONDS)
    *figures, precision = measures()
    return [*figures, throughput.alias("throughput_per_second"), precision]
