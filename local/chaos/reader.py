"""A process that reads a chaos run's SQS queues and records each message before deleting it."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from fairbox.model.messages import MessageRef

from local.accounting.journal import Journal
from local.accounting.queues import delete_received, event_of
from local.accounting.topics import COMPLETED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def arrival(text: str, taker: str) -> dict[str, Any]:
    """Return a queue's message as a line of the journal, without its time."""
    event = event_of(text, from_bus=taker == "bus")
    ref = MessageRef.parse(event.extensions["fairboxref"])
    body = json.loads(event.data)
    if ref.topic == COMPLETED.name:
        told = {name: body[name] for name in ("total", "acked", "failed")}
        return {"batch": body["id"], "id": ref.id, **told}
    return {"topic": ref.topic, "taker": taker, "n": body["n"], "e": body["e"], "ref": str(ref)}


class Reader:
    """Reads several queues in rotation.

    Args:
        client: boto3's SQS client.
        queues: taker by the queue's URL.
        journal: receives the arrivals.
    """

    def __init__(self, client: Any, queues: Mapping[str, str], journal: Journal) -> None:
        self._client = client
        self._queues = queues
        self._journal = journal

    def step(self) -> int:
        """Receive once from each queue; return the number of messages."""
        return sum(self._read(url, taker) for url, taker in self._queues.items())

    def _read(self, url: str, taker: str) -> int:
        answer = self._client.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=5
        )
        messages = answer.get("Messages", [])
        for message in messages:
            self._journal.write(**arrival(message["Body"], taker), at=time.monotonic_ns())
        delete_received(self._client, url, messages)
        return len(messages)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=json.loads, required=True, help="JSON: taker by URL")
    parser.add_argument("--journal", type=Path, required=True)
    given = parser.parse_args(arguments)
    reader = Reader(boto3.client("sqs"), given.queues, Journal(given.journal))
    while True:
        try:
            found = reader.step()
        except (BotoCoreError, ClientError):  # the queues are frozen at times
            found = 0
        if not found:
            time.sleep(0.2)


if __name__ == "__main__":
    main()
