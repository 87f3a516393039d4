"""Messages to findings: lost, duplicated, out of order, stuck or in a wrong shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairbox_pipeline.schemas import FINDINGS_TABLE, KEY
from fairbox_pipeline.times import COARSE, SECOND_MS, iso_text
from fairbox_pipeline.transforms.latency import due_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_SHARDS: Final = 1000
"""Of a topic: a copy of the library's limit, so that no job needs the library."""
CLOCKS_MS: Final = 300_000
"""The most that an event may be ahead of the run's clock: a copy of the library's limit for ids."""
UNSETTLED_MS: Final = 10_000
"""An event has the time of an id or a whole second: the item may be that much younger."""
LIKELY: Final = 0.5
"""Share of keys that a number of shards must put right, where nobody says what it is."""


def lost(messages: DataFrame, outstanding: DataFrame, as_of: int | None) -> DataFrame:
    """Find messages in state `outstanding` that the outbox does not hold.

    Of a snapshot, `as_of` is its time (ms). A message of which anything was seen later, or shortly
    before, is not judged: it was there then, or nobody knows yet. The next snapshot judges it.
    """
    kept = messages.where(F.col("state") == "outstanding")
    if as_of is not None:
        kept = kept.where(F.col("last_at") <= as_of - UNSETTLED_MS)
    gone = kept.join(outstanding.select(*KEY), list(KEY), "left_anti")
    return _findings(gone, "lost", _told("last event at %s", F.col("last_at")), as_of=as_of)


def duplicated(messages: DataFrame, events: DataFrame) -> DataFrame:
    """Find deliveries too many: for each message and subscription, all but the first.

    `events` is table `events`; only those of messages delivered twice are looked at.
    """
    twice = messages.where(F.exists("subscriptions", lambda taker: taker["deliveries"] > 1))
    first = twice.agg(F.min("first_at")).collect()[0][0]
    is_theirs = F.lit(False) if first is None else F.col("at") >= first
    delivered = events.where(is_theirs & (F.col("event") == "delivered")).select(
        *KEY, "subscription", "at", "event_id"
    )
    order = Window.partitionBy(*KEY, "subscription").orderBy("at", "event_id")
    again = (
        delivered.join(twice.select(*KEY), list(KEY), "left_semi")
        .withColumn("nth", F.row_number().over(order))
        .where(F.col("nth") > 1)
    )
    detail = F.format_string(
        "delivery %d at %s, event %s", "nth", iso_text(F.col("at")), "event_id"
    )
    return _findings(again, "duplicated", detail, subscription=F.col("subscription"))


def out_of_order(deliveries: DataFrame) -> DataFrame:
    """Find first deliveries after a later message of their key, on topics ordered by key.

    `deliveries` is from `first_deliveries`. A message is late when one of its key with a greater
    id was delivered to the same subscription at a strictly earlier time, in whatever shard. Of
    deliveries that are stamped by the second, those of one second are not judged.
    """
    keyed = deliveries.where((F.col("ordering") == "key") & F.col("partition_key").isNotNull())
    coarse = F.col("precision") == COARSE
    of_key = Window.partitionBy("topic", "partition_key", "subscription").orderBy("at")
    before = of_key.rangeBetween(Window.unboundedPreceding, -1)
    # who is stamped by the second may have come at its end
    a_second_before = of_key.rangeBetween(Window.unboundedPreceding, -SECOND_MS)
    greatest = F.greatest(
        F.max(F.when(coarse, None).otherwise(F.col("id"))).over(before),
        F.max(F.when(coarse, F.col("id"))).over(a_second_before),
    )
    late = keyed.withColumn("greatest", greatest).where(F.col("id") < F.col("greatest"))
    detail = F.format_string("delivered at %s, after %s", iso_text(F.col("at")), "greatest")
    return _findings(late, "out_of_order", detail, subscription=F.col("subscription"))


