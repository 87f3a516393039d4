"""Job `sizing`: load and bytes by shard, skew, hot keys, and the shards that each topic needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox_pipeline.arguments import add_outstanding, add_topics
from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.outbox import KnownTopic
from fairbox_pipeline.resizes import resize_of
from fairbox_pipeline.schemas import DAY_MS
from fairbox_pipeline.transforms.sizing import (
    hot_keys,
    load_of_shards,
    load_of_topics,
    shards_needed,
)

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame

MOST_KEYS: Final = 100
_WEEK_MS: Final = 7 * DAY_MS
Row = dict[str, Any]


def figures(context: Context) -> Figures:
    """Return the load of each shard and topic, and the fullest keys; of one run found once."""
    if "sizing" not in context.found:
        context.found["sizing"] = _figures(context)
    return context.found["sizing"]


def _figures(context: Context) -> Figures:
    messages = context.messages()
    shards = load_of_shards(messages)
    topics = _rows(load_of_topics(shards, shards_needed(messages)))
    keys = _rows(hot_keys(messages, context.options.hot_keys))
    fullest: dict[str, Row] = {}
    for row in keys:
        fullest.setdefault(row["topic"], row)
    known = context.topics
    may_shrink = not context.window.is_under(_WEEK_MS, context.now)  # a day may be a quiet one
    sized = []
    for load in topics:
        topic = known.get(load["topic"]) or KnownTopic({0: load["shards"]}, "seen")
        fullest_key = fullest.get(load["topic"])
        sized.append(
            load | resize_of(load, topic.shards, topic.source, fullest_key, may_shrink=may_shrink)
        )
    return {"shards": _rows(shards), "topics": sized, "hot_keys": keys}


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
