"""Messages to load: by shard, by topic, by key; and how many shards a topic needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairbox_pipeline.schemas import DAY_MS, MINUTE_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNITS_A_MESSAGE: Final = 3  # WRU for each KB begun: two for a transactional put, one for the delete
SHARD_UNITS: Final = 700  # WCU/s that one shard is planned for, of the 1,000 that it can take
_WEEK_MS: Final = 7 * DAY_MS
_MINUTE_SECONDS: Final = MINUTE_MS // 1000


def load_of_shards(messages: DataFrame) -> DataFrame:
    """Return `topic` `epoch` `shard` `messages` `bytes`, ordered."""
    load = messages.groupBy("topic", "epoch", "shard").agg(
        F.count(F.lit(1)).alias("messages"),
        F.coalesce(F.sum("size"), F.lit(0)).alias("bytes"),
    )
    return load.orderBy("topic", "epoch", "shard")


def load_of_topics(shards: DataFrame, needed: DataFrame) -> DataFrame:
    """Return `topic` `messages` `bytes` `skew` `shards`, and the columns of `shards_needed`.

    Ordered by topic. Both of the newest epoch: skew, messages of the fullest shard by the mean over
    its shards; and their number, one more than the greatest seen. `shards` is from
    `load_of_shards`, `needed` from `shards_needed`.
    """
    epochs = shards.groupBy("topic", "epoch").agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        (F.max("messages") / (F.sum("messages") / (F.max("shard") + 1))).alias("skew"),
        (F.max("shard") + 1).alias("shards"),
    )
    topics = epochs.groupBy("topic").agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.max_by("skew", "epoch").alias("skew"),
        F.max_by("shards", "epoch").alias("shards"),
    )
    return topics.join(needed, "topic").orderBy("topic")


def shards_needed(messages: DataFrame) -> DataFrame:
    """Return `topic` `shards_needed` `units_per_second` `may_shrink`.

    Units (WRU) a second are those of the busiest UTC minute of `added_at`; a topic needs at least
    one shard. It may shrink by the load of a week or more: a day may be a quiet one.
    """
    kilobytes = F.ceil(F.coalesce(F.col("size"), F.lit(0)) / 1024)
    minute = F.col("added_at") - F.pmod(F.col("added_at"), F.lit(MINUTE_MS))
    added = F.when(F.col("added_at").isNotNull(), UNITS_A_MESSAGE * kilobytes).otherwise(0)
    minutes = messages.groupBy("topic", minute.alias("minute")).agg(F.sum(added).alias("units"))
    room = SHARD_UNITS * _MINUTE_SECONDS
    needed = F.greatest(F.lit(1).cast("bigint"), F.ceil(F.max("units") / room))
    return minutes.groupBy("topic").agg(
        needed.alias("shards_needed"),
        (F.max("units") / _MINUTE_SECONDS).alias("units_per_second"),
        F.coalesce(F.max("minute") - F.min("minute") >= _WEEK_MS, F.lit(False)).alias("may_shrink"),
    )


def hot_keys(messages: DataFrame, most: int) -> DataFrame:
    """Return `topic` `partition_key` `messages`: of each topic the `most` fullest keys, ordered."""
    keys = (
        messages.where(F.col("partition_key").isNotNull())
        .groupBy("topic", "partition_key")
        .agg(F.count(F.lit(1)).alias("messages"))
    )
    fullest = Window.partitionBy("topic").orderBy(F.col("messages").desc(), "partition_key")
    ranked = keys.withColumn("rank", F.row_number().over(fullest))
    kept = ranked.where(F.col("rank") <= most).orderBy("topic", "rank")
    return kept.select("topic", "partition_key", "messages")
