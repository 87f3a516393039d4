"""The plan of a replay: what is chosen, in which order, under which ids."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.model.ids import parse_id, time_of
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.schemas import EVENTS_TABLE, MESSAGES_TABLE
from fairbox_pipeline.transforms import replay
from fairbox_pipeline.transforms.replay import Choice

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
        (Choice(), [0, 1, 2, 3]),
        (Choice(topics=("a",)), [0, 1]),
        (Choice(topics=("a", "b")), [0, 1, 2]),
        (Choice(keys=("k",)), [1, 2]),
        (Choice(keys=("",)), [3]),
        (Choice(states=("dead",)), [1]),
        (Choice(since=20), [2, 3]),
        (Choice(until=20), [0, 1]),
        (Choice(topics=("a",), states=("dead", "delivered"), since=10, until=11), [1]),
    ],
)
def test_a_choice_narrows_by_everything_that_it_names(
    spark: SparkSession, choice: Choice, expected: list[int]
) -> None:
    table = messages(
        spark,
        {"topic": "a", "added_at": 0},
        {"topic": "a", "added_at": 10, "partition_key": "k", "state": "dead"},
        {"topic": "b", "added_at": 20, "partition_key": "k"},
        {"topic": "c", "added_at": 30, "partition_key": ""},
        {"topic": "a", "added_at": None},  # never seen as added: nothing is known of it
    )
    assert ids(replay.chosen(table, choice)) == [uid(n) for n in expected]


def test_findings_choose_what_they_name(spark: SparkSession) -> None:
    table = messages(spark, {}, {}, {})
    findings = frame_of(
        spark,
        [("lost", "t", 0, 1, uid(1)), ("stuck", "t", 0, 2, uid(2)), ("lost", "t", 9, 0, uid(0))],
        "kind string, topic string, epoch long, shard long, id string",
    )
    assert ids(replay.named_by(table, findings, ("lost",))) == [uid(1)]
    assert ids(replay.named_by(table, findings, ("lost", "stuck"))) == [uid(1), uid(2)]


@pytest.fixture
def many(spark: SparkSession) -> DataFrame:
    chance = random.Random(1)
    keys = ["", "a", "b", "c", None, "é"]
    rows = [
        {"topic": chance.choice("xy"), "partition_key": chance.choice(keys)} for _ in range(900)
    ]
    return messages(spark, *rows).repartition(5)


def planned(many: DataFrame, **more: Any) -> list[Any]:
    options = {"replay": "r", "lanes": 4, "started": STARTED, "same_ids": False, **more}
    laned = replay.planned(many.select("topic", "epoch", "shard", "id", "partition_key"), **options)
    return laned.orderBy("lane", "position").collect()


def test_new_ids_are_ids_all_different_and_ascend_with_the_place(many: DataFrame) -> None:
    rows = planned(many)
    assert len({row["new_id"] for row in rows}) == len(rows) == 900
    for row in rows:
        parse_id(row["new_id"])
        assert time_of(row["new_id"]) == STARTED
    lanes = defaultdict(list)
    for row in rows:
        lanes[row["lane"]].append(row)
    assert sorted(lanes) == [0, 1, 2, 3]
    for lane in lanes.values():
        assert [row["position"] for row in lane] == list(range(1, len(lane) + 1))
        assert sorted(row["new_id"] for row in lane) == [row["new_id"] for row in lane]


def test_a_key_has_one_lane_and_keeps_its_order(spark: SparkSession, many: DataFrame) -> None:
    keys = {row["id"]: (row["topic"], row["partition_key"]) for row in many.collect()}
    by_key = defaultdict(list)
    for row in planned(many):
        if keys[row["id"]][1] is not None:
            by_key[keys[row["id"]]].append(row)
    assert len(by_key) == 10
    for rows in by_key.values():
        assert len({row["lane"] for row in rows}) == 1
        assert sorted(row["id"] for row in rows) == [row["id"] for row in rows]
        assert sorted(row["new_id"] for row in rows) == [row["new_id"] for row in rows]


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
    assert replay.without_body(replay.with_content(table, events)).count() == 0


def test_units_are_whole_kilobytes_by_item(spark: SparkSession) -> None:
    table = frame_of(
        spark,
        [
            ("a", "k", None, None, 100),
            ("a", None, {"h": "v"}, None, 900),
            ("b", None, None, "s3://b/k", 500_000),
        ],
        "topic string, partition_key string, headers map<string,string>, body_uri string, "
        "size long",
    )
    found = {row["topic"]: row.asDict() for row in replay.units(table).collect()}
    assert found["a"] == {"topic": "a", "messages": 2, "bytes": 1000, "wru": 3}
    assert found["b"]["wru"] == 1
