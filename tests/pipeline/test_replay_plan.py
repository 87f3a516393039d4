"""The plan of a replay: what is chosen, in which order, under which ids."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.model.ids import parse_id, time_of
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.schemas import EVENTS_TABLE, FINDINGS_TABLE, MESSAGES_TABLE
from fairbox_pipeline.times import Window
from fairbox_pipeline.transforms import replay
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STARTED = 1_800_000_000_000


def uid(n: int) -> str:
    return f"0198f3c2-{n >> 16:04x}-7{n >> 4 & 0xFFF:03x}-8def-{n:012x}"


def messages(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    made = []
    for n, row in enumerate(rows):
        whole = {"topic": "t", "epoch": 0, "shard": n % 4, "id": uid(n), "added_at": n, "size": 2}
        whole = {"state": "delivered", "ordering": "none", **whole, **row}
        made.append(tuple(whole.get(name) for name in MESSAGES_TABLE.names))
    return frame_of(spark, made, MESSAGES_TABLE.schema)


def ids(found: DataFrame) -> list[str]:
    return sorted(row["id"] for row in found.collect())


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"topics": ("a",)}, [0, 1]),
        ({"topics": ("a", "b")}, [0, 1, 2]),
        ({"keys": ("k",)}, [1, 2]),
        ({"keys": ("",)}, [3]),
        ({"states": ("dead",)}, [1]),
        ({"added": Window(20)}, [2, 3]),
        ({"added": Window(None, 20)}, [0, 1]),
        ({"topics": ("a",), "states": ("dead", "delivered"), "added": Window(10, 11)}, [1]),
    ],
)
def test_a_choice_narrows_by_everything_that_it_names(
    spark: SparkSession, choice: dict[str, Any], expected: list[int]
) -> None:
    table = messages(
        spark,
        {"topic": "a", "added_at": 0},
        {"topic": "a", "added_at": 10, "partition_key": "k", "state": "dead"},
        {"topic": "b", "added_at": 20, "partition_key": "k"},
        {"topic": "c", "added_at": 30, "partition_key": ""},
        {"topic": "a", "added_at": None},  # never seen as added: nothing is known of it
    )
    assert ids(replay.chosen(table, **choice)) == [uid(n) for n in expected]


def found(*rows: tuple[str, int, int | None], shard: int | None = None) -> list[tuple[Any, ...]]:
    return [
        (kind, "t", 0, n % 4 if shard is None else shard, uid(n), None, "", as_of)
        for kind, n, as_of in rows
    ]


def test_findings_choose_what_they_name(spark: SparkSession) -> None:
    table = messages(spark, {}, {}, {})
    rows = found(("lost", 1, 5), ("wrong_shard", 1, None), ("stuck", 2, 5), ("duplicated", 0, None))
    findings = frame_of(spark, rows + found(("lost", 0, 5), shard=9), FINDINGS_TABLE.schema)

    def named(*kinds: str) -> list[tuple[Any, ...]]:
        chosen = replay.named_by(table, findings, kinds).orderBy("id").collect()
        return [(row["id"], row["finding"], row["as_of"]) for row in chosen]

    assert named("lost") == [(uid(1), "lost", 5)]
    assert named("lost", "stuck", "wrong_shard", "duplicated") == [
        (uid(0), None, None),
        (uid(1), "lost", 5),
        (uid(2), "stuck", 5),
    ]


def test_a_finding_that_the_history_no_longer_has_is_settled(spark: SparkSession) -> None:
    waits = {"state": "outstanding", "last_at": 5}
    table = messages(
        spark,
        waits,
        waits | {"last_at": 6},  # seen since
        waits | {"last_at": 6},  # tried since, and still stuck
        waits | {"state": "delivered"},
        waits,  # another replay has taken it since
        waits,  # and this one before
        {"state": "delivered", "last_at": 9},  # a duplicate is one for ever
    )
    kinds = ("lost", "lost", "stuck", "stuck", "lost", "lost", "duplicated")
    rows = found(*((kind, n, 5) for n, kind in enumerate(kinds)))
    named = replay.named_by(table, frame_of(spark, rows, FINDINGS_TABLE.schema), kinds)
    taken = [("t", 0, n % 4, uid(n), at) for n, at in ((4, 6), (5, 5))]
    replays = frame_of(
        spark, taken, "topic string, epoch long, shard long, id string, planned_at long"
    )
    assert ids(replay.settled(named, replays)) == [uid(1), uid(3), uid(4)]


@pytest.fixture
def many(spark: SparkSession) -> DataFrame:
    chance = random.Random(1)
    keys = ["", "a", "b", "c", None, "é"]
    rows = [
        {"topic": chance.choice("xy"), "partition_key": chance.choice(keys)} for _ in range(900)
    ]
    return messages(spark, *rows).repartition(5)


def planned(many: DataFrame, **more: Any) -> list[Any]:
    options = {"replay": "r", "started": STARTED, "same_ids": False, **more}
    chosen = many.withColumn("finding", F.lit(None).cast("string"))
    return replay.planned(chosen, **options).orderBy("position").collect()


def test_new_ids_are_ids_all_different_and_ascend_with_the_place(many: DataFrame) -> None:
    rows = planned(many)
    assert [row["position"] for row in rows] == list(range(1, 901))
    assert sorted(row["id"] for row in rows) == [row["id"] for row in rows]
    assert sorted({row["new_id"] for row in rows}) == [row["new_id"] for row in rows]
    for row in rows:
        parse_id(row["new_id"])
        assert time_of(row["new_id"]) == STARTED
    assert {row["planned_at"] for row in rows} == {STARTED}


def test_the_same_replay_makes_the_same_ids_and_another_makes_others(many: DataFrame) -> None:
    first = {row["id"]: row["new_id"] for row in planned(many)}
    assert {row["id"]: row["new_id"] for row in planned(many.repartition(3))} == first
    other = {row["id"]: row["new_id"] for row in planned(many, replay="s")}
    assert not set(other.values()) & set(first.values())
    same = planned(many, same_ids=True)
    assert all(row["id"] == row["new_id"] for row in same)


def test_content_is_that_of_the_earliest_added(spark: SparkSession) -> None:
    table = messages(spark, {})
    at = {"event": "added", "topic": "t", "epoch": 0, "shard": 0, "id": uid(0)}
    rows = [
        at | {"at": 5, "event_id": "b", "body": "later"},
        at | {"at": 4, "event_id": "c", "body": "first", "headers": {"h": "v"}},
        at | {"at": 3, "event_id": "d", "event": "delivered"},
    ]
    events = frame_of(
        spark,
        [tuple(row.get(name) for name in EVENTS_TABLE.names) for row in rows],
        EVENTS_TABLE.schema,
    )
    (found,) = replay.with_content(table, events).collect()
    assert (found["body"], found["headers"]) == ("first", {"h": "v"})


def test_units_are_whole_kilobytes_by_item(spark: SparkSession) -> None:
    table = frame_of(
        spark,
        [
            ("a", "k", None, "{}", None, 100),
            ("a", None, {"h": "v"}, None, None, 900),
            ("b", None, None, None, "s3://b/k", 500_000),
        ],
        "topic string, partition_key string, headers map<string,string>, body string, "
        "body_uri string, size long",
    )
    found = {row["topic"]: row.asDict() for row in replay.units(table).collect()}
    assert found["a"] == {"topic": "a", "messages": 2, "bytes": 1000, "wru": 3, "without_body": 1}
    assert (found["b"]["wru"], found["b"]["without_body"]) == (1, 0)
