"""DynamoDB's full exports to S3 as snapshots: found by their manifests, and counted by them.

Items are read with Spark's own reader. Every attribute may have any type, so one of another type
than the codec writes is a fault of its item, never a NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from fairbox_pipeline import items
from fairbox_pipeline.errors import UsageError
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.reading import escaped
from fairbox_pipeline.warehouse import failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession

SUMMARY: Final = "manifest-summary.json"
FILES: Final = "manifest-files.json"
ROOT: Final = "AWSDynamoDB/"
_FULL: Final = "FULL_EXPORT"
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a full export.

    Attributes:
        folder: of the manifest.
        table: ARN of the table.
        time: of the snapshot, ms since 1970 UTC.
        files: the number of items of each data file, by URI.
    """

    folder: str
    table: str
    time: int
    files: dict[str, int]


def read_manifest(spark: SparkSession, uri: str) -> Manifest:
    """Read the manifest of a full export.

    Args:
        spark: reads wherever Spark can.
        uri: the export's folder (`.../AWSDynamoDB/<export id>`), or one of its manifests.

    Raises:
        UsageError: there is no finished full export at that place, or it is of another format.
    """
    folder = _folder(uri)
    summary, listed = (_content(spark, f"{folder}/{name}") for name in (SUMMARY, FILES))
    if summary is None or listed is None:
        lacking = SUMMARY if summary is None else FILES
        raise UsageError(f"there is no finished export at {folder}: {lacking} is missing")
    try:
        return _manifest(folder, orjson.loads(summary), map(orjson.loads, listed.splitlines()))
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError) as exc:
        raise UsageError(f"{folder}: the manifest cannot be read: {exc!r}") from None


def _manifest(folder: str, summary: Any, listed: Any) -> Manifest:
    kind, form = summary.get("exportType", _FULL), summary["outputFormat"]
    if (kind, form) != (_FULL, "DYNAMODB_JSON"):
        raise UsageError(f"{folder} is {kind} in {form}, expected a full export in DYNAMODB_JSON")
    files = {_place(folder, entry["dataFileS3Key"]): int(entry["itemCount"]) for entry in listed}
    if sum(files.values()) != summary["itemCount"]:
        raise UsageError(
            f"{folder}: the summary counts {summary['itemCount']} items, the files "
            f"{sum(files.values())}"
        )
    time = datetime.fromisoformat(summary["exportTime"]).timestamp()
    return Manifest(folder, summary["tableArn"], round(time * 1000), files)


def is_export(spark: SparkSession, uri: str) -> bool:
    """Whether there is an export's summary at that place."""
    return _content(spark, f"{_folder(uri)}/{SUMMARY}") is not None


def _folder(uri: str) -> str:
    return uri.rstrip("/").removesuffix(SUMMARY).removesuffix(FILES).rstrip("/")


def _place(folder: str, key: str) -> str:
    """Place a data file below the bucket, or the copy of it, that the manifest lies in."""
    bucket, found, _ = folder.rpartition(ROOT)
    _, root, below = key.rpartition(ROOT)
    if not found or not root:
        raise UsageError(f"{folder} does not lie below a folder {ROOT}, where exports do")
    return f"{bucket}{ROOT}{below}"


def _content(spark: SparkSession, path: str) -> bytes | None:
    try:
        rows = spark.read.format("binaryFile").load(escaped(path)).select("content").collect()
    except AnalysisException as exc:
        if exc.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    return bytes(rows[0][0]) if rows else None


class Snapshot:
    """The items of a table at one moment, cached while the `with` block lasts.

    Attributes:
        table: ARN of the table.
        time: of the snapshot, ms since 1970 UTC.
        items: DataFrame of the items of interest.
        faults: DataFrame of `uri` and `fault`: items that the codec would not write.
    """

    table: str
    time: int
    items: DataFrame
    faults: DataFrame

    def __init__(
        self, spark: SparkSession, uri: str, read: Callable[[DataFrame], DataFrame]
    ) -> None:
        self._spark = spark
        self._manifest = read_manifest(spark, uri)
        self._read = read
        self.table = self._manifest.table
        self.time = self._manifest.time

    def __enter__(self) -> Self:
        """Read every data file, and compare the number of its items with the manifest.

        Raises:
            UsageError: a file is missing or cannot be read, or its count does not agree.
        """
        self._lines = self._parsed().persist()
        try:
            self._verify()
        except BaseException:
            self._lines.unpersist()
            raise
        rows = self._read(self._lines).persist()
        self._rows = rows
        self.faults = rows.where(F.col("fault").isNotNull()).select("uri", "fault")
        self.items = rows.where(F.col("fault").isNull()).drop("uri", "fault")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the cached data."""
        self._rows.unpersist()
        self._lines.unpersist()

    def _parsed(self) -> DataFrame:
        """Return `uri` and `Item` of every line; null: the line is no item."""
        uris = [escaped(uri) for uri, count in self._manifest.files.items() if count]
        if not uris:
            return frame_of(self._spark, [], items.LINE)
        try:
            lines = self._spark.read.schema(items.LINE).json(uris)
        except AnalysisException as exc:
            if exc.getCondition() == "PATH_NOT_FOUND":
                told = f"{self._manifest.folder}: a data file is missing: {exc}"
                raise UsageError(told.splitlines()[0]) from None
            raise
        return lines.withColumn("uri", F.input_file_name())

    def _verify(self) -> None:
        try:
            counted = self._lines.groupBy("uri").count().collect()
        except (Py4JJavaError, PySparkException) as exc:
            raise failure(exc) from None
        found = {_name(row["uri"]): row["count"] for row in counted}
        for uri, count in self._manifest.files.items():
            held = found.get(_name(uri), 0)
            if held != count:
                raise UsageError(f"{uri} holds {held} items, the manifest says {count}")

    def fault_report(self) -> str | None:
        """Return one line about unreadable items, naming the first; None: all were read."""
        count = self.faults.count()
        if not count:
            return None
        shown = self.faults.orderBy("uri", "fault").limit(_SHOWN).collect()
        named = "; ".join(f"{_name(row['uri'])}: {row['fault']}" for row in shown)
        return f"{count} items of {self.table} are not as they should be: {named}"


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]


def messages(spark: SparkSession, uri: str) -> Snapshot:
    """Return the snapshot of an outbox: its messages, in the columns of `items.messages`."""
    return Snapshot(spark, uri, items.messages)


def topics(spark: SparkSession, uri: str) -> Snapshot:
    """Return the snapshot of an outbox: its topics, in the columns of `items.topics`."""
    return Snapshot(spark, uri, items.topics)


def trackers(spark: SparkSession, uri: str) -> Snapshot:
    """Return the snapshot of a batches table, in the columns of `items.trackers`."""
    return Snapshot(spark, uri, items.trackers)
