"""Models of the library to models of the answers."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, TypeVar

from fairbox.api.field_types import Encoding, Out
from fairbox.api.models import (
    DeliveryOut,
    EpochOut,
    FailureOut,
    MessageOut,
    PartitionOut,
    RetryOut,
    SubscriptionOut,
    SubscriptionStateOut,
    TopicOut,
)
from fairbox.errors import FAILED, InvalidInput, NotConfigured
from fairbox.model.ids import parse_id, time_of
from fairbox.model.redaction import redacted_address

if TYPE_CHECKING:
    from fairbox.client.outbox import Outbox
    from fairbox.client.reading import MessageReceives
    from fairbox.model.topic_states import SubscriptionStatus, TopicState
    from fairbox.model.topics import Subscription
    from fairbox.tables.dead_letters import DeadLetter
    from fairbox.tables.ledger import Delivery
    from fairbox.tables.stored_messages import StoredMessage

S = TypeVar("S", bound=Out)

MAX_ANSWER_BYTES = 4_500_000
"""Of one answer: in base64 it fits the 6 MB that a Lambda function may return."""


def show_message(outbox: Outbox, stored: StoredMessage, receives: MessageReceives) -> MessageOut:
    """Return a message with its state and its body, fetched if it was offloaded."""
    received = receives.of(stored)
    message = stored.message
    shown = MessageOut(
        ref=str(stored.ref),
        topic=message.topic,
        id=message.id,
        state=receives.state(stored, received),
        added_at=time_of(message.id),
        due_at=stored.ref.due,
        partition_key=message.partition_key,
        content_type=message.content_type,
        headers=dict(message.headers),
        size=stored.size,
        dedup_key=message.dedup_key,
        fairness_key=message.fairness_key,
        direct=message.direct,
        batch_item=message.batch_item,
        pending=None if stored.pending is None else sorted(stored.pending),
        subscriptions=_states(stored),
        receive_count=received.count,
        held_until=received.held_until,
        consumer=received.consumer or None,
    )

    # not even fetched: no answer has room for it
    if stored.size > MAX_ANSWER_BYTES:
        return shown.model_copy(update={"body_omitted": "too large"})
    try:
        body = outbox.fetch(stored).message.body
    except (*FAILED, NotConfigured):
        # a body that cannot be read now does not hide its message
        return shown.model_copy(update={"body_omitted": "unavailable"})

    text, encoding = body_text(body)
    shown = shown.model_copy(update={"body": text, "body_encoding": encoding})
    # escapes make a body of allowed size larger in JSON, up to six times
    return shown if encoded_size(shown) <= MAX_ANSWER_BYTES else without_body(shown)


def show_dead(outbox: Outbox, letter: DeadLetter, receives: MessageReceives) -> MessageOut:
    """Return a dead letter; of one that nothing could read, the raw item."""
    why = {"reason": letter.reason, "died_at": letter.died_at}
    if letter.stored is not None:
        return show_message(outbox, letter.stored, receives).model_copy(update=why)

    try:
        added_at = time_of(parse_id(letter.id))
    except InvalidInput:
        # the sort key of an item that is no message may be any text
        added_at = None

    return MessageOut(
        ref=f"{letter.topic}/{letter.epoch}/{letter.shard}/{letter.id}",
        topic=letter.topic,
        id=letter.id,
        state="dead",
        added_at=added_at,
        body_omitted="unreadable",
        reason=letter.reason,
        died_at=letter.died_at,
        raw=letter.raw or None,
    )


def show_delivery(delivery: Delivery) -> DeliveryOut:
    """Return a delivery."""
    return DeliveryOut.of(delivery, ref=str(delivery.ref), delivered_at=delivery.at)


def show_topic(state: TopicState) -> TopicOut:
    """Return a topic with its epochs and subscriptions."""
    topic = state.topic
    return TopicOut.of(
        topic,
        retry=RetryOut.of(topic.retry),
        tenant_weights=dict(topic.tenant_weights),
        pushed=state.pushed,
        paused=state.paused,
        deleting=state.deleting,
        partition=None if topic.partition is None else PartitionOut.of(topic.partition),
        epochs=[EpochOut.of(epoch) for epoch in state.epochs],
        subscriptions=[show_subscription(s, state.status(s.name)) for s in state.subscriptions],
    )


def show_subscription(subscription: Subscription, status: SubscriptionStatus) -> SubscriptionOut:
    """Return a subscription, and how it stands."""
    # addresses of webhooks may have keys in their query
    destination = redacted_address(subscription.destination)
    return SubscriptionOut.of(subscription, destination=destination, **status.as_dict())


def encoded_size(shown: Out) -> int:
    """Return how many bytes it takes in an answer."""
    return len(shown.model_dump_json().encode())


def without_body(shown: S) -> S:
    """Return the same, saying that its body is too large for an answer."""
    return shown.model_copy(
        update={"body": None, "body_encoding": None, "body_omitted": "too large"}
    )


def body_text(body: bytes) -> tuple[str, Encoding]:
    """Return a body as an answer has it, and how to read it."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def _states(stored: StoredMessage) -> list[SubscriptionStateOut]:
    return [
        SubscriptionStateOut.of(
            state,
            subscription=name,
            due_at=state.due,
            history=[FailureOut.of(failure) for failure in state.history],
        )
        for name, state in sorted(stored.states.items())
    ]
