"""First deliveries to latencies: exact percentiles, by topic, subscription and hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from fairbox_pipeline.schemas import HOUR_MS
from fairbox_pipeline.times import iso_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HOUR_SECONDS: Final = HOUR_MS // 1000
_PERCENTS: Final = (50, 90, 99)


def latencies(deliveries: DataFrame) -> DataFrame:
    """Return the rows of job `latency`, ordered; `hour` is null in the row of all hours.

    `deliveries` is from `first_deliveries`; those of which no `added` was seen count nowhere. The
    throughput of all hours is the mean of the hours that had deliveries.
    """
    measured = deliveries.where(F.col("latency").isNotNull()).select(
        "topic",
        "subscription",
        "latency",
        "precision",
        (F.col("at") - F.pmod(F.col("at"), F.lit(HOUR_MS))).alias("hour_ms"),
    )
    topic_and_subscription = ("topic", "subscription")
    hourly = measured.groupBy(*topic_and_subscription, "hour_ms").agg(*_figures(F.lit(1)))
    overall = measured.groupBy(*topic_and_subscription).agg(
        F.lit(None).cast("bigint").alias("hour_ms"), *_figures(F.count_distinct("hour_ms"))
    )
    return (
        hourly.unionByName(overall)
        .orderBy("topic", "subscription", F.col("hour_ms").asc_nulls_last())
        .select(
            *topic_and_subscription,
            iso_text(F.col("hour_ms"), "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("hour"),
            "count",
            *(f"p{percent}_ms" for percent in _PERCENTS),
            "max_ms",
            "throughput_per_second",
            "precision",
        )
    )


def _figures(hours: Column) -> list[Column]:
    percentiles = [
        F.percentile("latency", percent / 100).alias(f"p{percent}_ms") for percent in _PERCENTS
    ]
    count = F.count(F.lit(1))
    return [
        count.alias("count"),
        *percentiles,
        F.max("latency").alias("max_ms"),
        (count / (hours * _HOUR_SECONDS)).alias("throughput_per_second"),
        F.max("precision").alias("precision"),
    ]
