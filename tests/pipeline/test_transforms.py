"""The steps on small frames, compared whole."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.model import sharding
from fairbox.model.epochs import shard_number
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.ingest import missing_days
from fairbox_pipeline.outstanding import KEYS
from fairbox_pipeline.schemas import EVENTS, EVENTS_TABLE, KEY, MESSAGES_TABLE
from fairbox_pipeline.transforms.deliveries import first_deliveries
from fairbox_pipeline.transforms.events import name_in_archive
from fairbox_pipeline.transforms.latency import latencies
from fairbox_pipeline.transforms.messages import merged, messages_of
from fairbox_pipeline.transforms.reconcile import (
    MAX_SHARDS,
    latest,
    out_of_order,
    shard_widths,
    stuck,
    wrong_shard,
)
from fairbox_pipeline.transforms.sizing import load_of_shards, load_of_topics, shards_needed
from pyspark.sql import functions as F

from tests.support.seeds import seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

HOUR = 3_600_000
Told = tuple[str, int] | tuple[str, int, str]


def event_rows(told: Sequence[Told], **fields: Any) -> list[tuple[Any, ...]]:
    """Make the events of one message from (event, at, subscription)."""
    rows = []
    for number, (event, at, *subscription) in enumerate(told):
        row: dict[str, Any] = dict.fromkeys(EVENTS_TABLE.names)
        row |= {"event": event, "at": at, "topic": "t", "epoch": 0, "shard": 0, "id": "m"}
        row |= {"event_id": str(number), "subscription": next(iter(subscription), None)} | fields
        rows.append(tuple(row.values()))
    return rows


def events(spark: SparkSession, *told: Told, **fields: Any) -> DataFrame:
    return frame_of(spark, event_rows(told, **fields), EVENTS_TABLE.schema)


def message(spark: SparkSession, **fields: Any) -> DataFrame:
    return messages(spark, fields)


def messages(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Make messages: what is not given is null, but for the key."""
    empty: dict[str, Any] = dict.fromkeys(MESSAGES_TABLE.names)
    key = {"topic": "t", "epoch": 0, "shard": 0, "id": "m"}
    told = [tuple((empty | key | row).values()) for row in rows]
    return frame_of(spark, told, MESSAGES_TABLE.schema)


STATES: list[tuple[list[Told], str]] = [
    ([("added", 1)], "outstanding"),
    ([("added", 1), ("failed", 2, "a")], "outstanding"),
    ([("delivered", 2, "a")], "delivered"),
    ([("delivered", 2, "a"), ("failed", 1, "a")], "delivered"),
    ([("delivered", 2, "a"), ("failed", 1, "b")], "outstanding"),
    ([("delivered", 2, "a"), ("dead", 3, "b"), ("redriven", 4)], "outstanding"),
    ([("dead", 5, "a"), ("redriven", 4)], "dead"),
    ([("dead", 5, "a"), ("redriven", 5), ("delivered", 1, "a")], "delivered"),
    ([("dead", 5, "a"), ("redriven", 6), ("dead", 7, "a")], "dead"),
    ([("dead", 5, "a"), ("expired", 1)], "expired"),
    ([("expired", 1), ("purged", 1)], "purged"),
    ([("purged", 1), ("cancelled", 9), ("delivered", 2, "a")], "cancelled"),
    ([("delivered", 2)], "delivered"),
    ([("failed", 1, "b"), ("cancelled", 2, "b"), ("delivered", 3, "a")], "delivered"),
    ([("cancelled", 2, "b")], "outstanding"),
    ([("cancelled", 2, "b"), ("failed", 3, "a")], "outstanding"),
    ([("cancelled", 2, "b"), ("cancelled", 3)], "cancelled"),
]


def test_the_state_is_the_first_that_holds_whatever_came_first(spark: SparkSession) -> None:
    rows: list[tuple[Any, ...]] = []
    for number, (told, _) in enumerate(STATES):
        rows += event_rows(told, id=f"{number}")
        rows += event_rows(told[::-1], id=f"{number} backwards")
    found = messages_of(frame_of(spark, rows, EVENTS_TABLE.schema), 1).collect()
    assert {row["id"]: row["state"] for row in found} == {
        f"{number}{order}": state
        for number, (_, state) in enumerate(STATES)
        for order in ("", " backwards")
    }


