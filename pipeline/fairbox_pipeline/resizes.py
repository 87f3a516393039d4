"""The rule by which a topic gets another number of shards, and its reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox_pipeline.transforms.reconcile import MAX_SHARDS
from fairbox_pipeline.transforms.sizing import SHARD_UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SPARE: Final = 1
"""Shards more than needed that are no reason to resize."""


@dataclass(frozen=True, slots=True)
class Resize:
    """The number of shards that a topic should have.

    Attributes:
        shards: present number.
        wanted: None: the present number does.
        hot_key: the key whose share alone is more than a shard is planned for.
        why: one sentence with the figures.
    """

    shards: int
    wanted: int | None
    hot_key: str | None
    why: str

    def command(self, topic: str) -> list[str]:
        """Return the command's arguments; empty: there is nothing to do."""
        if self.wanted is None:
            return []
        return ["fairbox", "topic", "resize", topic, "--shards", str(self.wanted)]


def resize_of(
    load: Mapping[str, Any],
    shards: int,
    source: str,
    fullest: Mapping[str, Any] | None,
    *,
    may_shrink: bool = True,
) -> Resize:
    """Decide about a topic: more shards whenever more are needed, fewer if two or more are spare.

    Args:
        load: its row from `load_of_topics`.
        shards: present number.
        source: where that is known from.
        fullest: its row from `hot_keys` of the greatest count; None: no message has a key.
        may_shrink: whether the load tells of more than a quiet day.
    """
    needed = min(load["shards_needed"], MAX_SHARDS)
    other = needed > shards or (may_shrink and shards - needed > _SPARE)
    units = load["units_per_second"]
    why = (
        f"the busiest minute wrote {units:,.1f} WRU/s, which need {needed} shards of "
        f"{SHARD_UNITS}, the topic has {shards} (from: {source}), and its fullest shard has "
        f"{load['skew']:.1f} times the mean"
    )
    hot = None
    if fullest is not None:
        share = fullest["messages"] / load["messages"]
        if share * units > SHARD_UNITS:
            hot = fullest["partition_key"]
            why += f"; key {hot!r} has {share:.0%} of the messages, which no resize spreads"
    return Resize(shards, needed if other else None, hot, why)
