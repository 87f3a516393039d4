"""Job `sizing`: load and bytes by shard, skew, hot keys, and the shards that each topic needs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.advice import UNUSED_MS
from fairbox_pipeline.arguments import add_outstanding, add_topics
from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.resizes import resize_of
from fairbox_pipeline.schemas import DAY_MS, MESSAGES_TABLE
from fairbox_pipeline.topics import KnownTopic
from fairbox_pipeline.transforms.sizing import (
    hot_keys,
    load_of_shards,
    load_of_topics,
    shards_needed,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

MOST_KEYS: Final = 100
_WEEK_MS: Final = 7 * DAY_MS
Row = dict[str, Any]


def figures(context: Context) -> Figures:
    """Return the load of each shard and topic, and the fullest keys."""
    messages = context.messages()
    shards = load_of_shards(messages)
    topics = _rows(load_of_topics(shards, shards_needed(messages)))
    keys = _rows(hot_keys(messages, context.options.hot_keys))
    fullest: dict[str, Row] = {}
    for row in keys:
        fullest.setdefault(row["topic"], row)
    known = context.topics()
    seen = _seen(messages) if any(load["topic"] not in known for load in topics) else {}
    may_shrink = not context.window.is_under(_WEEK_MS, context.now)  # a day may be a quiet one
    for load in topics:
        name = load["topic"]
        topic = known.get(name) or KnownTopic({0: seen[name]}, 0, "seen")
        resize = resize_of(
            load, topic.shards, topic.source, fullest.get(name), may_shrink=may_shrink
        )
        load |= {
            "shards": resize.shards,
            "shards_from": topic.source,
            "hot_key": resize.hot_key,
            "command": shlex.join(resize.command(name)) or None,
            "why": resize.why,
        }
    return {
        "shards": _rows(shards),
        "topics": topics,
        "hot_keys": keys,
        "without_messages": _idle(context, known, topics),
    }


def _idle(context: Context, known: Mapping[str, KnownTopic], loads: Sequence[Row]) -> list[Row]:
    """Return the known topics without a message: in a day's run, in the days before as well."""
    used = {load["topic"] for load in loads}
    idle = {name: topic.since for name, topic in known.items() if name not in used}
    since = context.window.since
    if idle and context.of_a_day and since is not None:
        recent = F.col("first_at") >= since - UNUSED_MS
        messages = context.warehouse.read(MESSAGES_TABLE).where(recent)
        seen = messages.where(F.col("topic").isin(*idle)).select("topic").distinct().collect()
        idle = {name: idle[name] for name in idle.keys() - {row["topic"] for row in seen}}
    return [{"topic": name, "since": began} for name, began in sorted(idle.items())]


def _seen(messages: DataFrame) -> dict[str, int]:
    """Return the number of shards that the newest epoch of each topic shows at least."""
    widths = messages.groupBy("topic", "epoch").agg((F.max("shard") + 1).alias("width"))
    rows = widths.groupBy("topic").agg(F.max_by("width", "epoch").alias("shards")).collect()
    return {row["topic"]: row["shards"] for row in rows}


def _rows(frame: DataFrame) -> list[Row]:
    return [row.asDict() for row in frame.collect()]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hot-keys",
        type=int,
        default=MOST_KEYS,
        metavar="N",
        help=f"how many keys of each topic to list (default {MOST_KEYS})",
    )
    add_outstanding(parser)
    add_topics(parser)


JOB: Final = Job("sizing", "Tell load, skew, hot keys and shards needed.", figures, _arguments)