@pytest.mark.parametrize("seed", seeds(6))
def test_rows_of_any_parts_of_the_events_fold_into_the_row_of_all(
    spark: SparkSession, seed: int
) -> None:
    rng = random.Random(seed)
    halves: list[list[tuple[Any, ...]]] = [[], []]
    for number in range(60):
        told: list[Told] = []
        for _ in range(rng.randrange(2, 12)):
            event, at = rng.choice(sorted(EVENTS)), rng.randrange(5)
            name = rng.choice(["a", "b", ""])
            told.append((event, at, name) if name else (event, at))
        for row in event_rows(told, id=f"{number}"):
            fields = dict(zip(EVENTS_TABLE.names, row, strict=True))
            if fields["event"] == "added":
                fields |= {"size": rng.randrange(9), "due": rng.choice([None, 7])}
            fields["attempt"] = rng.choice([None, 1, 2])
            rng.choice(halves).append(tuple(fields.values()))
    one, other = (messages_of(frame_of(spark, rows, EVENTS_TABLE.schema), 2) for rows in halves)
    both = one.alias("one").join(other.alias("other"), list(KEY))
    folded = merged(lambda name: F.col(f"one.{name}"), lambda name: F.col(f"other.{name}"))
    found = {row["id"]: row for row in both.select(*folded.values()).collect()}
    whole = messages_of(frame_of(spark, halves[0] + halves[1], EVENTS_TABLE.schema), 2)
    expected = {row["id"]: row for row in whole.collect() if row["id"] in found}
    assert len(expected) > 20
    assert found == expected


def test_a_message_counts_and_times_its_events(spark: SparkSession) -> None:
    told: list[Told] = [
        ("added", 10),
        ("failed", 11, "b"),
        ("delivered", 30, "b"),
        ("delivered", 20, "a"),
        ("delivered", 25, "a"),
    ]
    (row,) = messages_of(events(spark, *told, size=7, destination="sqs:x", attempt=2), 1).collect()
    assert row.asDict(recursive=True) == dict.fromkeys(MESSAGES_TABLE.names) | {
        "topic": "t",
        "epoch": 0,
        "shard": 0,
        "id": "m",
        "state": "delivered",
        "size": 7,
        "added_at": 10,
        "added_event": "0",
        "folded": 1,
        "first_at": 10,
        "last_at": 30,
        "delivered_at": 30,
        "events": 5,
        "deliveries": 3,
        "failures": 1,
        "attempts": 2,
        "subscriptions": [
            taker("a", 20, deliveries=2, destination="sqs:x"),
            taker("b", 30, failures=1, destination="sqs:x"),
        ],
    }


def taker(
    name: str | None, at: int | None, *, deliveries: int = 1, failures: int = 0, **more: Any
) -> dict[str, Any]:
    return {
        "subscription": name,
        "destination": None,
        "first_delivered_at": at,
        "deliveries": deliveries,
        "failures": failures,
        "dead_at": None,
        "skipped": False,
    } | more


def test_percentiles_are_interpolated_and_hours_are_those_of_the_delivery(
    spark: SparkSession,
) -> None:
    times = [(HOUR - 1, HOUR + 9), (HOUR, HOUR + 20), (HOUR, HOUR + 30), (HOUR, 3 * HOUR)]
    rows = [
        {"id": str(n), "added_at": added, "subscriptions": [taker("s", at)]}
        for n, (added, at) in enumerate(times)
    ]
    rows.append({"id": "unknown", "added_at": None, "subscriptions": [taker("s", HOUR)]})
    figures = latencies(first_deliveries(messages(spark, *rows))).collect()
    longest = 2 * HOUR
    expected = [
        ("t", "s", "1970-01-01T01:00:00Z", 3, 20, 28, 29.8, 30, 3 / 3600),
        ("t", "s", "1970-01-01T03:00:00Z", 1, longest, longest, longest, longest, 1 / 3600),
        ("t", "s", None, 4, 25, 9 + 0.7 * longest, 0.9 + 0.97 * longest, longest, 4 / 7200),
    ]
    assert [tuple(row[:3]) for row in figures] == [row[:3] for row in expected]
    assert [tuple(row[3:]) for row in figures] == [pytest.approx(row[3:]) for row in expected]


