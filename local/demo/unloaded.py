"""The latency of a message that nothing else competes with: one at a time, before the storm."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Subscription, Topic

from local.accounting.queues import delete_received, event_of
from local.workspace import LocalError

if TYPE_CHECKING:
    from fairbox import Outbox

SUBSCRIPTION: Final = "unloaded"
WARM_UP: Final = 3
"""Messages before the first that counts, for the cold starts of functions."""
COUNT: Final = 20
_BODY: Final = b'{"order": "7", "total": 42}'
_LONGEST: Final = 200.0
"""A message that the stream missed is found by a sweep, when it is a minute old."""


@dataclass(frozen=True, slots=True)
class Unloaded:
    """Messages that were sent one by one, and their median from call to queue, in ms."""

    sent: frozenset[str]
    p50_ms: float


def measure(sqs: Any, outbox: Outbox) -> Unloaded:
    """Add a message when the one before has arrived, again and again.

    A time runs from the call of `add` to the queue's `SentTimestamp`, which is in whole ms.

    Raises:
        LocalError: a message does not arrive, not even by a sweep.
    """
    queue = sqs.create_queue(QueueName="demo-unloaded")["QueueUrl"]
    outbox.create_topic(Topic("unloaded"))
    outbox.add_subscription(Subscription("unloaded", SUBSCRIPTION, f"sqs:{queue}"))

    waits: dict[str, float] = {}
    for _ in range(WARM_UP + COUNT):
        message = Message(topic="unloaded", body=_BODY, content_type="application/json")
        called = time.time() * 1000
        outbox.add(message)
        waits[message.id] = _arrived(sqs, queue, message.id) - called
    return Unloaded(frozenset(waits), round(statistics.median(list(waits.values())[WARM_UP:]), 1))


def _arrived(sqs: Any, queue: str, id_: str) -> float:
    """Return the time at which the queue took a message, in ms since 1970."""
    end = time.monotonic() + _LONGEST
    while time.monotonic() < end:
        answer = sqs.receive_message(
            QueueUrl=queue, WaitTimeSeconds=20, AttributeNames=["SentTimestamp"]
        )
        messages = answer.get("Messages", [])
        delete_received(sqs, queue, messages)
        for message in messages:
            if event_of(message["Body"], from_bus=False).id == id_:
                return float(message["Attributes"]["SentTimestamp"])
    raise LocalError(f"a message alone did not arrive within {_LONGEST:.0f} s")
