"""The list of the busiest topics, as the row that every change of a topic counts up keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.codec import attributes as attr
from fairbox.codec.messages import number
from fairbox.model.busiest_topics import BusiestTopics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.codec.keys import Item


def busiest_attributes(busiest: BusiestTopics) -> Item:
    """Return the list as attributes; a set that is empty cannot be written and is left out."""
    named = {attr.BUSIEST: {"SS": sorted(busiest.names)}} if busiest.names else {}
    return named | {
        attr.RANKED_HOUR: number(busiest.hour),
        attr.RANKED_VERSION: number(busiest.version),
    }


def read_busiest(item: Mapping[str, Any]) -> BusiestTopics:
    """Return the list of the row; the empty one if topics were never ranked."""
    if attr.RANKED_HOUR not in item:
        return BusiestTopics()
    return BusiestTopics(
        frozenset(item.get(attr.BUSIEST, {"SS": ()})["SS"]),
        int(item[attr.RANKED_HOUR]["N"]),
        int(item[attr.RANKED_VERSION]["N"]),
    )