def test_an_hour_that_no_calendar_has_is_told_in_milliseconds(spark: SparkSession) -> None:
    nanoseconds = 1_763_500_000_000_000_000  # from a producer that knows no better
    made = message(spark, added_at=0, subscriptions=[taker("s", nanoseconds)])
    hours = [row["hour"] for row in latencies(first_deliveries(made)).collect()]
    assert hours == [str(nanoseconds - nanoseconds % HOUR), None]


def test_a_topic_needs_a_shard_for_each_700_units_of_its_busiest_minute(
    spark: SparkSession,
) -> None:
    sizes_of = {
        "nothing": [0],
        "full": [1024 * 14_000],
        "over": [1024 * 14_000 + 1],
        "three": [1024 * 14_000] * 3,
    }
    rows: list[dict[str, Any]] = []
    for topic, sizes in sizes_of.items():
        of_topic = [
            {"id": str(n), "size": size, "added_at": 59_999} for n, size in enumerate(sizes)
        ]
        of_topic.append({"id": "later", "size": 1024 * 13_000, "added_at": 60_000})
        rows += [row | {"topic": topic} for row in of_topic]
    found = {tuple(row)[:2] for row in shards_needed(messages(spark, *rows)).collect()}
    assert found == {("nothing", 1), ("full", 1), ("over", 2), ("three", 3)}


def test_skew_is_of_the_newest_epoch_and_counts_its_empty_shards(spark: SparkSession) -> None:
    rows = [{"id": f"{n}", "epoch": 0, "shard": 9, "size": 1} for n in range(5)]
    rows += [{"id": f"{n}", "epoch": 1, "shard": s, "size": 2} for n, s in enumerate([3, 3, 0])]
    made = messages(spark, *rows)
    topics = load_of_topics(load_of_shards(made), shards_needed(made))
    assert [tuple(row)[:5] for row in topics.collect()] == [("t", 8, 11, 2 / (3 / 4), 1)]


def order_of(spark: SparkSession, *told: tuple[str, int, int], ordering: str = "key") -> list[str]:
    """Return the late ids of (id, shard, delivered at) of one key."""
    rows = [
        {
            "id": id_,
            "shard": shard,
            "epoch": shard,
            "partition_key": "",
            "ordering": ordering,
            "subscriptions": [taker("s", at, deliveries=2)],
        }
        for id_, shard, at in told
    ]
    late = out_of_order(first_deliveries(messages(spark, *rows)))
    return sorted(row["id"] for row in late.collect())


def test_a_smaller_id_after_a_greater_is_out_of_order_across_shards(spark: SparkSession) -> None:
    assert order_of(spark, ("b", 0, 1), ("a", 1, 2), ("c", 0, 3), ("b2", 0, 9)) == ["a", "b2"]


def test_what_comes_at_the_same_time_is_in_order(spark: SparkSession) -> None:
    assert order_of(spark, ("b", 0, 1), ("a", 1, 1)) == []


def test_a_topic_without_order_has_no_disorder(spark: SparkSession) -> None:
    assert order_of(spark, ("b", 0, 1), ("a", 1, 2), ordering="none") == []


def test_a_message_is_stuck_when_it_is_held_for_longer(spark: SparkSession) -> None:
    added_at = {"longer": 0, "not longer": 1, "unknown": None}
    held = frame_of(spark, [("t", 0, 0, id_) for id_ in added_at], KEYS)
    made = messages(spark, *({"id": id_, "added_at": at} for id_, at in added_at.items()))
    found = stuck(made, held, latest=1001, after_ms=1000).collect()
    assert [row["id"] for row in found] == ["longer"]
    assert stuck(made, held.limit(0), latest=1001, after_ms=1000).count() == 0


def test_an_event_of_the_future_does_not_end_the_archive(spark: SparkSession) -> None:
    ends = {"now": 5_000, "clocks": 5_000 + 299_000, "year 2203": 7_360_000_000_000}
    made = messages(spark, *({"id": id_, "last_at": at} for id_, at in ends.items()))
    assert latest(made, now=5_000) == 304_000
    assert latest(made.limit(0), now=5_000) == 0


