"""The outbox as jobs are told of it: its messages and topics, from lists or from an export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from fairbox_pipeline import exports
from fairbox_pipeline.errors import UsageError
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.reading import escaped
from fairbox_pipeline.schemas import KEY
from fairbox_pipeline.transforms.reconcile import LIKELY, seen_widths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from fairbox_pipeline.exports import Export

KEYS: Final = "topic string, epoch bigint, shard bigint, id string"
_LINE: Final = "line as it stands"


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic of the outbox.

    Attributes:
        epochs: number of shards by number of the epoch.
        source: where this is known from: `topics`, `export`, or `seen` in the archive alone.
    """

    epochs: Mapping[int, int]
    source: str

    @property
    def shards(self) -> int:
        """The present number of shards, or the one that a resize has announced."""
        return self.epochs[max(self.epochs)]


@dataclass(frozen=True, slots=True)
class Outstanding:
    """The messages that the outbox held.

    Attributes:
        messages: `topic` `epoch` `shard` `id`, each once.
        as_of: when, ms; None: not known.
    """

    messages: DataFrame
    as_of: int | None


def read_outstanding(
    spark: SparkSession, uri: str | None, export: Export | None, as_of: int | None
) -> Outstanding:
    """Return the messages that the outbox held.

    Args:
        spark: reads wherever Spark can.
        uri: a list (NDJSON, a file or a folder, gzip where names end in `.gz`; other fields are
            ignored); None: there is none.
        export: that which lies there instead.
        as_of: when the list was made, ms; None: not known. An export has its own time.

    Raises:
        UsageError: there is nothing at that place, or a line is not of that form.
    """
    if export is not None:
        return Outstanding(exports.messages(export.lines), export.time)
    if uri is None:
        return Outstanding(frame_of(spark, [], KEYS), as_of)
    return Outstanding(_messages(spark, uri), as_of)


def read_topics(
    spark: SparkSession, uri: str | None, export: Export | None
) -> dict[str, KnownTopic]:
    """Return the topics by name, of a list, else of an export; empty: nobody says.

    Raises:
        UsageError: there is no file, or a line is no topic.
    """
    if uri is not None:
        lines = _lines(spark, "--topics", uri).collect()
        return dict(_topic(uri, row["value"]) for row in lines)
    found = [] if export is None else exports.topics(export.lines)
    return {name: _known(epochs, "export") for name, epochs in found}


def _known(epochs: Any, source: str) -> KnownTopic:
    return KnownTopic({number: shards for number, shards, *_ in epochs}, source)


def _lines(spark: SparkSession, argument: str, uri: str) -> DataFrame:
    """Return the lines that are not empty, as `value`."""
    try:
        lines = spark.read.option("recursiveFileLookup", "true").text(escaped(uri))
    except AnalysisException as exc:
        if exc.getCondition() == "PATH_NOT_FOUND":
            raise UsageError(f"{argument}: there is nothing at {uri}") from None
        raise
    return lines.where(F.trim("value") != "")


def _messages(spark: SparkSession, uri: str) -> DataFrame:
    told = _lines(spark, "--outstanding", uri).select(
        F.col("value").alias(_LINE),
        F.from_json("value", KEYS, {"allowSingleQuotes": "false"}).alias("key"),
    )
    is_whole = F.forall(F.array(*(F.col(f"key.{n}").isNotNull() for n in KEY)), lambda there: there)
    wrong = told.where(~is_whole).limit(1).collect()
    if wrong:
        raise UsageError(
            f"{uri} is not a list of outstanding messages: a line lacks topic, epoch, shard or id, "
            f"or has another type: {wrong[0][_LINE][:200]}"
        )
    return told.select("key.*").distinct()


def _topic(uri: str, line: str) -> tuple[str, KnownTopic]:
    try:
        told: Any = orjson.loads(line.removeprefix("\ufeff"))
        name = told["name"]
        epochs = [(one["number"], one["shards"]) for one in told["epochs"]]
        whole = type(name) is str and all(type(n) is int for pair in epochs for n in pair)
        whole = whole and min(shards for _, shards in epochs) > 0
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError):
        whole = False
    if not whole:
        raise UsageError(
            f"--topics: {uri} is not the output of fairbox topic list --json: a line lacks name or "
            f"epochs, or has another type: {line[:200]}"
        )
    return name, _known(epochs, "topics")


def widths_of(
    spark: SparkSession, known: Mapping[str, KnownTopic], messages: DataFrame
) -> DataFrame:
    """Return `topic` `epoch` `width`: the numbers of shards by which messages are judged.

    Those of the known topics; of the others what the messages tell, if that puts most keys right.
    """
    rows = [(name, *epoch) for name, topic in known.items() for epoch in topic.epochs.items()]
    told = frame_of(spark, rows, "topic string, epoch bigint, width bigint")
    others = messages.where(~F.col("topic").isin(*known))
    seen = seen_widths(others).where(F.col("right") >= LIKELY).drop("right")
    return told.unionByName(seen)
