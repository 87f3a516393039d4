"""Messages to findings: lost, duplicated, out of order, stuck or in a wrong shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairbox_pipeline.hashing import shard_hash
from fairbox_pipeline.schemas import FINDINGS_TABLE, KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_SHARDS: Final = 1000
"""Of a topic: a copy of the library's limit, so that no job needs the library."""
CLOCKS_MS: Final = 300_000
"""The most that an event may be ahead of the run's clock: a copy of the library's limit for ids."""
_JUDGED_KEYS: Final = 10_000


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


def latest(messages: DataFrame, now: int) -> int:
    """Return the time at which the archive ends (ms): its latest event that has come by `now`.

    An event of the future bears the time of a wrong clock, or of an id that no clock made.
    """
    come = messages.where(F.col("last_at") <= now + CLOCKS_MS)
    return come.agg(F.max("last_at")).collect()[0][0] or 0


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

    A message is named if each width from `shard_widths` puts it elsewhere; one without `added` is
    not judged, because its key is unknown.
    """
    judged = _hashed(messages).where(F.col("hash").isNotNull())
    widths = shard_widths(messages)
    placed = judged.join(F.broadcast(widths), ["topic", "epoch"]).where(
        F.forall("widths", lambda width: F.col("hash") % width != F.col("shard"))
    )
    width = F.col("widths")[0]
    detail = F.format_string("belongs to shard %d of %d", F.col("hash") % width, width)
    return _findings(placed, "wrong_shard", detail)


def shard_widths(messages: DataFrame) -> DataFrame:
    """Return `topic` `epoch` `widths`: the numbers of shards that explain the messages best.

    One more than the greatest shard seen, if it puts every key right. Otherwise the numbers from 1
    to 1,000 that put the most keys right, ascending: the true number is among them while fewer keys
    are misplaced than any other number explains. If they put less than half right, it is again one
    more than the greatest shard. A key counts once for each shard, and at most 10,000 keys do.
    """
    hashed = _hashed(messages)
    seen = hashed.groupBy("topic", "epoch").agg((F.max("shard") + 1).alias("seen"))
    seen = seen.localCheckpoint()
    of_epoch = ["topic", "epoch"]
    wrong = hashed.join(F.broadcast(seen), of_epoch).where(
        F.col("hash") % F.col("seen") != F.col("shard")
    )
    doubted = wrong.select(*of_epoch).distinct().localCheckpoint()
    plain = seen.select(*of_epoch, F.array("seen").alias("widths"))
    if doubted.isEmpty():
        return plain
    best = _best_widths(hashed.join(F.broadcast(doubted), of_epoch, "left_semi"))
    chosen = F.when(F.col("right") * 2 >= F.col("keys"), F.col("best"))
    found = plain.join(best, of_epoch, "left")
    return found.select(*of_epoch, F.coalesce(chosen, F.col("widths")).alias("widths"))


def _hashed(messages: DataFrame) -> DataFrame:
    """Return the keys of messages with `hash`, which is null where no `added` was seen."""
    key = F.when(F.col("added_at").isNotNull(), F.coalesce("partition_key", "id"))
    return messages.select(*KEY, shard_hash(key).alias("hash"))


def _best_widths(hashed: DataFrame) -> DataFrame:
    """Return `topic` `epoch` `keys` `right` `best`: the widths that put `right` of `keys` right."""
    of_epoch = ["topic", "epoch"]
    # a key of many messages is no more proof than one of few
    pairs = hashed.select(*of_epoch, "shard", "hash").distinct()
    some = Window.partitionBy(*of_epoch).orderBy(F.xxhash64("hash", "shard"), "hash", "shard")
    pairs = pairs.withColumn("nth", F.row_number().over(some)).where(F.col("nth") <= _JUDGED_KEYS)
    every = F.sequence(F.lit(1), F.lit(MAX_SHARDS))
    hash_, shard = F.col("hash"), F.col("shard")
    explains = F.filter(every, lambda w: F.coalesce(hash_ % w == shard, shard < w))
    keys = F.max("nth").over(Window.partitionBy(*of_epoch))
    fits = pairs.withColumn("keys", keys).withColumn("width", F.explode(explains))
    counted = fits.groupBy(*of_epoch, "keys", "width").agg(F.count(F.lit(1)).alias("right"))
    by_count = counted.groupBy(*of_epoch, "keys", "right").agg(
        F.sort_array(F.collect_list(F.col("width").cast("bigint"))).alias("best")
    )
    return by_count.groupBy(*of_epoch, "keys").agg(
        F.max("right").alias("right"), F.max_by("best", "right").alias("best")
    )


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