def placed(width: int, *keys: str, **moved: int) -> list[dict[str, Any]]:
    """Make messages of keys in their shards of so many, but for those that are moved."""
    shards = {key: shard_number(key, width) for key in keys} | moved
    return [
        {"id": key, "partition_key": key, "added_at": 1, "shard": shard}
        for key, shard in shards.items()
    ]


def misplaced(spark: SparkSession, rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    found = wrong_shard(messages(spark, *rows)).collect()
    return sorted((row["id"], row["detail"]) for row in found)


@pytest.mark.extended
def test_few_messages_that_miss_the_highest_shards_are_in_no_wrong_shard(
    spark: SparkSession,
) -> None:
    rows = [
        row | {"topic": f"{width}-{count}"}
        for width in (5, 8, 100, MAX_SHARDS)
        for count in (1, 2, 3, 5, 9)
        for row in placed(width, *(f"key {n}" for n in range(count)))
    ]
    # by the greatest shard that was seen, some of them would be wrong
    seen = {
        t: 1 + max(r["shard"] for r in rows if r["topic"] == t) for t in {r["topic"] for r in rows}
    }
    assert any(shard_number(r["id"], seen[r["topic"]]) != r["shard"] for r in rows)
    assert misplaced(spark, rows) == []
    assert MAX_SHARDS == sharding.MAX_SHARDS


@pytest.mark.extended
def test_what_one_width_explains_but_for_a_few_is_named_by_that_width(spark: SparkSession) -> None:
    keys = [f"key {n}" for n in range(12)]
    right = shard_number("odd", 8)
    rows = placed(8, *keys, odd=(right + 1) % 8)
    assert misplaced(spark, rows) == [("odd", f"belongs to shard {right} of 8")]
    # beyond the last shard, once with its key and once without
    far = [*placed(8, *keys, odd=13), {"id": "unknown", "shard": 3}]
    assert misplaced(spark, far) == [("odd", f"belongs to shard {right} of 8")]


@pytest.mark.extended
def test_of_two_that_exclude_each_other_none_is_named(spark: SparkSession) -> None:
    rows = placed(8, "a", a=0) + placed(8, "a", a=1)
    rows[1]["id"] = "b"
    assert misplaced(spark, rows) == []


@pytest.mark.extended
def test_where_another_hash_places_messages_the_greatest_shard_counts(spark: SparkSession) -> None:
    rows = placed(4, **{f"key {n}": n % 4 for n in range(80)})
    (widths,) = shard_widths(messages(spark, *rows)).collect()
    assert list(widths["widths"]) == [4]
    wrong = [r["id"] for r in rows if shard_number(r["id"], 4) != r["shard"]]
    assert [id_ for id_, _ in misplaced(spark, rows)] == sorted(wrong)


@pytest.mark.extended
def test_a_key_of_many_messages_proves_no_more_than_one(spark: SparkSession) -> None:
    rows = placed(8, "a", "b", "c", "d")
    many = [rows[0] | {"id": f"again {n}", "shard": 1 - rows[0]["shard"] % 2} for n in range(20)]
    named = misplaced(spark, rows + many)
    assert {id_ for id_, _ in named} == {row["id"] for row in many}


def test_a_file_has_one_name_whatever_part_of_the_archive_is_read(spark: SparkSession) -> None:
    told = [
        ("file:/a/dt=2026-01-01/hour=05/x.json.gz", "/a", "dt=2026-01-01/hour=05/x.json.gz"),
        ("file:/a/dt=2026-01-01/x.json.gz", "/a/dt=2026-01-01", "dt=2026-01-01/x.json.gz"),
        ("s3://b/a/deep/x.json.gz", "s3://b/a/", "deep/x.json.gz"),
    ]
    names = [name_in_archive(F.lit(uri), archive) for uri, archive, _ in told]
    (row,) = spark.range(1).select(*names).collect()
    assert list(row) == [name for _, _, name in told]


def test_missing_days_lie_between_the_first_and_the_last() -> None:
    assert missing_days(["2026-03-01", "2026-02-27", "", "2026-13-99"]) == ("2026-02-28",)
    assert missing_days([]) == ()
