"""DynamoDB's exports to S3 as snapshots: manifests and checksums verified, items counted.

A full export, or one followed by the incremental exports after it. Data files are found only
by the manifest, because those of several incremental exports share a folder.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from fairbox_pipeline import items
from fairbox_pipeline.errors import PipelineError, UsageError
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.reading import escaped, one_file_a_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession

SUMMARY: Final = "manifest-summary.json"
FILES: Final = "manifest-files.json"
ROOT: Final = "AWSDynamoDB/"
_CHECKSUMS: Final = (".md5", ".checksum")
_FULL: Final = "FULL_EXPORT"
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file in the manifest."""

    uri: str
    items: int
    md5: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The two manifests of an export.

    Attributes:
        uri: the folder of the manifests.
        table: ARN of the table.
        full: whether it holds every item; otherwise it holds changes.
        begin, end: the window of an incremental export; of a full one both its time. ISO text.
        files: the data files.
    """

    uri: str
    table: str
    full: bool
    begin: str
    end: str
    files: tuple[DataFile, ...]


def read_manifest(spark: SparkSession, uri: str) -> Manifest:
    """Read and verify the manifests of an export.

    Args:
        spark: reads wherever Spark can.
        uri: the export's folder (`.../AWSDynamoDB/<export id>`), or one of its manifests.

    Raises:
        UsageError: there is no finished export at that place, or it is of another format.
        PipelineError: a checksum or a count does not agree.
    """
    folder = uri.rstrip("/").removesuffix(SUMMARY).removesuffix(FILES).rstrip("/")
    summary = orjson.loads(_verified(spark, folder, SUMMARY))
    if summary.get("outputFormat") != "DYNAMODB_JSON":
        raise UsageError(f"{folder} is an export in {summary.get('outputFormat')}: DYNAMODB_JSON")
    listed = _verified(spark, folder, FILES).splitlines()
    files = tuple(_data_file(folder, orjson.loads(line)) for line in listed if line.strip())
    counted = sum(file.items for file in files)
    if counted != summary["itemCount"]:
        raise PipelineError(
            f"{folder}: the summary counts {summary['itemCount']} items, the files {counted}"
        )
    full = summary.get("exportType", _FULL) == _FULL
    begin, end = ("exportTime",) * 2 if full else ("exportFromTime", "exportToTime")
    return Manifest(folder, summary["tableArn"], full, summary[begin], summary[end], files)


def is_export(spark: SparkSession, uri: str) -> bool:
    """Whether there is an export's summary at that place."""
    folder = uri.rstrip("/").removesuffix(SUMMARY).removesuffix(FILES).rstrip("/")
    return _content(spark, f"{folder}/{SUMMARY}") is not None


def _data_file(folder: str, entry: Any) -> DataFile:
    """Place a data file below the bucket, or the copy of it, that the manifest lies in."""
    bucket, found, _ = folder.rpartition(ROOT)
    key = entry["dataFileS3Key"]
    _, root, below = key.rpartition(ROOT)
    if not found or not root:
        raise UsageError(f"{folder} does not lie below a folder {ROOT}, where exports do")
    return DataFile(f"{bucket}{ROOT}{below}", entry["itemCount"], entry["md5Checksum"])


def _verified(spark: SparkSession, folder: str, name: str) -> bytes:
    content = _content(spark, f"{folder}/{name}")
    if content is None:
        raise UsageError(f"there is no finished export at {folder}: {name} is missing")
    stem = name.removesuffix(".json")
    for suffix in _CHECKSUMS:
        told = _content(spark, f"{folder}/{stem}{suffix}")
        if told is not None:
            break
    else:
        raise PipelineError(f"{folder}: the checksum of {name} is missing")
    if told.strip().strip(b'"').decode() != _md5(content):
        raise PipelineError(f"{folder}: {name} does not agree with its checksum")
    return content


def _content(spark: SparkSession, path: str) -> bytes | None:
    try:
        rows = spark.read.format("binaryFile").load(escaped(path)).select("content").collect()
    except AnalysisException as exc:
        if exc.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    return bytes(rows[0][0]) if rows else None


