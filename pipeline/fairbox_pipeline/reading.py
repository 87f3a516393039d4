"""The archive as DataFrames: its files and their lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from fairbox_pipeline.columns import LINE_SCHEMA, batches_of
from fairbox_pipeline.errors import MissingArchiveError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

PATTERN: Final = "*.json.gz"
_ARROW_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


def list_files(spark: SparkSession, archive: str) -> DataFrame:
    """List the archive's files at any depth: columns `uri`, `length`, `modified` (ms).

    Raises:
        MissingArchiveError: there is nothing at that place.
    """
    try:
        found = _binary(spark).option("recursiveFileLookup", "true").load(escaped(archive))
    except AnalysisException as exc:
        if exc.getCondition() == "PATH_NOT_FOUND":
            raise MissingArchiveError(f"there is no archive at {archive}") from None
        raise
    return found.select(
        F.col("path").alias("uri"),
        "length",
        F.unix_millis("modificationTime").alias("modified"),
    )


class Tally:
    """Lines and faults by file, counted while the files are read.

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
    """An accumulator that merges dicts."""

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

    def told_of(uri: str) -> Callable[[int, bool], None]:
        return lambda lines, faulty: tally.add(uri, lines, faulty=faulty) if tally else None

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for uri, content in zip(batch["path"], batch["content"], strict=True):
                name = uri.as_py()
                yield from batches_of(name, content.as_py(), told_of(name))

    content = _binary(spark).load([escaped(uri) for uri in uris]).select("path", "content")
    return content.mapInArrow(read, LINE_SCHEMA)


class one_file_a_batch:  # noqa: N801 - reads as what it does: with one_file_a_batch(spark)
    """Pass one file at a time to Python, so that memory is that of one file per core."""

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
    """Return a path with all pattern characters escaped."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
