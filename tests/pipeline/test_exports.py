"""Exports as snapshots: what is missing, cut or of another type is noticed."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, MessageRef
from fairbox.codec.messages import message_item
from fairbox_pipeline import exports
from fairbox_pipeline.errors import UsageError

from tests.pipeline.exporting import Bucket
from tests.pipeline.writing import added, ended, event, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Pipeline


def uid(n: int) -> str:
    return f"0198f3c2-7d7e-7abc-8def-{n:012x}"


def item(n: int, **more: Any) -> dict[str, Any]:
    message = Message(topic="orders", body=b"{}", id=uid(n), partition_key=f"k{n}", **more)
    return message_item(message, MessageRef("orders", 0, n % 8, uid(n), message.due), bucket=None)[
        0
    ]


ITEM = "0199c82c-c000-7611-a29f-6fbed82c07cd:0:7"
SHARD_ROW = {"pk": {"S": "ready#orders#0#1"}, "sk": {"S": "!"}, "rc": {"N": "3"}}


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path / "a [b] {c}*")


def test_an_export_gives_every_message_with_its_attributes(
    spark: SparkSession, bucket: Bucket
) -> None:
    folder = bucket.full([item(1), SHARD_ROW, item(2, delay=5), item(3, batch_item=ITEM)])
    for place in (folder, folder / "manifest-summary.json", folder / "manifest-files.json"):
        assert exports.is_export(spark, str(place))
    assert not exports.is_export(spark, str(bucket.root))
    with exports.messages(spark, str(folder)) as snapshot:
        rows = {row["id"]: row.asDict() for row in snapshot.items.collect()}
        assert snapshot.fault_report() is None
    assert sorted(rows) == [uid(1), uid(2), uid(3)]
    assert rows[uid(1)] == {
        "lane": "ready",
        "topic": "orders",
        "epoch": 0,
        "shard": 1,
        "id": uid(1),
        "partition_key": "k1",
        "content_type": "application/octet-stream",
        "size": 2,
        "batch_item": None,
        "gone": None,
        "due": None,
    }
    assert (rows[uid(2)]["lane"], rows[uid(2)]["due"]) == ("later", 0x0198F3C27D7E + 5000)
    assert rows[uid(3)]["batch_item"] == ITEM
    assert snapshot.time == 1_795_064_400_000


def test_an_empty_table_is_an_empty_snapshot(spark: SparkSession, bucket: Bucket) -> None:
    with exports.messages(spark, str(bucket.full([]))) as snapshot:
        assert snapshot.items.isEmpty()


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"exportType": "INCREMENTAL_EXPORT"}, "INCREMENTAL_EXPORT in DYNAMODB_JSON, expected"),
        ({"outputFormat": "ION"}, "FULL_EXPORT in ION, expected"),
        ({"itemCount": 3}, "summary counts 3 items, the files 2"),
        ({"exportTime": "yesterday"}, "the manifest cannot be read"),
    ],
)
def test_what_is_no_full_export_is_refused(
    spark: SparkSession, bucket: Bucket, about: dict[str, Any], told: str
) -> None:
    folder = bucket.full([item(1), item(2)], **about)
    with pytest.raises(UsageError, match=told):
        exports.messages(spark, str(folder))


@pytest.mark.parametrize("name", ["manifest-summary", "manifest-files"])
def test_an_export_that_is_not_finished_is_refused(
    spark: SparkSession, bucket: Bucket, name: str
) -> None:
    folder = bucket.full([item(1)])
    (folder / f"{name}.json").unlink()
    with pytest.raises(UsageError, match=f"no finished export at .*: {name}.json is missing"):
        exports.messages(spark, str(folder))


def test_a_data_file_that_is_cut_other_or_lost_is_named(
    spark: SparkSession, bucket: Bucket
) -> None:
    folder = bucket.full([item(1), item(2)])
    entry = json.loads((folder / "manifest-files.json").read_text().splitlines()[0])
    path = folder.parents[2] / entry["dataFileS3Key"]
    content = path.read_bytes()
    for other, told in (
        (gzip.compress(b'{"Item":{}}\n' * 2), "holds 2 items, the manifest says 1"),
        (content[:-9], "cannot be read: java.io.EOFException: Unexpected end of input stream"),
        (b"no gzip", "cannot be read: java.io"),
        (None, "missing"),
    ):
        path.unlink()
        if other is not None:
            path.write_bytes(other)
        with pytest.raises(UsageError, match=told) as raised, exports.messages(spark, str(folder)):
            pass
        assert path.name in str(raised.value)
        assert "\n" not in str(raised.value)
        if other is None:
            break


@pytest.mark.extended  # an export each
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"z": {"S": "2"}}, "z: is no N"),
        ({"z": {"N": "two"}}, "z: is no N"),
        ({"k": {"N": "7"}}, "k: is no S"),
        ({"i": {"NULL": True}}, "i: is no S"),
        ({"sk": {"N": "7"}}, "the line is no item with pk and sk"),
        ({"pk": {"S": "ready#orders#0"}}, "no lane of a shard"),
    ],
)
def test_an_attribute_of_another_type_is_named_and_never_null(
    spark: SparkSession, bucket: Bucket, change: dict[str, Any], told: str
) -> None:
    folder = bucket.full([item(1), item(2) | change, item(3)])
    with exports.messages(spark, str(folder)) as snapshot:
        assert sorted(row["id"] for row in snapshot.items.collect()) == [uid(1), uid(3)]
        report = snapshot.fault_report()
    assert report is not None
    assert report.startswith("1 items of arn:")
    assert told in report


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
    leaving, unread = held(2, g={"S": "cancelled"}), held(3, t={"N": "1"})
    full = str(bucket.full([held(0), held(1), leaving, unread, SHARD_ROW]))

    found = pipeline.run("reconcile", "--outstanding", full, "--stuck-after", "1800")

    # 2 was on its way out, 3 cannot be read, 4 is not there
    assert (found["added"], found["outstanding"], found["lost"], found["stuck"]) == (6, 2, 3, 2)
    assert "t: is no S" in pipeline.said
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
