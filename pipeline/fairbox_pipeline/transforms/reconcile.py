"""Messages to findings: lost, duplicated, out of order, stuck or in a wrong shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairbox_pipeline.hashing import shard_number
from fairbox_pipeline.schemas import FINDINGS_TABLE, KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def lost(messages: DataFrame, outstanding: DataFrame) -> DataFrame:
    """Find messages in state `outstanding` that the outbox does not hold."""
    kept = messages.where(F.col("state") == "outstanding")
    gone = kept.join(outstanding.select(*KEY), list(KEY), "left_anti")
    return _findings(gone, "lost", F.format_string("last event at %d", "last_at"))


def duplicated(messages: DataFrame, events: DataFrame) -> DataFrame:
    """Find deliveries too many: for each message and subscription, all but the first.

    `events` is table `events`; only those of messages delivered twice are looked at.
    """
    twice = messages.where(F.exists("subscriptions", lambda taker: taker["deliveries"] > 1)).select(
        *KEY
    )
    delivered = events.where(F.col("event") == "delivered").select(
        *KEY, "subscription", "at", "event_id"
    )
    order = Window.partitionBy(*KEY, "subscription").orderBy("at", "event_id")
    again = (
        delivered.join(twice, list(KEY), "left_semi")
        .withColumn("nth", F.row_number().over(order))
        .where(F.col("nth") > 1)
    )
    detail = F.format_string("delivery %d at %d, event %s", "nth", "at", "event_id")
    return _findings(again, "duplicated", detail, F.col("subscription"))


def out_of_order(deliveries: DataFrame) -> DataFrame:
    """Find first deliveries after a later message of their key, on topics ordered by key.

    `deliveries` is from `first_deliveries`. A message is late when one of its key with a greater
    id was delivered to the same subscription at a strictly earlier time, in whatever shard.
    """
    keyed = deliveries.where((F.col("ordering") == "key") & F.col("partition_key").isNotNull())
    before = (
        Window.partitionBy("topic", "partition_key", "subscription")
        .orderBy("at")
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    late = keyed.withColumn("greatest", F.max("id").over(before))
    late = late.where(F.col("id") < F.col("greatest"))
    detail = F.format_string("delivered at %d, after %s", "at", "greatest")
    return _findings(late, "out_of_order", detail, F.col("subscription"))


def stuck(messages: DataFrame, outstanding: DataFrame, latest: int, after_ms: float) -> DataFrame:
    """Find messages that the outbox holds, added over `after_ms` before `latest` (ms)."""
    held = messages.join(outstanding.select(*KEY), list(KEY), "left_semi")
    old = held.where(F.lit(latest) - F.col("added_at") > F.lit(after_ms))
    detail = F.format_string(
        "added at %d, the archive ends at %d", F.col("added_at"), F.lit(latest)
    )
    return _findings(old, "stuck", detail)


def wrong_shard(messages: DataFrame) -> DataFrame:
    """Find messages that are not in the shard of their key (of their id, without one).

    The number of shards of a (topic, epoch) is one more than the greatest number seen. A message
    without `added` is not judged, because its key is unknown.
    """
    widths = messages.groupBy("topic", "epoch").agg((F.max("shard") + 1).alias("shards"))
    judged = messages.where(F.col("added_at").isNotNull()).join(
        F.broadcast(widths), ["topic", "epoch"]
    )
    right = shard_number(F.coalesce("partition_key", "id"), F.col("shards"))
    placed = judged.withColumn("right", right).where(F.col("shard") != F.col("right"))
    detail = F.format_string("belongs to shard %d of %d", "right", "shards")
    return _findings(placed, "wrong_shard", detail)


def _findings(
    found: DataFrame, kind: str, detail: Column, subscription: Column | None = None
) -> DataFrame:
    nobody = F.lit(None).cast("string")
    return found.select(
        F.lit(kind).alias("kind"),
        *KEY,
        (nobody if subscription is None else subscription).alias("subscription"),
        detail.alias("detail"),
    ).select(*FINDINGS_TABLE.names)
