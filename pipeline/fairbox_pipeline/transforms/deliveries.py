"""Messages to first deliveries: one row each message and subscription that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairbox_pipeline.schemas import KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def first_deliveries(messages: DataFrame) -> DataFrame:
    """Return one row of each message and subscription that has taken it.

    Columns: `topic` `epoch` `shard` `id` `partition_key` `ordering` `added_at` `due`
    `subscription`, `at` (ms, of the earliest delivery) and `deliveries` (how many there are). A
    delivery whose event names no subscription stands under null.
    """
    entries = messages.select(
        *KEY,
        "partition_key",
        "ordering",
        "added_at",
        "due",
        F.explode("subscriptions").alias("taker"),
    )
    return entries.where(F.col("taker.deliveries") > 0).select(
        *KEY,
        "partition_key",
        "ordering",
        "added_at",
        "due",
        F.col("taker.subscription").alias("subscription"),
        F.col("taker.first_delivered_at").alias("at"),
        F.col("taker.deliveries").alias("deliveries"),
    )