def _md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def _in_order(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Put a full export first and incremental ones behind it, without a gap.

    Raises:
        UsageError: they do not make a snapshot.
    """
    full = [m for m in manifests if m.full]
    if len(full) != 1:
        raise UsageError(
            f"a snapshot is one full export and the incremental ones after it, not {len(full)} full"
        )
    if len({m.table for m in manifests}) != 1:
        raise UsageError("the exports are of different tables")
    ordered = [*full, *sorted((m for m in manifests if not m.full), key=lambda m: m.begin)]
    for before, after in itertools.pairwise(ordered):
        if after.begin > before.end:
            raise UsageError(f"between {before.end} and {after.begin} no export says what changed")
    return ordered


class Snapshot:
    """The items of a table at one moment, cached while the `with` block lasts.

    Attributes:
        table: ARN of the table.
        time: of the snapshot, ISO text.
        items: DataFrame of the items of interest.
        faults: DataFrame of `uri`, `line`, `fault`: items that the codec would not write.
    """

    table: str
    time: str
    items: DataFrame
    faults: DataFrame

    def __init__(
        self,
        spark: SparkSession,
        uris: Sequence[str],
        columns: tuple[tuple[str, pa.DataType], ...],
        read: Any,
    ) -> None:
        self._spark = spark
        self._manifests = _in_order([read_manifest(spark, uri) for uri in uris])
        self._columns = columns
        self._read = read
        self.table = self._manifests[-1].table
        self.time = self._manifests[-1].end

    def __enter__(self) -> Self:
        """Read every data file once, and compare it with the manifest.

        Raises:
            PipelineError: a file is missing, or its checksum or count does not agree.
        """
        with one_file_a_batch(self._spark):
            self._rows = self._parsed().persist()
            self._verify()
        rows = self._rows
        self.faults = rows.where(F.col("kind") == items.FAULT).select("uri", "line", "fault")
        self.items = _newest(rows).select(*(name for name, _ in self._columns))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the cached data."""
        self._rows.unpersist()

    def _parsed(self) -> DataFrame:
        schema = from_arrow_schema(pa.schema([*items.COMMON, *self._columns]))
        parts = []
        for number, manifest in enumerate(self._manifests):
            uris = [escaped(file.uri) for file in manifest.files]
            if not uris:
                continue
            try:
                files = self._spark.read.format("binaryFile").load(uris)
            except AnalysisException as exc:
                if exc.getCondition() == "PATH_NOT_FOUND":
                    raise PipelineError(f"{manifest.uri}: a data file is missing: {exc}") from None
                raise
            parts.append(files.select(F.lit(number).cast("int").alias("export"), "path", "content"))
        if not parts:
            return frame_of(self._spark, [], schema)
        content = parts[0]
        for part in parts[1:]:
            content = content.unionAll(part)
        turn = partial(items.batches_of, columns=self._columns, read=self._read)
        return content.mapInArrow(turn, schema)

    def _verify(self) -> None:
        seen = self._rows.where(F.col("kind") == items.FILE).collect()
        found = {(row["export"], _name(row["uri"])): row for row in seen}
        for number, manifest in enumerate(self._manifests):
            for file in manifest.files:
                row = found.get((number, _name(file.uri)))
                if row is None:
                    raise PipelineError(f"{file.uri} is missing or empty: the manifest names it")
                if row["fault"] != file.md5:
                    raise PipelineError(f"{file.uri} does not agree with its checksum")
                if row["line"] != file.items:
                    raise PipelineError(
                        f"{file.uri} holds {row['line']} items, the manifest says {file.items}"
                    )

    def fault_report(self) -> str | None:
        """Return one line about unreadable items, naming the first; None: all were read."""
        count = self.faults.count()
        if not count:
            return None
        shown = self.faults.orderBy("uri", "line").limit(_SHOWN).collect()
        named = "; ".join(f"{_name(r['uri'])} line {r['line']}: {r['fault']}" for r in shown)
        return f"{count} items of {self.table} are not as they should be: {named}"


def _newest(rows: DataFrame) -> DataFrame:
    """Keep each item in the version of the last export; drop deleted items."""
    told = rows.where(F.col("kind").isin(items.ITEM, items.DELETED))
    order = Window.partitionBy("pk", "sk").orderBy(F.desc("export"), F.desc("written"))
    latest = told.withColumn("age", F.row_number().over(order)).where(F.col("age") == 1)
    return latest.where(F.col("kind") == items.ITEM)


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]


def messages(spark: SparkSession, uris: Sequence[str]) -> Snapshot:
    """Return the snapshot of an outbox (or of lane `dead` of the deliveries): its messages.

    Columns: `lane`, `topic`, `epoch`, `shard`, `id`, `partition_key`, `content_type`, `size`
    (bytes), `batch_item`, `gone`, `due` (ms).
    """
    return Snapshot(spark, uris, items.MESSAGES, items.read_message)


def topics(spark: SparkSession, uris: Sequence[str]) -> Snapshot:
    """Return the snapshot of an outbox: its topics.

    Columns: `topic`, `shards` (of the newest epoch), `since` (ms, of the oldest).
    """
    return Snapshot(spark, uris, items.TOPICS, items.read_topic)


def trackers(spark: SparkSession, uris: Sequence[str]) -> Snapshot:
    """Return the snapshot of a batches table: one row a root, node, leaf or failed item.

    Columns: `record`, `batch`, `number` (of the group or node), `bits` (least significant first),
    `count`, `size`, `failed`, `settled`, `state`, `next_group`, `total`, `opened`, `user_key`.
    """
    return Snapshot(spark, uris, items.TRACKERS, items.read_tracker)
