"""The outstanding messages of the outbox: from a list, or from an export of its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from fairbox_pipeline import exports
from fairbox_pipeline.errors import UsageError
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.reading import escaped
from fairbox_pipeline.schemas import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

KEYS: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("epoch", LongType()),
        StructField("shard", LongType()),
        StructField("id", StringType()),
    ]
)
_LINE: Final = "line as it stands"


def read_outstanding(
    spark: SparkSession, uris: Sequence[str] | None, say: Callable[[str], None]
) -> DataFrame:
    """Return the messages that the outbox holds: `topic` `epoch` `shard` `id`, each once.

    Args:
        spark: reads wherever Spark can.
        uris: a list (NDJSON, a file or a folder, gzip where names end in `.gz`; other fields are
            ignored), or an export of the outbox with the incremental ones after it. None:
            there is none.
        say: prints the faults of an export.

    Raises:
        UsageError: there is nothing at that place, or a line is not of that form.
        PipelineError: an export does not agree with its manifest.
    """
    if not uris:
        return frame_of(spark, [], KEYS)
    if any(exports.is_export(spark, uri) for uri in uris):
        return _exported(spark, uris, say)
    if len(uris) > 1:
        raise UsageError("one list of outstanding messages, or exports of the outbox")
    return _listed(spark, uris[0])


def _exported(spark: SparkSession, uris: Sequence[str], say: Callable[[str], None]) -> DataFrame:
    """Return the messages in the lanes `ready` and `later` that are not marked as leaving."""
    with exports.messages(spark, uris) as snapshot:
        told = snapshot.fault_report()
        if told is not None:
            say(told)
        held = snapshot.items.where(F.col("lane").isin("ready", "later") & F.col("gone").isNull())
        return held.select(*KEY).distinct().localCheckpoint()


def _listed(spark: SparkSession, uri: str) -> DataFrame:
    try:
        lines = spark.read.option("recursiveFileLookup", "true").text(escaped(uri))
    except AnalysisException as exc:
        if exc.getCondition() == "PATH_NOT_FOUND":
            raise UsageError(f"there is no list of outstanding messages at {uri}") from None
        raise
    told = lines.where(F.trim("value") != "").select(
        F.col("value").alias(_LINE),
        F.from_json("value", KEYS, {"allowSingleQuotes": "false"}).alias("key"),
    )
    incomplete = F.lit(False)
    for name in KEY:
        incomplete = incomplete | F.col(f"key.{name}").isNull()
    wrong = told.where(incomplete).limit(1).collect()
    if wrong:
        raise UsageError(
            f"{uri} is not a list of outstanding messages: a line lacks topic, epoch, shard or id, "
            f"or has another type: {wrong[0][_LINE][:200]}"
        )
    return told.select("key.*").distinct()
