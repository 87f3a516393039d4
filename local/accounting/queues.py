"""Queues that receive messages: an event bus that ends in one, events read, messages deleted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fairbox.cloudevents import parse_structured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.cloudevents import CloudEvent


def create_bus(clients: Mapping[str, Any], name: str, queue_url: str) -> None:
    """Create an event bus that passes every event on to a queue."""
    sqs, events = clients["sqs"], clients["events"]
    asked = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
    events.create_event_bus(Name=name)
    pattern = json.dumps({"source": [{"prefix": ""}]})
    events.put_rule(Name=name, EventBusName=name, EventPattern=pattern)
    target = {"Id": "queue", "Arn": asked["Attributes"]["QueueArn"]}
    events.put_targets(Rule=name, EventBusName=name, Targets=[target])


def event_of(text: str, *, from_bus: bool) -> CloudEvent:
    """Return the CloudEvent in the body of a queue's message.

    A bus passes the detail on as a JSON value; the event's bytes are those of its compact form.
    """
    if from_bus:
        detail = json.loads(text)["detail"]
        text = json.dumps(detail, separators=(",", ":"), ensure_ascii=False)
    return parse_structured(text.encode(), exact=True)


def delete_received(sqs: Any, queue_url: str, messages: Sequence[Mapping[str, Any]]) -> None:
    """Delete up to ten received messages; none is fine."""
    if messages:
        entries = [
            {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]}
            for n, message in enumerate(messages)
        ]
        sqs.delete_message_batch(QueueUrl=queue_url, Entries=entries)
