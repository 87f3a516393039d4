"""The archive as DataFrames: which files there are, and what stands in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from fairbox_pipeline.errors import UsageError
from fairbox_pipeline.lines import FIELDS, Line, digest, read_lines, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

EVENT: Final = "event"
MALFORMED: Final = "malformed"
DAMAGED: Final = "damaged"
PATTERN: Final = "*.json.gz"
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 16 << 20
_ARROW_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ARROW: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}

LINE_SCHEMA: Final = StructType(
    [
        StructField("uri", StringType()),
        StructField("line", LongType()),
        StructField("kind", StringType()),
        StructField("fault", StringType()),
        StructField("text", StringType()),
        StructField("digest", StringType()),
        StructField("cut", BooleanType()),
        *(StructField(c.name, c.type) for c in FIELDS),
    ]
)
_ARROW_STRUCT: Final = pa.struct([(f.name, _ARROW[f.dataType.simpleString()]) for f in LINE_SCHEMA])


def list_files(spark: SparkSession, archive: str) -> DataFrame:
    """List the archive's files at any depth: columns `uri`, `length`, `modified` (ms).

    Raises:
        UsageError: there is nothing at that place.
    """
    try:
        found = _binary(spark).option("recursiveFileLookup", "true").load(escaped(archive))
    except AnalysisException as exc:
        if exc.getCondition() == "PATH_NOT_FOUND":
            raise UsageError(f"there is no archive at {archive}") from None
        raise
    return found.select(
        F.col("path").alias("uri"),
        "length",
        F.unix_millis("modificationTime").alias("modified"),
    )


class Tally:
    """How many lines each file has, and which files have faults, counted while they are read.

    A file that is read twice, because a task is repeated, counts once.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._counted: Accumulator[Any] = spark.sparkContext.accumulator({}, _Merged())

    def add(self, uri: str, lines: int, *, faulty: bool) -> None:
        """Count one file that is read."""
        self._counted.add({uri: (lines, faulty)})

    @property
    def lines(self) -> int:
        """Lines of all files."""
        return sum(lines for lines, _ in self._counted.value.values())

    @property
    def faulty(self) -> list[str]:
        """Files with malformed lines or damage, in order."""
        return sorted(uri for uri, (_, faulty) in self._counted.value.items() if faulty)


class _Merged(AccumulatorParam[Any]):
    """Adds dicts by merging them."""

    def zero(self, value: Any) -> Any:  # noqa: ARG002 - PySpark's signature
        return {}

    def addInPlace(self, value1: Any, value2: Any) -> Any:  # noqa: N802 - PySpark's name
        return {**value1, **value2}


def read_archive(spark: SparkSession, uris: Sequence[str], tally: Tally | None = None) -> DataFrame:
    """Read files line by line, in `LINE_SCHEMA`.

    `kind` is `event` (the event's columns are set), `malformed` (`fault`, `text`, `digest`, `cut`)
    or `damaged` (`fault`: the file could not be read to its end). An action on it needs
    `one_file_a_batch`; after it the tally is complete.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for uri, content in zip(batch["path"], batch["content"], strict=True):
                yield from _batches_of(uri.as_py(), content.as_py(), tally)

    content = _binary(spark).load([escaped(uri) for uri in uris]).select("path", "content")
    return content.mapInArrow(read, LINE_SCHEMA)


class one_file_a_batch:  # noqa: N801 - reads as what it does: with one_file_a_batch(spark)
    """While it is open, Python gets one file at a time: memory is that of one file a core."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._before: str | None = None

    def __enter__(self) -> None:
        self._before = self._spark.conf.get(_ARROW_ROWS)
        self._spark.conf.set(_ARROW_ROWS, "1")

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            self._spark.conf.set(_ARROW_ROWS, self._before)


def _binary(spark: SparkSession) -> DataFrameReader:
    return spark.read.format("binaryFile").option("pathGlobFilter", PATTERN)


def escaped(path: str) -> str:
    """Return a path of which nothing is read as a pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _batches_of(uri: str, content: bytes, tally: Tally | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file."""
    rows: list[dict[str, Any]] = []
    held = lines = 0
    faulty = False
    for line in read_lines(content):
        lines = line.number
        faulty = faulty or line.event is None
        row, weight = _row(line)
        rows.append(row)
        held += weight
        if len(rows) == _BATCH_ROWS or held >= _BATCH_BYTES:
            yield _batch(uri, rows)
            rows, held = [], 0
    if tally is not None:
        tally.add(uri, lines, faulty=faulty)
    if rows:
        yield _batch(uri, rows)


def _row(line: Line) -> tuple[dict[str, Any], int]:
    """Return a row without its uri, and about how many bytes are long in it."""
    if line.event is not None:
        row = line.event
        row["line"] = line.number
        row["kind"] = EVENT
        if (headers := row.get("headers")) is not None:
            row["headers"] = list(headers.items())
        return row, len(row.get("body") or "")
    row = {"line": line.number, "fault": line.reason, "cut": line.cut}
    if line.raw is None:
        return row | {"kind": DAMAGED}, 0
    row |= {"kind": MALFORMED, "text": readable(line.raw), "digest": digest(line.raw)}
    return row, len(line.raw)


def _batch(uri: str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows as a batch; what a row does not name is null."""
    for row in rows:
        row["uri"] = uri
    return pa.RecordBatch.from_struct_array(pa.array(rows, _ARROW_STRUCT))