def latest(messages: DataFrame, now: int) -> int:
    """Return the time at which the archive ends (ms): its latest event that has come by `now`.

    An event of the future bears the time of a wrong clock, or of an id that no clock made.
    """
    last = F.max("last_at")
    end = messages.agg(last).collect()[0][0] or 0  # of a whole table, from its metadata
    if end <= now + CLOCKS_MS:
        return int(end)
    come = messages.where(F.col("last_at") <= now + CLOCKS_MS)
    return come.agg(last).collect()[0][0] or 0


def stuck(
    messages: DataFrame, outstanding: DataFrame, end: int, after_ms: float, as_of: int | None
) -> DataFrame:
    """Find messages that the outbox holds, due over `after_ms` before `end` (ms).

    A message is due when it is added, when its delay ends, and again when it is redriven. `as_of`
    is the time of the snapshot, which is then also the end; None: the archive's end is.
    """
    held = messages.join(outstanding.select(*KEY), list(KEY), "left_semi")
    due = F.greatest(due_at(), F.col("redriven_at"))
    old = held.where(F.col("added_at").isNotNull() & (F.lit(end) - due > F.lit(after_ms)))
    detail = _told("due at %s, judged at %s", due, F.lit(end))
    return _findings(old, "stuck", detail, as_of=as_of)


def wrong_shard(messages: DataFrame, widths: DataFrame) -> DataFrame:
    """Find messages that are not in the shard of their key (of their id, without one).

    Those without `added` are not judged, because their key is unknown.

    Args:
        messages: of any topics.
        widths: `topic` `epoch` `width`: numbers of shards; an epoch without one is not judged.
    """
    hashed = messages.select(*KEY, _hash().alias("hash"))
    judged = hashed.join(F.broadcast(widths), ["topic", "epoch"])
    belongs = F.col("hash") % F.col("width")
    placed = judged.where(belongs != F.col("shard"))
    detail = F.format_string("belongs to shard %d of %d", belongs, F.col("width"))
    return _findings(placed, "wrong_shard", detail)


def seen_widths(messages: DataFrame) -> DataFrame:
    """Return `topic` `epoch` `width` `right`: numbers of shards as far as messages tell.

    The width is one more than the greatest shard seen. `right` is the share of keys that it puts
    where they are: on a topic of few messages the greatest shard may have none.
    """
    shards = messages.groupBy("topic", "epoch").agg((F.max("shard") + 1).alias("width"))
    pairs = messages.select("topic", "epoch", "shard", _hash().alias("hash"))
    keys = pairs.where(F.col("hash").isNotNull()).distinct()
    is_right = F.col("hash") % F.col("width") == F.col("shard")
    of_epoch = keys.join(F.broadcast(shards), ["topic", "epoch"]).groupBy("topic", "epoch", "width")
    return of_epoch.agg(F.avg(is_right.cast("int")).alias("right"))


def shard_hash(key: Column) -> Column:
    """Return bytes 0 to 3 of SHA-256 of a string as an unsigned little-endian number (bigint).

    `docs/reference/hashing.md` fixes it. No Python runs for a row.
    """
    digest = F.sha2(key.cast("binary"), 256)
    pairs = [F.substring(digest, position, 2) for position in (7, 5, 3, 1)]
    return F.conv(F.concat(*pairs), 16, 10).cast("bigint")


def _hash() -> Column:
    """Return the hash that places a message; null where no `added` was seen."""
    return shard_hash(F.when(F.col("added_at").isNotNull(), F.coalesce("partition_key", "id")))


def _told(text: str, *times: Column) -> Column:
    return F.format_string(text, *map(iso_text, times))


def _findings(
    found: DataFrame,
    kind: str,
    detail: Column,
    *,
    subscription: Column | None = None,
    as_of: int | None = None,
) -> DataFrame:
    nobody = F.lit(None).cast("string")
    return found.select(
        F.lit(kind).alias("kind"),
        *KEY,
        (nobody if subscription is None else subscription).alias("subscription"),
        detail.alias("detail"),
        F.lit(as_of).cast("bigint").alias("as_of"),
    ).select(*FINDINGS_TABLE.names)
