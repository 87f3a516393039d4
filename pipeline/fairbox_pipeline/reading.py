"""The archive as DataFrames: its files and their lines."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from fairbox_pipeline.errors import MissingArchiveError
from fairbox_pipeline.lines import LINE_SCHEMA, batches_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

PATTERN: Final = "*.json.gz"
_ARROW_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


def list_files(spark: SparkSession, archive: str, days: Sequence[str] = ()) -> DataFrame:
    """List the archive's files at any depth: columns `uri`, `length`, `modified` (ms).

    Args:
        spark: reads wherever Spark can.
        archive: its folder.
        days: only the folders of these days, as `2025-11-18`; none: all.

    Raises:
        MissingArchiveError: there is nothing at that place.
    """
    place = escaped(archive) + (f"/dt={{{','.join(days)}}}" if days else "")
    try:
        found = _binary(spark).option("recursiveFileLookup", "true").load(place)
    except AnalysisException as exc:
        if exc.getCondition() == "PATH_NOT_FOUND":
            raise MissingArchiveError(f"there is no archive at {archive}") from None
        raise
    return found.select(
        F.col("path").alias("uri"),
        "length",
        F.unix_millis("modificationTime").alias("modified"),
    )


def read_archive(spark: SparkSession, uris: Sequence[str]) -> DataFrame:
    """Read files line by line, in `LINE_SCHEMA`; an action on it needs `one_file_a_batch`."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for uri, content in zip(batch["path"], batch["content"], strict=True):
                yield from batches_of(uri.as_py(), content.as_py())

    content = _binary(spark).load([escaped(uri) for uri in uris]).select("path", "content")
    return content.mapInArrow(read, LINE_SCHEMA)


@contextmanager
def one_file_a_batch(spark: SparkSession) -> Iterator[None]:
    """Pass one file at a time to Python, so that memory is that of one file per core."""
    before = spark.conf.get(_ARROW_ROWS)
    spark.conf.set(_ARROW_ROWS, "1")
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(_ARROW_ROWS, before)


def _binary(spark: SparkSession) -> DataFrameReader:
    return spark.read.format("binaryFile").option("pathGlobFilter", PATTERN)


def escaped(path: str) -> str:
    """Return a path with all pattern characters escaped."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
