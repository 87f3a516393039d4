"""The update that counts a change of a topic, and names the topic among the latest changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.codec import attributes as attr
from fairbox.codec.keys import version_key
from fairbox.codec.messages import number
from fairbox.codec.topic_changes import slot_attributes
from fairbox.model.topic_changes import SLOTS, topic_digest

if TYPE_CHECKING:
    from fairbox.model.topic_changes import TopicChanges


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
    changed, count = slot_attributes(before.total % SLOTS)
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
