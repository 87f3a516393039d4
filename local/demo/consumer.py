"""A consumer process of the demo's fan-out: it receives messages, acks items, and may crash."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any, Final

import boto3
from fairbox import Batches

from local.accounting.queues import delete_received, event_of

if TYPE_CHECKING:
    from collections.abc import Sequence

REPEAT: Final = 0.3
"""Share of acks that repeat items acked before."""
DIRECT: Final = 0.3
"""Share of acks through the library rather than through the queue."""
ITEM: Final = "item"
"""The CloudEvents attribute that names the item; a message carries it as header `ce-item`."""


class Consumer:
    """Receives messages, acks their items in random order, some of them twice, then deletes them.

    Args:
        sqs: boto3's SQS client.
        batches: acks directly.
        queue, acks: URLs of the messages' queue and of the ack queue.
        rng: chooses orders, repeats and routes.
        crash_after: number of acked, undeleted messages after which it kills itself; 0: never.
    """

    def __init__(
        self,
        sqs: Any,
        batches: Batches,
        *,
        queue: str,
        acks: str,
        rng: random.Random,
        crash_after: int = 0,
    ) -> None:
        self._sqs = sqs
        self._batches = batches
        self._queue = queue
        self._acks = acks
        self._rng = rng
        self._crash_after = crash_after
        self._acked: list[str] = []

    def step(self) -> int:
        """Handle one receive; return the number of messages."""
        received = self._sqs.receive_message(
            QueueUrl=self._queue, MaxNumberOfMessages=self._rng.randint(1, 10)
        ).get("Messages", [])
        count = len(received)
        self._rng.shuffle(received)
        while received:
            part = [received.pop() for _ in range(min(len(received), self._rng.randint(1, 4)))]
            self._ack([item_of(message["Body"]) for message in part])
            if self._crash_after and len(self._acked) >= self._crash_after:
                os.kill(os.getpid(), signal.SIGKILL)
            delete_received(self._sqs, self._queue, part)
        return count

    def _ack(self, items: list[str]) -> None:
        self._acked += items
        said = list(items)
        if self._rng.random() < REPEAT:
            said += self._rng.sample(self._acked, min(3, len(self._acked)))
        self._rng.shuffle(said)
        if self._rng.random() < DIRECT:
            self._batches.ack(said)
        else:
            self._sqs.send_message(QueueUrl=self._acks, MessageBody=json.dumps({"acks": said}))


def item_of(body: str) -> str:
    """Return the item that a message names."""
    return event_of(body, from_bus=False).extensions[ITEM]


def main(arguments: Sequence[str] | None = None) -> None:
    """Consume until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queue")
    parser.add_argument("acks")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--crash-after", type=int, default=0)
    given = parser.parse_args(arguments)
    consumer = Consumer(
        boto3.client("sqs"),
        Batches.from_env(),
        queue=given.queue,
        acks=given.acks,
        rng=random.Random(given.seed),  # noqa: S311 - no secret
        crash_after=given.crash_after,
    )
    while True:
        if not consumer.step():
            time.sleep(0.2)


if __name__ == "__main__":
    main()
