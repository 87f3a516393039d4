"""First deliveries to latencies: exact percentiles, by topic, subscription and hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from fairbox_pipeline.schemas import HOUR_MS, PERCENTS
from fairbox_pipeline.times import iso_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HOUR_SECONDS: Final = HOUR_MS // 1000
_GROUP: Final = ("topic", "subscription")


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
