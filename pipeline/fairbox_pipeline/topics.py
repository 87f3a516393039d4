"""The outbox's topics: from the command line's list, or from an export of the outbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.errors import AnalysisException

from fairbox_pipeline import exports
from fairbox_pipeline.errors import UsageError
from fairbox_pipeline.reading import escaped

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic of the outbox.

    Attributes:
        shards: its present number, or the one that a resize has announced.
        since: when its first epoch began, ms; 0: with the topic.
        source: where this is known from: `topics` or `export`.
    """

    shards: int
    since: int
    source: str


def read_topics(spark: SparkSession, options: argparse.Namespace) -> dict[str, KnownTopic]:
    """Return the topics by name, of `--topics`, else of an export given as `--outstanding`.

    Raises:
        UsageError: there is no file, or a line is no topic.
        PipelineError: an export does not agree with its manifest.
    """
    if options.topics is not None:
        return _listed(spark, options.topics)
    uris = options.outstanding or []
    if not any(exports.is_export(spark, uri) for uri in uris):
        return {}
    with exports.topics(spark, uris) as snapshot:
        rows = snapshot.items.collect()
    return {row["topic"]: KnownTopic(row["shards"], row["since"], "export") for row in rows}


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
        name, shards, since = told["name"], told["shards"], told["epochs"][0]["since"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        name = shards = since = None
    if type(name) is not str or type(shards) is not int or type(since) is not int or shards < 1:
        raise UsageError(
            f"--topics: {uri} is not the output of fairbox topic list --json: a line lacks name, "
            f"shards or epochs, or has another type: {line[:200]}"
        )
    return name, KnownTopic(shards, since, "topics")
