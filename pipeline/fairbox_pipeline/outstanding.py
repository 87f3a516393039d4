"""The outstanding messages of the outbox: from a list, or from an export of its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from fairbox_pipeline import exports
from fairbox_pipeline.errors import UsageError
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.progress import say
from fairbox_pipeline.reading import escaped
from fairbox_pipeline.schemas import KEY

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True)
class Outstanding:
    """The messages that the outbox held.

    Attributes:
        messages: `topic` `epoch` `shard` `id`, each once.
        as_of: when, ms; None: not known.
    """

    messages: DataFrame
    as_of: int | None


def read_outstanding(spark: SparkSession, uri: str | None, as_of: int | None) -> Outstanding:
    """Return the messages that the outbox holds.

    Args:
        spark: reads wherever Spark can.
        uri: a list (NDJSON, a file or a folder, gzip where names end in `.gz`; other fields are
            ignored), or an export of the outbox. None: there is none.
        as_of: when the list was made, ms; None: not known. An export has its own time.

    Raises:
        UsageError: there is nothing at that place, a line is not of that form, or an export is
            not whole.
    """
    if uri is None:
        return Outstanding(frame_of(spark, [], KEYS), as_of)
    if not exports.is_export(spark, uri):
        return Outstanding(_listed(spark, uri), as_of)
    with exports.messages(spark, uri) as snapshot:
        told = snapshot.fault_report()
        if told is not None:
            say(told)
        # a message that is marked as leaving has left
        held = snapshot.items.where(F.col("lane").isin("ready", "later") & F.col("gone").isNull())
        return Outstanding(held.select(*KEY).distinct().localCheckpoint(), snapshot.time)


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
