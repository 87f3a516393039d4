"""Limits of a topic's destinations, checked when a message is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.errors import BodyTooLarge
from fairbox.model.feed_types import MAX_BODY
from fairbox.tables.stored_messages import StoredMessage

if TYPE_CHECKING:
    from fairbox.model.messages import Message, MessageRef
    from fairbox.model.topic_states import TopicState

ALWAYS_FIT: Final = {
    "sns": 32_000,
    "events": 150_000,
    "sqs": 160_000,
    "kinesis": 160_000,
    "lambda": 1_000_000,
    "feed": MAX_BODY,
}
"""Bytes of a body that a destination takes whatever they are: by scheme, where there is a limit."""
SMALL: Final = min(ALWAYS_FIT.values())
"""Bytes of a body that every destination takes."""


def too_large(message: Message, ref: MessageRef, state: TopicState) -> BodyTooLarge | None:
    """Return the error of a body that a subscription's destination cannot take in place.

    Bodies that always fit cost a comparison for each subscription, others an envelope.

    Raises:
        BodyTooLarge: a feed is subscribed: its clients cannot fetch offloaded bodies either.
    """
    size = len(message.body)
    over = [s for s in state.subscriptions if size > ALWAYS_FIT.get(s.scheme, size)]
    for subscription in over:
        if subscription.scheme == "feed":
            raise BodyTooLarge(size, MAX_BODY, subscription=subscription.name)

    for subscription in over:
        from fairbox.destinations.body_limits import excess  # noqa: PLC0415 - when first needed

        found = excess(StoredMessage(message, ref, "ready", size), subscription)
        if found is not None:
            return BodyTooLarge(*found, subscription=subscription.name)
    return None
