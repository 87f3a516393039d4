"""DynamoDB's full exports to S3: found by their manifests, counted by them, their items as rows.

A value of another type than the library writes is an error, never a NULL: under ANSI, `cast` fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from fairbox_pipeline.errors import UsageError
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.reading import escaped
from fairbox_pipeline.warehouse import failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, Row, SparkSession

SUMMARY: Final = "manifest-summary.json"
FILES: Final = "manifest-files.json"
ROOT: Final = "AWSDynamoDB/"
LINE: Final = (
    "Item struct<pk:struct<S:string>,sk:struct<S:string>,z:struct<N:string>,g:struct<S:string>,"
    "ep:struct<L:array<struct<L:array<struct<N:string>>>>>,"
    "b:struct<B:string>,f:struct<N:string>,st:struct<S:string>,t:struct<N:string>>"
)
"""Schema of a line: the attributes that are read, as the library's codecs name them."""
_FORM: Final = ("FULL_EXPORT", "DYNAMODB_JSON")
_RECORDS: Final = {"root": "root", "l": "leaf", "f": "failed"}
"""Sort key -> kind of an item of a batch; others are not read."""


@dataclass(frozen=True, slots=True)
class Export:
    """A table at one moment.

    Attributes:
        time: of the snapshot, ms since 1970 UTC.
        lines: its items, in schema `LINE`.
    """

    time: int
    lines: DataFrame


def read_export(spark: SparkSession, uri: str) -> Export | None:
    """Return the full export at a place; None: there is none.

    Args:
        spark: reads wherever Spark can, and keeps the items until its cache is cleared.
        uri: the export's folder (`.../AWSDynamoDB/<export id>`), or one of its manifests.

    Raises:
        UsageError: it is of another format, or its files do not hold what its manifests say.
    """
    folder = uri.removesuffix(SUMMARY).removesuffix(FILES).rstrip("/")
    summary = _content(spark, f"{folder}/{SUMMARY}")
    if summary is None:
        return None
    listed = _content(spark, f"{folder}/{FILES}")
    try:
        about = orjson.loads(summary)
        form = about.get("exportType", _FORM[0]), about["outputFormat"]
        time = datetime.fromisoformat(about["exportTime"]).timestamp()
        entries = [orjson.loads(line) for line in (listed or b"").splitlines()]
        counts = {_place(folder, one["dataFileS3Key"]): int(one["itemCount"]) for one in entries}
        total = int(about["itemCount"])
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError) as exc:
        raise UsageError(f"{folder}: the manifest cannot be read: {exc!r}") from None
    if form != _FORM:
        raise UsageError(f"{folder} is {' in '.join(form)}, expected {' in '.join(_FORM)}")
    if sum(counts.values()) != total:
        raise UsageError(
            f"{folder} is no finished export: {SUMMARY} counts {total} items, {FILES} "
            f"{sum(counts.values())}"
        )
    return Export(round(time * 1000), _lines(spark, folder, counts))


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


def _lines(spark: SparkSession, folder: str, counts: Mapping[str, int]) -> DataFrame:
    """Read the data files, and compare the number of their items with the manifest's."""
    if not any(counts.values()):
        return frame_of(spark, [], LINE)
    try:
        read = spark.read.schema(LINE).json([escaped(uri) for uri, n in counts.items() if n])
        lines = read.withColumn("file", F.input_file_name()).persist()
        is_item = F.col("Item.pk.S").isNotNull() & F.col("Item.sk.S").isNotNull()
        counted = lines.where(is_item).groupBy("file").count().collect()
    except AnalysisException as exc:
        if exc.getCondition() == "PATH_NOT_FOUND":
            told = f"{folder}: a data file is missing: {exc}"
            raise UsageError(told.splitlines()[0]) from None
        raise
    except (Py4JJavaError, PySparkException) as exc:
        raise failure(exc) from None
    found = {row["file"].rpartition("/")[2]: row["count"] for row in counted}
    for uri, count in counts.items():
        held = found.get(uri.rpartition("/")[2], 0)
        if held != count:
            raise UsageError(f"{uri} holds {held} items with pk and sk, the manifest says {count}")
    return lines.drop("file")


def messages(lines: DataFrame) -> DataFrame:
    """Return `topic` `epoch` `shard` `id` of the messages that an outbox holds, each once.

    Without dead letters, and without those that are marked as leaving.
    """
    parts = F.split("Item.pk.S", "#")
    is_message = F.col("Item.z").isNotNull() & parts[0].isin("ready", "later")
    found = lines.where(is_message & F.col("Item.g").isNull())
    return found.select(
        parts[1].alias("topic"),
        parts[2].cast("bigint").alias("epoch"),
        parts[3].cast("bigint").alias("shard"),
        F.substring_index("Item.sk.S", "#", -1).alias("id"),
    ).distinct()


def topics(lines: DataFrame) -> list[Row]:
    """Return `topic` and `epochs` of the topics of an outbox: [number, shards, ...] each."""
    parts = F.split("Item.sk.S", "#")
    is_topic = (F.col("Item.pk.S") == "config") & (parts[0] == "topic") & (F.size(parts) == 2)
    is_topic &= F.col("Item.ep").isNotNull()
    epochs = F.transform("Item.ep.L", lambda e: F.transform(e["L"], lambda n: _number(n["N"])))
    return lines.where(is_topic).select(parts[1].alias("topic"), epochs.alias("epochs")).collect()


def trackers(lines: DataFrame) -> DataFrame:
    """Return the items of a batches table that are read: one row a root, leaf or failed item.

    Columns: `record`, `batch`, `number` (of the group), `bits` (least significant first), `size`,
    `failed`, `state`, `total`.
    """
    kinds = F.create_map(*(F.lit(text) for pair in _RECORDS.items() for text in pair))
    record = kinds[F.col("Item.sk.S")]
    group = F.substring_index("Item.pk.S", "#", -1)
    return lines.where(record.isNotNull()).select(
        record.alias("record"),
        F.substring_index("Item.pk.S", "#", 1).alias("batch"),
        F.when(record != "root", _number(group)).alias("number"),
        F.to_binary("Item.b.B", F.lit("base64")).alias("bits"),
        _number(F.col("Item.z.N")).alias("size"),
        _number(F.col("Item.f.N")).alias("failed"),
        F.col("Item.st.S").alias("state"),
        _number(F.col("Item.t.N")).alias("total"),
    )


def _number(text: Column) -> Column:
    return text.cast("bigint")
