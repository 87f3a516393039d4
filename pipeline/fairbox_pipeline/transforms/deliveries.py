"""Messages to first deliveries: one row each message and subscription that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairbox_pipeline.schemas import KEY
from fairbox_pipeline.times import COARSE, SECOND_MS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
