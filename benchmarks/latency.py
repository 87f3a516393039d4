"""Latency of the local application: 100 messages a second, added to delivered at an SQS queue."""

from __future__ import annotations

import json
import math
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Outbox, Subscription, Topic

from benchmarks.figures import Figure
from local.application import LocalApplication
from local.cloudformation.synthesis import synthesise
from local.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

RATE: Final = 100
SECONDS: Final = 20
_WARM_UP: Final = 200  # messages before, for the functions' cold starts
_BODY: Final = b'{"id": 7, "state": "paid"}' * 30
_PRODUCERS: Final = 4
_LONGEST: Final = 60.0  # seconds to wait for what is under way


def figures(*, rate: int = RATE, seconds: int = SECONDS) -> list[Figure]:
    """Return the percentiles of added to delivered.

    Added: when the producer calls `add`. Delivered: when the queue takes the message, by its
    `SentTimestamp`; both clocks are this machine's.

    Args:
        rate: messages a second.
        seconds: duration.
    """
    with LocalApplication(synthesise(Workspace())) as application:
        sqs = application.clients["sqs"]
        queue = sqs.create_queue(QueueName="sink")["QueueUrl"]
        outbox = Outbox(
            application.clients["dynamodb"],
            table=application.env["FAIRBOX_OUTBOX_TABLE"],
            deliveries_table=application.env["FAIRBOX_DELIVERIES_TABLE"],
        )
        outbox.create_topic(Topic("latency"))
        outbox.add_subscription(Subscription("latency", "sink", f"sqs:{queue}"))
        produce(outbox, rate, _WARM_UP)
        drain(sqs, queue, _WARM_UP)
        added = produce(outbox, rate, rate * seconds)
        sent = drain(sqs, queue, len(added))
    waits = [sent[body] - added[body] for body in added if body in sent]
    lost = len(added) - len(waits)
    return [
        Figure("latency.p50_ms", "ms", percentile(waits, 0.5)),
        Figure("latency.p99_ms", "ms", percentile(waits, 0.99)),
        Figure("latency.max_ms", "ms", max(waits)),
        Figure("latency.mean_ms", "ms", statistics.fmean(waits)),
        Figure("latency.not_delivered", "messages", lost),
    ]


def percentile(values: Sequence[float], p: float) -> float:
    """Return the value at rank p x (n - 1), interpolated."""
    ordered = sorted(values)
    rank = p * (len(ordered) - 1)
    low = ordered[math.floor(rank)]
    return low + (ordered[math.ceil(rank)] - low) * (rank - math.floor(rank))


def produce(outbox: Outbox, rate: int, count: int, *, topic: str = "latency") -> dict[str, float]:
    """Add messages to a topic at a steady rate; return the time of each by id (ms)."""
    added: dict[str, float] = {}
    start = time.time() + 0.1

    def add(number: int) -> None:
        time.sleep(max(0.0, start + number / rate - time.time()))
        message = Message(topic=topic, body=_BODY, partition_key=f"customer-{number}")
        began = time.time() * 1000
        outbox.add(message)
        added[message.id] = began

    with ThreadPoolExecutor(_PRODUCERS) as pool:
        list(pool.map(add, range(count)))
    return added


def drain(sqs: Any, queue: str, count: int) -> dict[str, float]:
    """Wait until the queue has received the messages; return the time of each by id (ms)."""
    attributes = ["ApproximateNumberOfMessages"]
    deadline = time.monotonic() + _LONGEST
    while time.monotonic() < deadline:
        answer = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=attributes)
        if int(answer["Attributes"][attributes[0]]) >= count:
            break
        time.sleep(0.5)
    sent: dict[str, float] = {}
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue,
            MaxNumberOfMessages=10,
            MessageSystemAttributeNames=["SentTimestamp"],
        )
        received = answer.get("Messages", [])
        if not received:
            return sent
        for one in received:
            message_id = json.loads(one["Body"])["id"]
            at = float(one["Attributes"]["SentTimestamp"])
            sent[message_id] = min(at, sent.get(message_id, at))
        sqs.delete_message_batch(
            QueueUrl=queue,
            Entries=[
                {"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]}
                for n, one in enumerate(received)
            ],
        )
