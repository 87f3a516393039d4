"""The steps on small frames, compared whole."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.model import epochs
from fairbox.model.epochs import shard_number
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.ingest import missing_days
from fairbox_pipeline.jobs.advise import dead_causes
from fairbox_pipeline.outbox import KEYS, KnownTopic, widths_of
from fairbox_pipeline.schemas import EVENTS, EVENTS_TABLE, KEY, MESSAGES_TABLE
from fairbox_pipeline.transforms.events import name_in_archive
from fairbox_pipeline.transforms.latency import first_deliveries, latencies
from fairbox_pipeline.transforms.messages import merged, messages_of
from fairbox_pipeline.transforms.reconcile import (
    MAX_SHARDS,
    UNSETTLED_MS,
    latest,
    lost,
    out_of_order,
    shard_hash,
    stuck,
    wrong_shard,
)
from fairbox_pipeline.transforms.sizing import shards_needed
from pyspark.sql import functions as F

from tests.support.seeds import seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/hashing.md"
_VECTOR = re.compile(r'^\| `("[^`]*")(?: \* (\d+))?` \|(.*)\|$', re.MULTILINE)
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
            fields["precision"] = rng.choice([None, "s"])
            fields["reason"] = rng.choice([None, "no", "down"])
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
        "precision": None,
        "reason": None,
    } | more


def test_a_cause_of_death_is_the_last_of_each_subscription_since_a_redrive(
    spark: SparkSession,
) -> None:
    takers = [
        taker("a", None, dead_at=5, reason="before"),
        taker("b", None, dead_at=7, reason="max_attempts: HTTP 503"),
        taker("c", 9),
    ]
    dead = {"state": "dead", "redriven_at": 6, "subscriptions": [tuple(t.values()) for t in takers]}
    waits = dead | {"id": "other", "state": "outstanding"}
    (row,) = dead_causes(messages(spark, dead, waits), 10).collect()
    assert row[:4] == ("t", "b", "HTTP *", 1)


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
    assert [tuple(row[3:-1]) for row in figures] == [pytest.approx(row[3:]) for row in expected]


def waited(spark: SparkSession, *told: tuple[int, int | None, int, str | None]) -> list[Any]:
    """Return the latencies of (added, due, delivered, precision), in order."""
    rows = [
        {
            "id": str(n),
            "added_at": added,
            "due": due,
            "subscriptions": [taker("s", at, precision=precision)],
        }
        for n, (added, due, at, precision) in enumerate(told)
    ]
    found = first_deliveries(messages(spark, *rows)).orderBy("id").collect()
    return [row["latency"] for row in found]


def test_less_than_a_second_of_whole_seconds_counts_as_one(spark: SparkSession) -> None:
    told = [(100, None, 1000, None), (100, None, 1000, "s"), (900, None, 1900, "s")]
    told += [(900, None, 900, "s"), (900, None, 890, None), (100, None, 3000, "s")]
    assert waited(spark, *told) == [900, 1000, 1000, 1000, -10, 2900]


def test_a_delayed_message_waits_from_when_it_is_due(spark: SparkSession) -> None:
    assert waited(spark, (0, 5000, 5010, None), (0, 5000, 5000, "s")) == [10, 1000]


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


def test_a_topic_may_shrink_by_the_load_of_a_week(spark: SparkSession) -> None:
    times: dict[str, list[int | None]]
    times = {"week": [0, 7 * 24 * HOUR], "less": [0, 7 * 24 * HOUR - 1], "unknown": [None]}
    rows = [
        {"topic": topic, "id": str(n), "added_at": at}
        for topic, every in times.items()
        for n, at in enumerate(every)
    ]
    found = shards_needed(messages(spark, *rows)).collect()
    assert {row["topic"]: row["may_shrink"] for row in found} == {
        "week": True,
        "less": False,
        "unknown": False,
    }


def order_of(
    spark: SparkSession,
    *told: tuple[str, int, int],
    ordering: str = "key",
    coarse: tuple[str, ...] = (),
) -> list[str]:
    """Return the late ids of (id, shard, delivered at) of one key."""
    rows = [
        {
            "id": id_,
            "shard": shard,
            "epoch": shard,
            "partition_key": "",
            "ordering": ordering,
            "subscriptions": [
                taker("s", at, deliveries=2, precision="s" if id_ in coarse else None)
            ],
        }
        for id_, shard, at in told
    ]
    late = out_of_order(first_deliveries(messages(spark, *rows)))
    return sorted(row["id"] for row in late.collect())


def test_a_smaller_id_after_a_greater_is_out_of_order_across_shards(spark: SparkSession) -> None:
    assert order_of(spark, ("b", 0, 1), ("a", 1, 2), ("c", 0, 3), ("b2", 0, 9)) == ["a", "b2"]


def test_what_comes_within_one_second_of_whole_seconds_is_not_judged(spark: SparkSession) -> None:
    # b came between 0 and 1,000
    told = ("b", 0, 0), ("a", 0, 999), ("a2", 0, 1000)
    assert order_of(spark, *told, coarse=("b",)) == ["a2"]
    assert order_of(spark, *told) == ["a", "a2"]


def held(spark: SparkSession, *ids: str) -> DataFrame:
    return frame_of(spark, [("t", 0, 0, id_) for id_ in ids], KEYS)


def test_a_message_is_stuck_when_it_is_held_for_longer_than_it_is_due(spark: SparkSession) -> None:
    told: dict[str, dict[str, Any]] = {
        "longer": {"added_at": 0},
        "not longer": {"added_at": 1},
        "unknown": {"added_at": None, "due": 0},
        "delayed": {"added_at": 0, "due": 1},
        "delayed longer": {"added_at": -9, "due": 0},
        "redriven": {"added_at": 0, "redriven_at": 1},
    }
    made = messages(spark, *({"id": id_} | fields for id_, fields in told.items()))
    found = stuck(made, held(spark, *told), 1001, 1000, as_of=1001).collect()
    assert sorted(row["id"] for row in found) == ["delayed longer", "longer"]
    assert {row["as_of"] for row in found} == {1001}
    assert stuck(made, held(spark), 1001, 1000, as_of=None).count() == 0


def test_what_was_seen_since_the_snapshot_is_not_lost(spark: SparkSession) -> None:
    taken = 1_000_000
    last = {"long ago": taken - UNSETTLED_MS, "just before": taken - UNSETTLED_MS + 1}
    last |= {"since": taken + 300_000, "held": 0}
    made = messages(
        spark, *({"id": id_, "last_at": at, "state": "outstanding"} for id_, at in last.items())
    )
    found = lost(made, held(spark, "held"), taken).collect()
    assert [(row["id"], row["as_of"]) for row in found] == [("long ago", taken)]
    # of a list whose time nobody knows, all that it does not name is lost
    found = lost(made, held(spark, "held"), None).collect()
    assert {row["id"] for row in found} == set(last) - {"held"}


def test_an_event_of_the_future_does_not_end_the_archive(spark: SparkSession) -> None:
    ends = {"now": 5_000, "clocks": 5_000 + 299_000, "year 2203": 7_360_000_000_000}
    made = messages(spark, *({"id": id_, "last_at": at} for id_, at in ends.items()))
    assert latest(made, now=5_000) == 304_000
    assert latest(made.limit(0), now=5_000) == 0


def vectors() -> list[tuple[str, list[int]]]:
    return [
        (json.loads(text) * int(times or 1), [int(cell) for cell in cells.split("|")])
        for text, times, cells in _VECTOR.findall(PAGE.read_text(encoding="utf-8"))
    ]


def test_the_golden_vectors_of_shards_are_computed_natively(spark: SparkSession) -> None:
    golden = vectors()
    assert len(golden) >= 12
    key = F.col("key")
    columns = [shard_hash(key) % F.lit(n) for n in (8, 1000, 2**32)]
    frame = frame_of(spark, [(key,) for key, _ in golden], "key string")
    computed = [[int(n) for n in row] for row in frame.select(*columns).collect()]
    assert computed == [numbers[:3] for _, numbers in golden]
    plan = frame.select(*columns)._jdf.queryExecution().toString()
    assert "PythonUDF" not in plan
    assert "ArrowEval" not in plan


def placed(width: int, *keys: str, **moved: int) -> list[dict[str, Any]]:
    """Make messages of keys in their shards of so many, but for those that are moved."""
    shards = {key: shard_number(key, width) for key in keys} | moved
    return [
        {"id": key, "partition_key": key, "added_at": 1, "shard": shard}
        for key, shard in shards.items()
    ]


def misplaced(
    spark: SparkSession, rows: list[dict[str, Any]], known: dict[str, KnownTopic] | None = None
) -> list[tuple[str, str]]:
    made = messages(spark, *rows)
    found = wrong_shard(made, widths_of(spark, known or {}, made)).collect()
    return sorted((row["id"], row["detail"]) for row in found)


def test_a_message_is_in_a_wrong_shard_by_the_number_that_its_topic_states(
    spark: SparkSession,
) -> None:
    rows = placed(8, "a", "b", "c", d=(shard_number("d", 8) + 1) % 8)
    rows.append({"id": "unknown", "shard": 7})
    wrong = [("d", f"belongs to shard {shard_number('d', 8)} of 8")]
    assert misplaced(spark, rows, {"t": KnownTopic({0: 8, 1: 9}, "export")}) == wrong
    # nothing is known of this epoch
    assert misplaced(spark, rows, {"t": KnownTopic({1: 8}, "export")}) == []
    assert MAX_SHARDS == epochs.MAX_SHARDS


def test_where_nobody_states_it_the_greatest_shard_counts_if_it_explains_most_keys(
    spark: SparkSession,
) -> None:
    keys = [f"key {n}" for n in range(40)]
    right = shard_number("odd", 8)
    rows = placed(8, *keys, odd=(right + 1) % 8)
    assert misplaced(spark, rows) == [("odd", f"belongs to shard {right} of 8")]
    # few keys, and none in the greatest shard
    few = placed(100, *keys[:5])
    assert max(row["shard"] for row in few) < 99
    assert misplaced(spark, few) == []


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
