"""Batch progress from the history against the trackers: agreement, and every way to differ."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fairbox.tables.batch_records import item_of
from fairbox.tables.batch_values import FailedItems, Leaf, Root
from fairbox_pipeline import exports
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.transforms import batches
from pyspark.sql import functions as F

from tests.pipeline.exporting import lines_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = "batch_item string, state string, delivered_at long, dead_at long"


def carried(spark: SparkSession, *rows: tuple[str | None, str, int]) -> DataFrame:
    """Messages: (item, state, time of its end)."""
    made = [
        (item, state, at if state == "delivered" else None, at if state == "dead" else None)
        for item, state, at in rows
    ]
    return frame_of(spark, made, MESSAGES)


def tracker_rows(spark: SparkSession, *records: Any) -> DataFrame:
    return exports.trackers(lines_of(spark, [item_of(record) for record in records]))


def compared(messages: DataFrame, trackers: DataFrame) -> tuple[list[dict[str, Any]], list[Any]]:
    leaves = batches.leaves_of(trackers)
    roots = batches.trackers_by_batch(trackers, leaves)
    found = batches.tracked(batches.items_of(messages), leaves, roots)
    rows = batches.by_batch(found, roots).orderBy("batch").collect()
    odd = batches.differing(found, 10).collect()
    return [row.asDict(recursive=True) for row in rows], [tuple(row) for row in odd]


def test_deliveries_ack_deaths_fail_and_an_item_counts_once(spark: SparkSession) -> None:
    messages = carried(
        spark,
        ("b:0:0", "delivered", 5),
        ("b:0:0", "dead", 6),
        ("b:0:1", "dead", 5),
        ("b:0:1", "delivered", 6),
        ("b:0:2", "outstanding", 0),
        ("b:1:0", "cancelled", 0),
        ("c:0:0", "delivered", 5),
        (None, "delivered", 5),
        ("no item", "delivered", 5),
    )
    rows, _ = compared(messages, tracker_rows(spark))
    names = ("batch", "items_seen", "acked", "failed", "pending", "agrees")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("b", 4, 1, 1, 2, None),
        ("c", 1, 1, 0, 0, None),
    ]
    odd = batches.malformed_items(messages).collect()
    assert [tuple(row) for row in odd] == [("no item", 1)]


def test_the_first_of_batches_says_since_when_their_messages_are_read(spark: SparkSession) -> None:
    one, other = "0198f7a2-0000-7000-8000-000000000000", "0198f7a1-ffff-7000-8000-000000000000"

    def opened(*batch_items: str | None) -> int | None:
        messages = carried(spark, *((item, "delivered", 5) for item in batch_items))
        return batches.opened(batches.batches_of(messages))

    assert opened(None, "no item") is None
    assert opened(f"{one}:0:0", f"{other}:3:1", f"{one}:0:1") == 0x0198F7A1FFFF
    assert opened(f"{one}:0:0", "b9d2c1f0-0000-4000-8000-000000000000:0:0") == 0


def test_bits_are_read_as_the_library_writes_them(spark: SparkSession) -> None:
    chance = random.Random(4)
    wanted = {}
    leaves = []
    for group in range(20):
        size = chance.choice([1, 7, 8, 9, 64, 7168])
        pending = chance.getrandbits(size)
        leaves.append(Leaf("b", group, pending, count=pending.bit_count(), size=size))
        for index in {0, size - 1, chance.randrange(size)}:
            wanted[group, index] = bool(pending >> index & 1)
    table = tracker_rows(spark, *leaves)
    asked = frame_of(spark, [(g, i) for g, i in wanted], "number long, index long")
    rows = table.join(asked, "number").select(
        "number", "index", batches.bit(F.col("bits"), F.col("index")).alias("set")
    )
    assert {(r["number"], r["index"]): r["set"] for r in rows.collect()} == wanted


def test_a_tracker_that_says_what_the_history_says_agrees(spark: SparkSession) -> None:
    trackers = tracker_rows(
        spark,
        Root("b", "sealed", 1, bits=1, next_group=1, total=5, failed=0),
        Leaf("b", 0, 0b00100, count=1, size=5, failed=1),
        FailedItems("b", 0, 0b00010, 5),
    )
    messages = carried(
        spark, ("b:0:0", "delivered", 5), ("b:0:1", "dead", 5), ("b:0:2", "outstanding", 0)
    )
    ((row,), odd) = compared(messages, trackers)
    assert row == {
        "batch": "b",
        "items_seen": 3,
        "acked": 1,
        "failed": 1,
        "pending": 1,
        "tracker": {"state": "sealed", "total": 5, "acked": 3, "failed": 1, "pending": 1},
        "differing": 0,
        "agrees": True,
    }
    assert odd == []


def test_every_difference_is_named(spark: SparkSession) -> None:
    # each in a batch of its own: item, state, what history and tracker say
    told = [
        ("b0:0:0", "delivered", "acked", "pending"),
        ("b1:0:1", "delivered", "acked", "failed"),
        ("b2:0:2", "dead", "failed", "acked"),
        ("b3:0:0", "dead", "failed", "pending"),
        ("b4:0:9", "delivered", "acked", "unknown"),
        ("b5:7:0", "delivered", "acked", "unknown"),
    ]
    names = [item.partition(":")[0] for item, *_ in told]
    trackers = tracker_rows(
        spark,
        *(Root(name, "open", 1, bits=1, next_group=1, total=3) for name in names),
        *(Leaf(name, 0, 0b001, count=1, size=3, failed=1) for name in names),
        *(FailedItems(name, 0, 0b010, 3) for name in names),
    )
    messages = carried(spark, *((item, state, 5) for item, state, _, _ in told))
    rows, odd = compared(messages, trackers)
    assert [(row["batch"], row["agrees"], row["differing"]) for row in rows] == [
        (name, False, 1) for name in names
    ]
    assert odd == [(item, outcome, tracked) for item, _, outcome, tracked in told]


def test_an_item_settled_by_a_call_is_no_difference(spark: SparkSession) -> None:
    trackers = tracker_rows(
        spark,
        Root("b", "open", 1, bits=0, next_group=1, total=1),
        Leaf("b", 0, 0, count=0, size=1),
    )
    ((row,), odd) = compared(carried(spark, ("b:0:0", "outstanding", 0)), trackers)
    assert (row["agrees"], row["pending"], odd) == (True, 1, [])


def test_a_complete_batch_whose_groups_were_erased_is_compared_by_its_root(
    spark: SparkSession,
) -> None:
    trackers = tracker_rows(
        spark,
        Root("all", "complete", 1, total=2),
        Root("some", "complete", 1, total=2, failed=1),
        Root("gone", "reaped", 1, total=2),
    )
    messages = carried(
        spark,
        ("all:0:0", "delivered", 5),
        ("all:0:1", "dead", 5),
        ("some:0:0", "dead", 5),
        ("gone:0:0", "outstanding", 0),
    )
    rows, odd = compared(messages, trackers)
    assert {row["batch"]: row["agrees"] for row in rows} == {
        "all": False,
        "some": True,
        "gone": None,
    }
    assert odd == [("all:0:1", "failed", "acked")]


def test_batches_that_only_one_side_knows_have_nothing_to_compare(spark: SparkSession) -> None:
    trackers = tracker_rows(spark, Root("quiet", "open", 1, total=3))
    rows, _ = compared(carried(spark, ("lost:0:0", "delivered", 5)), trackers)
    assert [(r["batch"], r["items_seen"], r["tracker"] is None, r["agrees"]) for r in rows] == [
        ("lost", 1, True, None),
        ("quiet", 0, False, None),
    ]
    assert {row["differing"] for row in rows} == {None}
