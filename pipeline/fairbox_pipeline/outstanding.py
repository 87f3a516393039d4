"""What the outbox still holds, as a list that somebody made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from fairbox_pipeline.errors import UsageError
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


def read_outstanding(spark: SparkSession, uri: str | None) -> DataFrame:
    """Return the messages that a list names: `topic` `epoch` `shard` `id`, each once.

    The list is NDJSON, a file or a folder, gzip where names end in `.gz`; other fields do not
    matter. None: nothing is named.

    Raises:
        UsageError: there is nothing at that place, or a line is not of that form.
    """
    if uri is None:
        return spark.createDataFrame([], KEYS)
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
