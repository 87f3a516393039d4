"""Job `sizing`: load and bytes by shard, skew, hot keys, and the shards that each topic needs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from fairbox_pipeline.arguments import add_outbox
from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.outbox import KnownTopic
from fairbox_pipeline.transforms.reconcile import MAX_SHARDS
from fairbox_pipeline.transforms.sizing import (
    SHARD_UNITS,
    hot_keys,
    load_of_shards,
    load_of_topics,
    shards_needed,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

MOST_KEYS: Final = 100
_SPARE: Final = 1
"""Shards more than needed that are no reason to resize."""
Row = dict[str, Any]


def figures(context: Context) -> Figures:
    """Return the load of each shard and topic, and the fullest keys; of one run found once."""
    if "sizing" not in context.found:
        context.found["sizing"] = _figures(context)
    return context.found["sizing"]


def _figures(context: Context) -> Figures:
    messages = context.messages
    shards = load_of_shards(messages)
    topics = _rows(load_of_topics(shards, shards_needed(messages)))
    keys = _rows(hot_keys(messages, context.options.hot_keys))
    fullest: dict[str, Row] = {}
    for row in keys:
        fullest.setdefault(row["topic"], row)
    known = context.topics
    sized = []
    for load in topics:
        topic = known.get(load["topic"]) or KnownTopic({0: load["shards"]}, "seen")
        told = resize_of(load, topic.shards, topic.source, fullest.get(load["topic"]))
        del load["may_shrink"]
        sized.append(load | told)
    return {"shards": _rows(shards), "topics": sized, "hot_keys": keys}


def resize_of(
    load: Mapping[str, Any],
    shards: int,
    source: str,
    fullest: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Decide about a topic: more shards whenever more are needed, fewer if two or more are spare.

    Args:
        load: its row from `load_of_topics`.
        shards: present number.
        source: where that is known from.
        fullest: its row from `hot_keys` of the greatest count; None: no message has a key.

    Returns:
        `shards` `shards_from` as given; `hot_key`, whose share alone is more than a shard is
        planned for, or None; `command` to resize, or None; and `why`, a sentence with the figures.
    """
    needed = min(load["shards_needed"], MAX_SHARDS)
    units = load["units_per_second"]
    why = (
        f"the busiest minute wrote {units:,.1f} WRU/s, which need {needed} shards of "
        f"{SHARD_UNITS}, the topic has {shards} (from: {source}), and its fullest shard has "
        f"{load['skew']:.1f} times the mean"
    )
    share = fullest["messages"] / load["messages"] if fullest else 0
    hot = fullest["partition_key"] if fullest and share * units > SHARD_UNITS else None
    if hot is not None:
        why += f"; key {hot!r} has {share:.0%} of the messages, which no resize spreads"
    command = ["fairbox", "topic", "resize", load["topic"], "--shards", str(needed)]
    resizes = needed > shards or (load["may_shrink"] and shards - needed > _SPARE)
    return {
        "shards": shards,
        "shards_from": source,
        "hot_key": hot,
        "command": shlex.join(command) if resizes else None,
        "why": why,
    }


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
    add_outbox(parser)


JOB: Final = Job("sizing", "Tell load, skew, hot keys and shards needed.", figures, _arguments)
