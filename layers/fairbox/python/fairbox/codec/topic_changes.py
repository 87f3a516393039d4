"""The latest changes of topics, as the version row keeps them in a ring of slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.codec import attributes as attr
from fairbox.codec.keys import version_key
from fairbox.codec.messages import number
from fairbox.model.topic_changes import SLOTS, TopicChanges, topic_digest

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_changes(item: Mapping[str, Any]) -> TopicChanges:
    """Return the changes of the version row; none where there is no row."""
    version, announced = (
        int(item.get(name, {"N": "0"})["N"]) for name in (attr.CONFIG_VERSION, attr.ANNOUNCED)
    )
    latest = {
        int(item[count]["N"]): bytes(item[topic]["B"])
        for topic, count in map(_slot, range(SLOTS))
        if count in item
    }
    return TopicChanges(version, announced, latest)


def change_update(table: str, counter: str, topic: str, before: TopicChanges) -> dict[str, Any]:
    """Return the update that counts a change of a topic, for the transaction that makes it.

    It has no condition, so that changes never hinder each other. `before` only chooses the slot:
    two writers that saw the same count take the same slot, and readers find the first one missing.

    Args:
        table: name of the outbox table.
        counter: `CONFIG_VERSION` or `ANNOUNCED`.
        topic: the topic's name.
        before: the changes as they were read lately.
    """
    changed, count = _slot(before.total % SLOTS)
    return {
        "TableName": table,
        "Key": version_key(),
        "UpdateExpression": "SET #t = :t, "
        "#k = if_not_exists(#n, :none) + if_not_exists(#a, :none) ADD #c :one",
        "ExpressionAttributeNames": {
            "#t": changed,
            "#k": count,
            "#n": attr.CONFIG_VERSION,
            "#a": attr.ANNOUNCED,
            "#c": counter,
        },
        "ExpressionAttributeValues": {
            ":t": {"B": topic_digest(topic)},
            ":none": number(0),
            ":one": number(1),
        },
    }


def _slot(place: int) -> tuple[str, str]:
    """Return the attributes of a slot: its topic, and the number of the change."""
    return f"{attr.CHANGED_TOPIC}{place}", f"{attr.CHANGE_NUMBER}{place}"
