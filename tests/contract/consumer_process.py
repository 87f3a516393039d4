"""A consumer in a process of its own over DynamoDB Local; it says what it handled, line by line."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import boto3
from fairbox import Consumer, Queue

_printing = threading.Lock()


def main(endpoint: str, table: str, deliveries: str, topic: str) -> None:
    """Work the topic until a signal."""
    client = boto3.client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    queue = Queue(client, table=table, deliveries_table=deliveries)

    def handler(received: Any) -> None:
        time.sleep(0.005)
        with _printing:
            print(received.message.id, received.receive_count, flush=True)  # noqa: T201 - a program
        if received.message.body == b"poison":
            raise ValueError("poison")

    consumer = Consumer(
        queue, topic, handler, concurrency=4, visibility_timeout=2, max_attempts=5, idle=0.2
    )
    counts = consumer.run()
    print("ended", counts.acked, counts.released, flush=True)  # noqa: T201 - a program


if __name__ == "__main__":
    main(*sys.argv[1:])
