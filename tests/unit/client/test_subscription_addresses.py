"""Addresses that no destination has are refused when they are given, with what is meant."""

from __future__ import annotations

import pytest
from fairbox import InvalidInput, Subscription, Topic

from tests.support.application import App


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("sqs:billing", "the URL of a queue, such as sqs:https://sqs.eu-west-1.amazonaws.com/"),
        (
            "sqs:arn:aws:sqs:eu-west-1:123456789012:billing.fifo",
            "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/billing.fifo",
        ),
        ("sns:orders", "the ARN of a topic, such as sns:arn:aws:sns:eu-west-1:123456789012:orders"),
        ("events:a b", "event bus, such as events:default"),
        ("kinesis:clicks", "such as kinesis:arn:aws:kinesis:eu-west-1:123456789012:stream/orders"),
        ("lambda:a b", "such as lambda:arn:aws:lambda:"),
        ("topic:nowhere", "a topic that exists, not 'nowhere'"),
        ("topic:orders", "another topic than the subscription's own"),
        ("https:///in", "an address with a host"),
        ("https://[bad/in", "an address with a host"),
    ],
)
def test_it_is_refused_with_an_example_and_nothing_is_added(address: str, expected: str) -> None:
    app = App()
    app.outbox.create_topic(Topic("orders"))
    before = app.outbox.topic("orders").subscriptions
    with pytest.raises(InvalidInput) as caught:
        app.outbox.add_subscription(Subscription("orders", "s", address))
    assert caught.value.field == "destination"
    assert expected in caught.value.expected
    assert app.outbox.topic("orders").subscriptions == before
