"""The latest changes of topics, as the version row keeps them in a ring of slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.codec import attributes as attr
from fairbox.model.topic_changes import SLOTS, TopicChanges

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_changes(item: Mapping[str, Any]) -> TopicChanges:
    """Return the changes of the version row; none where there is no row."""
    version, announced = (
        int(item.get(name, {"N": "0"})["N"]) for name in (attr.CONFIG_VERSION, attr.ANNOUNCED)
    )
    latest = {
        int(item[count]["N"]): bytes(item[topic]["B"])
        for topic, count in map(slot_attributes, range(SLOTS))
        if count in item
    }
    return TopicChanges(version, announced, latest)


def slot_attributes(place: int) -> tuple[str, str]:
    """Return the attributes of a slot: its topic, and the number of the change."""
    return f"{attr.CHANGED_TOPIC}{place}", f"{attr.CHANGE_NUMBER}{place}"
