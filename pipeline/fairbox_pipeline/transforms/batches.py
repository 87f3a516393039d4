"""Batch progress from the history and from the trackers, by item and by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from fairbox_pipeline.schemas import BATCHES_TABLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ITEM_ID: Final = "^([^:]+):([0-9]{1,18}):([0-9]{1,18})$"
ACKED: Final = "acked"
FAILED: Final = "failed"
PENDING: Final = "pending"
SETTLED: Final = "settled"
"""Acked or failed; the tracker no longer distinguishes them."""
_UUID7: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-7"
_ENDED: Final = ("cancelled", "reaped")
_OUTCOMES: Final = (ACKED, FAILED, PENDING)
_KINDS: Final = ("leaf", "failed")


def items_of(messages: DataFrame) -> DataFrame:
    """Return one row an item that a message carries: `batch`, `group`, `index`, `outcome`.

    A delivery acks and a death fails; of several messages for one item the first outcome stands, as
    it does in the tracker. Texts that are no item id are dropped: `malformed_items` counts them.
    """
    part = [F.regexp_extract("batch_item", ITEM_ID, n) for n in (1, 2, 3)]
    outcome = F.when(F.col("state") == "delivered", ACKED).when(F.col("state") == "dead", FAILED)
    at = F.coalesce("delivered_at", "dead_at")
    carried = messages.where(F.col("batch_item").rlike(ITEM_ID)).select(
        part[0].alias("batch"),
        part[1].cast("long").alias("group"),
        part[2].cast("long").alias("index"),
        F.when(outcome.isNotNull(), F.struct(at.alias("at"), outcome.alias("outcome"))).alias(
            "end"
        ),
    )
    first = F.coalesce(F.min("end")["outcome"], F.lit(PENDING)).alias("outcome")
    return carried.groupBy("batch", "group", "index").agg(first)


def batches_of(messages: DataFrame) -> DataFrame:
    """Return `batch`: the batches that messages carry items of."""
    carried = messages.where(F.col("batch_item").rlike(ITEM_ID))
    return carried.select(F.regexp_extract("batch_item", ITEM_ID, 1).alias("batch")).distinct()


def opened(batches: DataFrame) -> int | None:
    """Return when the first of batches was opened (ms), as its id says; None: there is none.

    0: an id does not say it.
    """
    time = F.concat(F.substring("batch", 1, 8), F.substring("batch", 10, 4))
    known = F.when(F.col("batch").rlike(_UUID7), time).otherwise("0")
    first = batches.agg(F.min(known)).collect()[0][0]
    return None if first is None else int(first, 16)


def malformed_items(messages: DataFrame) -> DataFrame:
    """One row a text that stands where an item id should: `batch_item`, `messages`."""
    odd = messages.where(F.col("batch_item").isNotNull() & ~F.col("batch_item").rlike(ITEM_ID))
    return odd.groupBy("batch_item").agg(F.count(F.lit(1)).alias("messages"))


def bit(bits: Column, index: Column) -> Column:
    """Return whether bit `index` of a bitfield is set: byte `index >> 3`, bit `index & 7`."""
    place = (F.floor(index / 8) + 1).cast("int")
    byte = F.conv(F.hex(F.substring(bits, place, F.lit(1))), 16, 10)
    number = F.coalesce(F.when(byte != "", byte).cast("int"), F.lit(0))
    return number.bitwiseAND(F.pow(F.lit(2), index % 8).cast("int")) > 0


def leaves_of(trackers: DataFrame) -> DataFrame:
    """One row a group: `batch`, `group`, `size`, `pending`, `failed` (bitfields)."""
    by_group = trackers.where(F.col("record").isin("leaf", "failed")).groupBy(
        "batch", F.col("number").alias("group")
    )
    of = {kind: F.max(F.when(F.col("record") == kind, F.struct("bits", "size"))) for kind in _KINDS}
    grouped = by_group.agg(of["leaf"].alias("leaf"), of["failed"].alias("gone"))
    return grouped.where(F.col("leaf").isNotNull()).select(
        "batch",
        "group",
        F.col("leaf.size").alias("size"),
        F.col("leaf.bits").alias("pending"),
        F.col("gone.bits").alias("failed"),
    )


def trackers_by_batch(trackers: DataFrame, leaves: DataFrame) -> DataFrame:
    """One row a batch: `batch`, `tracker` (struct of state, total, acked, failed, pending).

    While its groups are there, pending and failed are their set bits; of a batch whose groups were
    erased, the root knows.
    """
    counted = leaves.groupBy("batch").agg(
        F.sum(F.bitmap_count("pending")).alias("pending"),
        F.sum(F.coalesce(F.bitmap_count("failed"), F.lit(0))).alias("failed"),
    )
    roots = trackers.where(F.col("record") == "root").select(
        "batch", "state", "total", F.col("failed").alias("root_failed")
    )
    joined = roots.join(counted, "batch", "left")
    pending = F.coalesce("pending", F.lit(0))
    failed = F.coalesce("failed", "root_failed")
    return joined.select(
        "batch",
        F.struct(
            "state",
            "total",
            (F.col("total") - pending - failed).alias("acked"),
            failed.alias("failed"),
            pending.alias("pending"),
        ).alias("tracker"),
    )


def tracked(items: DataFrame, leaves: DataFrame, by_batch: DataFrame) -> DataFrame:
    """Add `tracked` to items: the tracker's state of each; null: unknown to it.

    `unknown`: an item that was never issued.
    """
    state = F.col("tracker.state")
    known = (
        F.when(F.col("index") >= F.col("size"), "unknown")
        .when(bit(F.col("pending"), F.col("index")), PENDING)
        .when(F.col("failed").isNotNull() & bit(F.col("failed"), F.col("index")), FAILED)
        .otherwise(ACKED)
    )
    erased = F.when(
        state == "complete", F.when(F.col("tracker.failed") == 0, ACKED).otherwise(SETTLED)
    ).when(~state.isin(*_ENDED), "unknown")
    joined = items.join(leaves, ["batch", "group"], "left").join(by_batch, "batch", "left")
    told = F.when(F.col("size").isNotNull(), known).otherwise(erased)
    return joined.select("batch", "group", "index", "outcome", "tracker", told.alias("tracked"))


def by_batch(items: DataFrame, of_trackers: DataFrame) -> DataFrame:
    """One row a batch, in the columns of table `batches`.

    Args:
        items: with `tracked` and `tracker`.
        of_trackers: `batch` and `tracker` of every batch.
    """
    differs = F.col("tracked").isNotNull() & ~_same()
    grouped = items.groupBy("batch").agg(
        F.count(F.lit(1)).alias("items_seen"),
        *(F.count(F.when(F.col("outcome") == kind, 1)).alias(kind) for kind in _OUTCOMES),
        F.when(F.count("tracked") > 0, F.count(F.when(differs, 1))).alias("differing"),
    )
    joined = of_trackers.join(grouped, "batch", "full_outer")
    known = joined.na.fill(0, ["items_seen", *_OUTCOMES])
    # a batch of which no message carried an item has nothing to compare
    return known.withColumn("agrees", F.col("differing") == 0).select(*BATCHES_TABLE.names)


def _same() -> Column:
    """Whether history and tracker agree on an item.

    An item of an outstanding message may have been settled by a call, which the history lacks.
    """
    settled = F.col("outcome").isin(ACKED, FAILED)
    return (
        (F.col("outcome") == F.col("tracked"))
        | (settled & (F.col("tracked") == SETTLED))
        | ((F.col("outcome") == PENDING) & F.col("tracked").isin(ACKED, FAILED, SETTLED))
    )


def differing(items: DataFrame, most: int) -> DataFrame:
    """Name items on which history and tracker differ, `most` at most."""
    odd = items.where(F.col("tracked").isNotNull() & ~_same())
    named = F.concat_ws(":", "batch", "group", "index").alias("item")
    first = odd.orderBy("batch", "group", "index").limit(most)
    return first.select(named, "outcome", "tracked")
