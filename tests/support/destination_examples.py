"""Messages, clocks and clients that the tests of destinations share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.stub import Stubber
from fairbox.model.messages import Message, MessageRef
from fairbox.tables.stored_messages import Offloaded, StoredMessage

ACCOUNT = "123456789012"
TIME = 1_764_000_000


@dataclass
class FixedClock:
    seconds: float = TIME

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def stored(
    body: bytes = b'{"a": 1}', *, offloaded: Offloaded | None = None, size: int = 0, **fields: Any
) -> StoredMessage:
    fields = {"topic": "orders", "content_type": "application/json"} | fields
    message = Message(body=body, **fields)
    ref = MessageRef(message.topic, 0, 3, message.id)
    return StoredMessage(message, ref, "ready", size or len(body), offloaded=offloaded)


def client(service: str) -> Any:
    return boto3.client(  # type: ignore[call-overload]
        service,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(
            retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=1, proxies={}
        ),
    )


def stubbed(service: str) -> tuple[Any, Stubber]:
    made = client(service)
    stubber = Stubber(made)
    stubber.activate()
    return made, stubber
