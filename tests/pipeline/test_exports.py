"""Exports: every item as the library writes it, and what is cut or of another form is refused."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, MessageRef
from fairbox.model.epochs import Epoch
from fairbox.model.topic_states import TopicState
from fairbox.model.topics import Subscription, Topic
from fairbox.tables.batch_records import item_of
from fairbox.tables.batch_values import FailedItems, Leaf, Node, Root
from fairbox.tables.stored_messages import message_item, stored_item
from fairbox.tables.topic_rows import subscription_item, topic_item
from fairbox_pipeline import exports
from fairbox_pipeline.errors import UsageError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.exporting import Bucket, lines_of
from tests.pipeline.writing import added, ended, event, write
from tests.support import strategies

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Pipeline

SHARD_ROW = {"pk": {"S": "ready#orders#0#1"}, "sk": {"S": "!"}, "rc": {"N": "3"}}
BATCH_META = {"pk": {"S": "b"}, "sk": {"S": "meta"}}


def test_every_message_that_the_outbox_holds_is_read(spark: SparkSession) -> None:
    @settings(max_examples=10)
    @given(st.lists(strategies.stored(), min_size=1, max_size=5))
    def check(stored: list[Any]) -> None:
        written = [
            stored_item(one, message_item(one.message, one.ref, bucket="b")[0]) for one in stored
        ]
        found = exports.messages(lines_of(spark, [*written, SHARD_ROW])).collect()
        refs = [one.ref for one in stored if one.gone is None and not is_dead(one)]
        assert {tuple(row) for row in found} == {(r.topic, r.epoch, r.shard, r.id) for r in refs}

    def is_dead(one: Any) -> bool:
        item = stored_item(one, message_item(one.message, one.ref, bucket="b")[0])
        return bool(item["pk"]["S"].startswith("dead#"))

    check()


def test_a_topic_row_gives_its_name_and_its_epochs(spark: SparkSession) -> None:
    epochs = (Epoch(0, 8, 5, closed=9), Epoch(1, 12, 70))
    row = topic_item(TopicState(Topic("orders", shards=12), epochs))
    other = subscription_item(Subscription("orders", "billing", "sqs:billing"))
    (found,) = exports.topics(lines_of(spark, [row, other, SHARD_ROW]))
    assert (found["topic"], found["epochs"]) == ("orders", [[0, 8, 5, 9], [1, 12, 70]])


def test_every_item_of_a_batch_that_matters_is_read(spark: SparkSession) -> None:
    records: list[Any] = [
        Root("b", "open", 5, "u", bits=3, next_group=2, total=9, failed=1),
        Node("b", 4, 0b101),
        Leaf("b", 17, 0b11, count=2, size=9),
        FailedItems("b", 18, 0b100, 9),
    ]
    items = [*(item_of(record) for record in records), BATCH_META]
    rows = exports.trackers(lines_of(spark, items)).orderBy("record").collect()
    assert [tuple(row) for row in rows] == [
        ("failed", "b", 18, bytearray(b"\4\0"), None, None, None, None),
        ("leaf", "b", 17, bytearray(b"\3\0"), 9, 0, None, None),
        ("root", "b", None, rows[2]["bits"], None, 1, "open", 9),
    ]


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path / "a [b] {c}*")


def test_an_export_is_found_by_its_folder_or_its_manifests(
    spark: SparkSession, bucket: Bucket
) -> None:
    folder = bucket.full([held(1), SHARD_ROW])
    for place in (folder, folder / "manifest-summary.json", folder / "manifest-files.json"):
        export = exports.read_export(spark, str(place))
        assert export is not None
        assert (export.time, export.lines.count()) == (TAKEN, 2)
    assert exports.read_export(spark, str(bucket.root)) is None
    empty = exports.read_export(spark, str(bucket.full([])))
    assert empty is not None
    assert exports.messages(empty.lines).isEmpty()


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"exportType": "INCREMENTAL_EXPORT"}, "INCREMENTAL_EXPORT in DYNAMODB_JSON, expected"),
        ({"outputFormat": "ION"}, "FULL_EXPORT in ION, expected"),
        ({"itemCount": 3}, "no finished export: manifest-summary.json counts 3 items, .* 2"),
        ({"exportTime": "yesterday"}, "the manifest cannot be read"),
    ],
)
def test_what_is_no_full_export_is_refused(
    spark: SparkSession, bucket: Bucket, about: dict[str, Any], told: str
) -> None:
    folder = bucket.full([held(1), held(2)], **about)
    with pytest.raises(UsageError, match=told):
        exports.read_export(spark, str(folder))


def test_a_data_file_that_is_cut_other_or_lost_is_named(
    spark: SparkSession, bucket: Bucket
) -> None:
    folder = bucket.full([held(1), held(2)])
    entry = json.loads((folder / "manifest-files.json").read_text().splitlines()[0])
    path = folder.parents[2] / entry["dataFileS3Key"]
    content = path.read_bytes()
    for other, told in (
        (gzip.compress(b'{"Item":{"pk":{"S":"a"},"sk":{"S":"b"}}}\n' * 2), "holds 2 items"),
        (gzip.compress(b'{"Item":{"pk":{"S":"a"}}}\n'), "holds 0 items with pk and sk"),
        (content[:-9], "cannot be read: java.io.EOFException: Unexpected end of input stream"),
        (b"no gzip", "cannot be read: java.io"),
        (None, "missing"),
    ):
        path.unlink()
        if other is not None:
            path.write_bytes(other)
        with pytest.raises(UsageError, match=told) as raised:
            exports.read_export(spark, str(folder))
        assert path.name in str(raised.value)
        assert "\n" not in str(raised.value)
        spark.catalog.clearCache()


HOUR = 3_600_000
TAKEN = 1_795_064_400_000  # 2026-11-19T05:00:00Z


def held(n: int, **more: Any) -> dict[str, Any]:
    line = added(n)
    message = Message(topic="orders", body=b"{}", id=line["id"])
    ref = MessageRef("orders", 0, line["shard"], line["id"])
    return message_item(message, ref, bucket=None)[0] | more


def test_reconcile_judges_by_what_an_export_held_when_it_was_taken(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    lines = [added(n, at=TAKEN - HOUR) for n in range(6)]
    # five minutes after the snapshot: put back, and on its way again
    lines += [ended("dead", 5, at=TAKEN - 100), event("redriven", 5, at=TAKEN + 300_000)]
    write(pipeline.archive, lines)
    bucket = Bucket(tmp_path / "bucket")
    leaving = held(2, g={"S": "cancelled"})
    full = str(bucket.full([held(0), held(1), leaving, SHARD_ROW]))

    found = pipeline.run("reconcile", "--outstanding", full, "--stuck-after", "1800")

    # 2 was on its way out, 3 and 4 are not there
    assert (found["added"], found["outstanding"], found["lost"], found["stuck"]) == (6, 2, 3, 2)
    findings = [row for row in pipeline.rows("findings") if row["kind"] in ("lost", "stuck")]
    assert {row["id"] for row in findings if row["kind"] == "lost"} == {
        added(n)["id"] for n in (2, 3, 4)
    }
    assert {row["as_of"] for row in findings} == {TAKEN}
    # a list has no time of its own: it is told, or nobody knows
    named = tmp_path / "held.ndjson"
    named.write_text(json.dumps({k: added(0)[k] for k in ("topic", "epoch", "shard", "id")}))
    again = pipeline.run("reconcile", "--outstanding", str(named), "--as-of", str(TAKEN))
    assert (again["outstanding"], again["lost"]) == (1, 4)
    assert pipeline.run("reconcile", "--outstanding", str(named))["lost"] == 5


@pytest.mark.extended  # runs of their own
def test_a_snapshot_that_cannot_judge_stops_reconcile_in_one_line(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    write(pipeline.archive, [added(0, at=TAKEN)])
    bucket = Bucket(tmp_path / "bucket")
    old = bucket.full([held(0)], at="2026-11-18T05:00:00Z")
    cut = bucket.full([held(0)])
    for file in (cut / "data").glob("*x0.json.gz"):
        file.write_bytes(file.read_bytes()[:-9])
    for folder, told in (
        (old, "the snapshot of 2026-11-18T05:00:00.000Z is older than the archive"),
        (cut, "cannot be read: java.io.EOFException: Unexpected end of input stream"),
    ):
        assert pipeline.code("reconcile", "--outstanding", str(folder)) == 2
        written = pipeline.capsys.readouterr().err.splitlines()
        assert written[-1].startswith("fairbox: ")
        assert told in written[-1]
    assert pipeline.rows("findings") == []
