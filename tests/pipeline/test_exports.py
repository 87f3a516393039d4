"""Exports as snapshots: what is missing, altered or of another type is noticed."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, MessageRef
from fairbox.batches.models import FailedItems, Leaf, Root
from fairbox.codec.batches import item_of
from fairbox.codec.messages import message_item
from fairbox_pipeline import exports
from fairbox_pipeline.errors import PipelineError, UsageError

from tests.pipeline.exporting import Bucket, checksum
from tests.pipeline.writing import added, write

if TYPE_CHECKING:
    from pathlib import Path

    from fairbox_pipeline.exports import Snapshot
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


def ids(snapshot: Snapshot) -> list[int]:
    with snapshot as found:
        return sorted(int(row["id"][-4:], 16) for row in found.items.collect())


def test_a_full_export_gives_every_message_with_its_attributes(
    spark: SparkSession, bucket: Bucket
) -> None:
    folder = bucket.full([item(1), SHARD_ROW, item(2, delay=5), item(3, batch_item=ITEM)])
    with exports.messages(spark, [str(folder)]) as snapshot:
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
    assert snapshot.time == "2026-11-19T05:00:00Z"


@pytest.mark.extended
def test_an_empty_table_is_an_empty_snapshot(spark: SparkSession, bucket: Bucket) -> None:
    assert ids(exports.messages(spark, [str(bucket.full([]))])) == []


@pytest.mark.extended  # an export of its own, and Spark over it: seconds
def test_checksums_under_either_name_and_manifests_by_path_are_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = Bucket(tmp_path, suffix=".checksum").full([item(1)])
    for path in (folder, folder / "manifest-summary.json", folder / "manifest-files.json"):
        assert exports.is_export(spark, str(path))
        assert ids(exports.messages(spark, [str(path)])) == [1]
    assert not exports.is_export(spark, str(tmp_path))


@pytest.mark.extended  # an export of its own, and Spark over it: seconds
def test_incremental_exports_change_what_the_full_one_says(
    spark: SparkSession, bucket: Bucket
) -> None:
    full = bucket.full([item(1), item(2), item(3)], at="2026-11-19T05:00:00Z")
    first = bucket.incremental(
        [{"put": item(4)}, {"delete": item(1)}, {"put": SHARD_ROW}],
        "2026-11-19T05:00:00Z",
        "2026-11-19T06:00:00Z",
    )
    second = bucket.incremental(
        [{"delete": item(4)}, {"put": item(1)}, {"put": item(5)}],
        "2026-11-19T06:00:00Z",
        "2026-11-19T07:00:00Z",
    )
    # in any order
    snapshot = exports.messages(spark, [str(second), str(full), str(first)])
    assert ids(snapshot) == [1, 2, 3, 5]
    assert snapshot.time == "2026-11-19T07:00:00Z"
    assert ids(exports.messages(spark, [str(full), str(first)])) == [2, 3, 4]


@pytest.mark.extended  # an export of its own, and Spark over it: seconds
def test_exports_that_make_no_snapshot_are_refused(spark: SparkSession, bucket: Bucket) -> None:
    full = bucket.full([item(1)])
    late = bucket.incremental([], "2026-11-19T05:30:00Z", "2026-11-19T06:00:00Z")
    for uris, told in (
        ([late], "not 0 full"),
        ([full, full], "not 2 full"),
        ([full, late], "between 2026-11-19T05:00:00Z and 2026-11-19T05:30:00Z"),
    ):
        with pytest.raises(UsageError, match=told):
            exports.messages(spark, [str(uri) for uri in uris])


def test_what_is_no_finished_export_is_said_so(spark: SparkSession, bucket: Bucket) -> None:
    folder = bucket.full([item(1)])
    (folder / "manifest-summary.json").unlink()
    with pytest.raises(UsageError, match="no finished export"):
        exports.messages(spark, [str(folder)])


def first_file(folder: Path) -> tuple[Path, dict[str, Any]]:
    entry = json.loads((folder / "manifest-files.json").read_text().splitlines()[0])
    return folder.parents[2] / entry["dataFileS3Key"], entry


@pytest.mark.parametrize("name", ["manifest-files", "manifest-summary"])
def test_a_manifest_that_was_altered_is_refused(
    spark: SparkSession, bucket: Bucket, name: str
) -> None:
    folder = bucket.full([item(1), item(2)])
    manifest = folder / f"{name}.json"
    manifest.write_text(manifest.read_text() + " ")
    with pytest.raises(PipelineError, match=f"{name}.json does not agree"):
        exports.messages(spark, [str(folder)])
    (folder / f"{name}.md5").unlink()
    with pytest.raises(PipelineError, match=r"checksum .* is missing"):
        exports.messages(spark, [str(folder)])


@pytest.mark.extended
def test_a_data_file_that_was_altered_cut_or_lost_is_refused(
    spark: SparkSession, bucket: Bucket
) -> None:
    folder = bucket.full([item(1), item(2)])
    path, _ = first_file(folder)
    content = path.read_bytes()
    for other, told in (
        (gzip.compress(b'{"Item":{}}\n'), "checksum"),
        (content[:-9], "checksum"),
        (b"", "missing or empty"),
    ):
        path.write_bytes(other)
        with pytest.raises(PipelineError, match=told), exports.messages(spark, [str(folder)]):
            pass
    path.unlink()
    with pytest.raises(PipelineError, match="missing"), exports.messages(spark, [str(folder)]):
        pass


@pytest.mark.extended  # an export of its own, and Spark over it: seconds
def test_counts_that_do_not_agree_are_refused(spark: SparkSession, bucket: Bucket) -> None:
    folder = bucket.full([item(1), item(2), item(3)])
    path, entry = first_file(folder)
    shorter = gzip.compress(gzip.decompress(path.read_bytes()).splitlines(keepends=True)[0])
    path.write_bytes(shorter)
    manifest = folder / "manifest-files.json"
    manifest.write_text(manifest.read_text().replace(entry["md5Checksum"], checksum(shorter)))
    bucket.resign(folder)
    told = "holds 1 items, the manifest says 2"
    with pytest.raises(PipelineError, match=told), exports.messages(spark, [str(folder)]):
        pass
    summary = folder / "manifest-summary.json"
    summary.write_text(summary.read_text().replace('"itemCount": 3', '"itemCount": 4'))
    bucket.resign(folder)
    with pytest.raises(PipelineError, match="summary counts 4 items, the files 3"):
        exports.messages(spark, [str(folder)])


@pytest.mark.extended  # an export of its own, and Spark over it: seconds
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"z": {"S": "2"}}, "z: is S, expected N"),
        ({"z": {"N": "two"}}, "z: 'two' is no N"),
        ({"k": {"N": "7"}}, "k: is N, expected S"),
        ({"i": {"NULL": True}}, "i: is NULL, expected S"),
        ({"sk": {"N": "7"}}, "sk: is N, expected S"),
        ({"pk": {"S": "ready#orders#0"}}, "no lane of a shard"),
    ],
)
def test_an_attribute_of_another_type_is_named_and_never_null(
    spark: SparkSession, bucket: Bucket, change: dict[str, Any], told: str
) -> None:
    folder = bucket.full([item(1), item(2) | change, item(3)])
    with exports.messages(spark, [str(folder)]) as snapshot:
        assert sorted(row["id"] for row in snapshot.items.collect()) == [uid(1), uid(3)]
        (fault,) = snapshot.faults.collect()
        assert told in fault["fault"]
        report = snapshot.fault_report()
    assert report is not None
    assert report.startswith("1 items of arn:")
    assert told in report


@pytest.mark.extended
def test_trackers_come_with_their_bits(spark: SparkSession, bucket: Bucket) -> None:
    records: list[Any] = [
        Root("b", "sealed", 5, "u", bits=1, next_group=1, total=9, failed=0),
        Leaf("b", 0, 0b110, count=2, size=9, failed=1),
        FailedItems("b", 0, 0b1, 9),
    ]
    folder = bucket.full([item_of(record) for record in records])
    with exports.trackers(spark, [str(folder)]) as snapshot:
        rows = {row["record"]: row for row in snapshot.items.collect()}
    assert sorted(rows) == ["failed", "leaf", "root"]
    assert (rows["root"]["state"], rows["root"]["total"]) == ("sealed", 9)
    assert int.from_bytes(rows["leaf"]["bits"], "little") == 0b110
    assert (rows["leaf"]["count"], rows["leaf"]["failed"]) == (2, 1)
    assert int.from_bytes(rows["failed"]["bits"], "little") == 0b1


@pytest.mark.extended  # the parts are tested above, the job in test_jobs
def test_reconcile_takes_an_export_for_what_the_outbox_holds(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    write(pipeline.archive, [added(n) for n in range(5)])
    bucket = Bucket(tmp_path / "bucket")

    def held(n: int, **more: Any) -> dict[str, Any]:
        line = added(n)
        message = Message(topic="orders", body=b"{}", id=line["id"])
        ref = MessageRef("orders", 0, line["shard"], line["id"])
        return message_item(message, ref, bucket=None)[0] | more

    leaving = held(2, g={"S": "cancelled"})
    full = bucket.full([held(0), held(1), leaving, held(3, t={"N": "1"}), SHARD_ROW])
    found = pipeline.run("reconcile", "--outstanding", str(full))
    # 2 is on its way out, 3 cannot be read, 4 is not there
    assert (found["added"], found["outstanding"], found["lost"]) == (5, 2, 3)
    assert "t: is N, expected S" in pipeline.said
    more = bucket.incremental(
        [{"put": held(4)}, {"delete": held(0)}], "2026-11-19T05:00:00Z", "2026-11-19T06:00:00Z"
    )
    found = pipeline.run("reconcile", "--outstanding", str(more), "--outstanding", str(full))
    assert (found["outstanding"], found["lost"]) == (2, 3)
    assert {row["id"] for row in pipeline.rows("findings") if row["kind"] == "lost"} == {
        added(n)["id"] for n in (0, 2, 3)
    }


@pytest.mark.extended  # a run of its own
def test_an_altered_export_stops_reconcile_in_one_line(pipeline: Pipeline, tmp_path: Path) -> None:
    write(pipeline.archive, [added(0)])
    folder = Bucket(tmp_path / "bucket").full([item(1)])
    first_file(folder)[0].write_bytes(gzip.compress(b""))
    assert pipeline.code("reconcile", "--outstanding", str(folder)) == 1
    told = pipeline.capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("fairbox: ")
    assert "checksum" in told
