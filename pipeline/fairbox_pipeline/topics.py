"""The outbox's topics: from the command line's list, or from an export of the outbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from fairbox_pipeline import exports
from fairbox_pipeline.errors import UsageError
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.reading import escaped
from fairbox_pipeline.transforms.reconcile import LIKELY, seen_widths

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic of the outbox.

    Attributes:
        epochs: number of shards by number of the epoch.
        since: when its first epoch began, ms; 0: with the topic.
        source: where this is known from: `topics` or `export`.
    """

    epochs: Mapping[int, int]
    since: int
    source: str

    @property
    def shards(self) -> int:
        """The present number of shards, or the one that a resize has announced."""
        return self.epochs[max(self.epochs)]


def read_topics(spark: SparkSession, options: argparse.Namespace) -> dict[str, KnownTopic]:
    """Return the topics by name, of `--topics`, else of an export given as `--outstanding`.

    Raises:
        UsageError: there is no file, or a line is no topic.
        PipelineError: an export does not agree with its manifest.
    """
    if options.topics is not None:
        return _listed(spark, options.topics)
    uri = options.outstanding
    if uri is None or not exports.is_export(spark, uri):
        return {}
    with exports.topics(spark, uri) as snapshot:
        rows = snapshot.items.collect()
    return {row["topic"]: _known(row["epochs"], "export") for row in rows}


def _known(epochs: Sequence[Any], source: str) -> KnownTopic:
    shards = {epoch["number"]: epoch["shards"] for epoch in epochs}
    return KnownTopic(shards, epochs[0]["since"], source)


def _listed(spark: SparkSession, uri: str) -> dict[str, KnownTopic]:
    try:
        lines = [row[0] for row in spark.read.text(escaped(uri)).collect() if row[0].strip()]
    except AnalysisException as exc:
        if exc.getCondition() == "PATH_NOT_FOUND":
            raise UsageError(f"--topics: there is no file at {uri}") from None
        raise
    return dict(_topic(uri, line) for line in lines)


def _topic(uri: str, line: str) -> tuple[str, KnownTopic]:
    try:
        told: Any = orjson.loads(line.removeprefix("\ufeff"))
        name, topic = told["name"], _known(told["epochs"], "topics")
        numbers = (*topic.epochs.keys(), *topic.epochs.values(), topic.since)
        whole = type(name) is str and all(type(number) is int for number in numbers)
    except (orjson.JSONDecodeError, LookupError, TypeError):
        whole = False
    if not whole or min(topic.epochs.values()) < 1:
        raise UsageError(
            f"--topics: {uri} is not the output of fairbox topic list --json: a line lacks name or "
            f"epochs, or has another type: {line[:200]}"
        )
    return name, topic


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
