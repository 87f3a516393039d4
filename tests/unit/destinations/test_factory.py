"""Opening destinations: by scheme, once, and never to where nobody may go."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from fairbox.destinations import DestinationFactory, make_clients
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.errors import InvalidInput
from fairbox.model.topics import Subscription

from tests.support.destination_examples import ACCOUNT, FixedClock

GOOD = {
    f"sqs:https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/q": ("Sqs", True),
    f"sns:arn:aws:sns:us-east-1:{ACCOUNT}:t": ("Sns", True),
    "events:default": ("EventBridge", True),
    f"events:arn:aws:events:us-east-1:{ACCOUNT}:event-bus/b": ("EventBridge", True),
    f"kinesis:arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/s": ("Kinesis", True),
    f"lambda:arn:aws:lambda:us-east-1:{ACCOUNT}:function:f": ("Lambda", False),
    "https://example.com/hook": ("Webhook", False),
    "topic:jobs": ("PulledTopic", True),
    "feed:trades": ("PublishedFeed", True),
}


class Clients:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(
        self, service: str, /, *, region: str | None = None, read_timeout: float = 3.0
    ) -> Any:
        self.asked.append(service)
        return object()


def factory(*, allow_private: bool = False) -> DestinationFactory:
    def add(messages: Any) -> list[Outcome]:
        return [TAKEN for _ in messages]

    return DestinationFactory(
        clients=Clients(), clock=FixedClock(), add_to_topic=add, allow_private=allow_private
    )


@pytest.mark.parametrize(("address", "expected"), GOOD.items())
def test_each_scheme_opens_its_destination(address: str, expected: tuple[str, bool]) -> None:
    destination = factory().open(Subscription("orders", "s", address))
    assert (type(destination).__name__, destination.quick) == expected


def test_the_same_subscription_opens_the_same_destination() -> None:
    made = factory()
    first = made.open(Subscription("orders", "s", "https://example.com/hook"))
    assert made.open(Subscription("orders", "s", "https://example.com/hook")) is first
    assert made.open(Subscription("orders", "t", "https://example.com/hook")) is not first


@pytest.mark.parametrize(
    "address",
    [
        "sqs:orders",
        "sns:orders",
        "events:a b",
        f"sns:arn:aws:sns:eu-west:{ACCOUNT}:t",
        f"lambda:arn:aws:lambda:cn-north-1:{ACCOUNT}:function:f",
        "kinesis:orders",
        "lambda:orders",
        "topic:orders",
        "topic:no topic",
        "feed:trades/btc",
        "http://example.com/",
        "https:example.com",
        "https://",
        "https://user:secret@example.com/",
        "https://example.com/#part",
        "https://example.com:99999/",
        "https://exämple.com/",
        "https://127.0.0.1/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest",
        "https://[::1]/",
        "https://[::ffff:8.8.8.8]/",
        "https://[64:ff9b::808:808]/",
        "https://[fe80::1%25eth0]/",
    ],
)
def test_an_address_that_cannot_be_used_is_invalid_when_it_is_opened(address: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        factory().open(Subscription("orders", "s", address))
    assert caught.value.field == "destination"
    assert "secret" not in str(caught.value)


def test_private_addresses_and_http_open_only_where_they_are_allowed() -> None:
    opened = factory(allow_private=True).open(Subscription("orders", "s", "http://127.0.0.1:9/"))
    assert not opened.quick


def test_clients_are_made_once_with_bounded_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[Any] = []

    def session() -> Any:
        sessions.append(boto3.session.Session("test", "test", region_name="us-east-1"))
        return sessions[-1]

    clients = make_clients(session)
    assert sessions == []
    assert clients("sqs") is clients("sqs")
    config = clients("sqs").meta.config
    assert (config.connect_timeout, config.read_timeout) == (1, 3.0)
    assert config.retries["total_max_attempts"] == 1
    assert clients("lambda", read_timeout=9.0).meta.config.read_timeout == 9.0
    assert len(sessions) == 1
