"""A body that a destination cannot take is offloaded or refused when it is published."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import BodyTooLarge, Message, Outbox, Subscription, Topic
from fairbox.client.publishing import ALWAYS_FIT
from fairbox.destinations.aws_services import Sns
from fairbox.destinations.body_limits import excess
from fairbox.model.bodies import ARCHIVED_UP_TO
from fairbox.model.ids import IdGenerator
from fairbox.model.topics import SCHEMES
from fairbox.tables.stored_messages import read_message
from fairbox.testing import ManualClock
from fairbox.testing.application import DELIVERIES, OUTBOX

from tests.support.application import App
from tests.support.destination_examples import stored

if TYPE_CHECKING:
    from fairbox.dispatch.ports import Outcome

ACCOUNT = "arn:aws:{}:eu-west-1:123456789012:{}"
ADDRESSES = {
    "sqs": "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/q",
    "sns": "sns:" + ACCOUNT.format("sns", "alerts"),
    "events": "events:default",
    "kinesis": "kinesis:" + ACCOUNT.format("kinesis", "stream/s"),
    "lambda": "lambda:" + ACCOUNT.format("lambda", "function:f"),
    "https": "https://example.com/hook",
    "topic": "topic:other",
    "feed": "feed:other",
}
HEX = random.Random(3).randbytes(200_000).hex().encode()  # 400,000 bytes that pack into half


def application(*schemes: str) -> App:
    app = App()
    app.outbox.create_topic(Topic("other"))
    app.outbox.add_subscriptions(
        Subscription("orders", scheme, ADDRESSES[scheme]) for scheme in schemes
    )
    return app


def without_bucket(app: App) -> Outbox:
    return Outbox(app.client, table=OUTBOX, deliveries_table=DELIVERIES, clock=app.clock)


def text(body: bytes, **fields: Any) -> Message:
    made = IdGenerator(ManualClock()).next()
    return Message(
        **{"topic": "orders", "body": body, "content_type": "text/plain", "id": made} | fields
    )


class TestSns:
    """SNS takes 256 KiB; a body of 600,000 bytes may lie in the item."""

    @pytest.mark.guarantee("body-limits")
    def test_with_a_bucket_it_gets_the_address(self) -> None:
        app = application("sns", "sqs")
        ref = app.outbox.add(text(HEX))
        (item,) = app.lying()
        message = read_message(item)
        assert message.offloaded is not None
        sns = Sns(None, ADDRESSES["sns"].removeprefix("sns:"))
        assert sns.prepare(message).size <= sns.alone
        found = app.outbox.get(ref)
        assert found is not None
        assert found.body == HEX

    @pytest.mark.guarantee("body-limits")
    def test_without_one_it_is_refused_and_nothing_is_written(self) -> None:
        app = application("sqs", "sns")
        outbox = without_bucket(app)
        with pytest.raises(BodyTooLarge) as caught:
            outbox.add_many([text(b"small"), text(HEX)])
        error = caught.value
        assert (error.field, error.subscription, error.limit) == ("body", "sns", 256 * 1024)
        assert 400_000 < error.size < 401_000
        assert str(error) == (
            f"body: expected at most 262144 bytes, got {error.size} with the envelope for "
            "subscription 'sns'"
        )
        with pytest.raises(BodyTooLarge):
            outbox.transact_items(text(HEX))
        assert app.lying() == []

    def test_where_nobody_has_the_limit_the_body_stays_in_the_item(self) -> None:
        app = application("sqs", "https", "topic")
        app.outbox.add(text(HEX))
        without_bucket(app).add(text(HEX))
        assert [read_message(item).offloaded for item in app.lying()] == [None, None]


@pytest.mark.parametrize("scheme", sorted(set(SCHEMES) - {"http"}))
def test_what_always_fits_does_so_in_the_worst_envelope(scheme: str) -> None:
    """A control character of text takes six bytes."""
    size = ALWAYS_FIT.get(scheme, ARCHIVED_UP_TO)
    headers = {f"h{n}": "é" * 250 for n in range(31)}
    worst = stored(
        b"\x01" * size, content_type="text/plain", headers=headers, partition_key="k" * 256
    )
    assert excess(worst, Subscription("orders", "s", ADDRESSES[scheme])) is None


@pytest.mark.parametrize("scheme", sorted(ALWAYS_FIT))
def test_the_check_and_the_call_have_one_limit(scheme: str) -> None:
    """A byte over the limit is refused, as the call would refuse it, and the limit is not."""
    subscription = Subscription("orders", "s", ADDRESSES[scheme])
    found = excess(stored(b"a" * 7_000_000, content_type="text/plain"), subscription)
    assert found is not None
    most = 7_000_000 - (found[0] - found[1])
    assert excess(stored(b"a" * most, content_type="text/plain"), subscription) is None
    assert excess(stored(b"a" * (most + 1), content_type="text/plain"), subscription) is not None


def test_an_address_that_cannot_be_used_refuses_no_message() -> None:
    app = App()
    # as an earlier release took it
    app.outbox.tables.topics.add_subscription(Subscription("orders", "s", "sns:nothing"))
    without_bucket(app).add(text(HEX))
    assert len(app.lying()) == 1


@pytest.mark.guarantee("body-limits")
def test_what_is_found_only_later_dies_at_the_first_attempt() -> None:
    """A subscription was added after the message."""
    app = application("sqs")
    without_bucket(app).add(text(HEX))
    app.outbox.add_subscription(Subscription("orders", "sns", ADDRESSES["sns"]))
    sns = Sns(None, ADDRESSES["sns"].removeprefix("sns:"))

    def answer(message: Any) -> Outcome:
        return sns.send([message], 1.0)[0]

    app.destinations[ADDRESSES["sns"]].answer = answer
    app.run(30)
    (letter,) = app.outbox.dead("orders")
    assert letter.subscriptions == {"sns"}
    assert letter.stored is not None
    assert letter.stored.state("sns").attempts == 1
    assert letter.reason.endswith("do not fit the destination's limit of 262144 bytes")
    assert app.lying() == []


def test_a_topic_without_subscriptions_has_no_limit() -> None:
    app = App()
    app.outbox.create_topic(Topic("pulled"))
    without_bucket(app).add(text(HEX, topic="pulled"))
    assert len(app.lying()) == 1
