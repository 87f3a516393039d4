"""The rule by which a topic gets another number of shards, and its reasons."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from fairbox_pipeline.transforms.reconcile import MAX_SHARDS
from fairbox_pipeline.transforms.sizing import SHARD_UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPARE: Final = 1
"""Shards more than needed that are no reason to resize."""


def resize_of(
    load: Mapping[str, Any],
    shards: int,
    source: str,
    fullest: Mapping[str, Any] | None,
    *,
    may_shrink: bool,
) -> dict[str, Any]:
    """Decide about a topic: more shards whenever more are needed, fewer if two or more are spare.

    Args:
        load: its row from `load_of_topics`.
        shards: present number.
        source: where that is known from.
        fullest: its row from `hot_keys` of the greatest count; None: no message has a key.
        may_shrink: whether the load tells of more than a quiet day.

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
    resizes = needed > shards or (may_shrink and shards - needed > _SPARE)
    return {
        "shards": shards,
        "shards_from": source,
        "hot_key": hot,
        "command": shlex.join(command) if resizes else None,
        "why": why,
    }
