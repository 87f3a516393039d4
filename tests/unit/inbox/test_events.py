"""Lambda events of every destination, read by the inbox as our destinations send them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.errors import InvalidInput, NotConfigured
from fairbox.inbox import Event, Inbox
from fairbox.model.ids import new_id
from fairbox.model.webhook_signatures import parse_secret, signed_headers
from fairbox.tables.stored_messages import Offloaded

from tests.support import lambda_events
from tests.support.destination_examples import TIME, FixedClock, stored
from tests.support.webhook_server import Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.tables.stored_messages import StoredMessage

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD = "whsec_" + base64.b64encode(b"x" * 32).decode()


def inbox(**options: Any) -> Inbox:
    return Inbox("Inbox", "orders/billing", clock=FixedClock(), **options)


def webhook(message: StoredMessage) -> dict[str, Any]:
    server = Server()
    try:
        keys = [parse_secret(SECRET)]
        server.webhook(secrets=lambda: keys).send([message], 5)
        _, headers, body = server.requests[0]
    finally:
        server.close()
    return lambda_events.request(headers, body)


SOURCES: dict[str, Callable[[StoredMessage], dict[str, Any]]] = {
    "sqs": lambda m: lambda_events.sqs([m]),
    "sqs fifo": lambda m: lambda_events.sqs([m], fifo=True),
    "sns": lambda_events.sns,
    "sns to sqs": lambda m: lambda_events.sns_to_sqs(m, raw=False),
    "sns to sqs, raw": lambda m: lambda_events.sns_to_sqs(m, raw=True),
    "kinesis": lambda m: lambda_events.kinesis([m]),
    "eventbridge": lambda_events.eventbridge,
    "eventbridge to sqs": lambda_events.eventbridge_to_sqs,
    "invocation": lambda_events.invocation,
    "webhook": webhook,
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_message_of_a_destination_is_read(source: str) -> None:
    # the producer's own id and source must not stand in for Fairbox's
    message = stored(b'{"total": "42"}', headers={"ce-id": "order-7", "ce-type": "order.paid"})

    [event] = inbox(secrets=[SECRET]).events(SOURCES[source](message))

    assert event.message_id == message.message.id
    assert event.topic == "orders"
    assert event.cloudevent.id == "order-7"
    assert json.loads(event.body()) == {"total": "42"}
    assert event.source == source.split()[-2 if source.endswith("raw") else -1].strip(",") or (
        source in ("webhook", "sqs fifo")
    )


@pytest.mark.parametrize("source", sorted(SOURCES.keys() - {"eventbridge", "invocation"}))
def test_a_body_that_nobody_parsed_on_the_way_keeps_its_bytes(source: str) -> None:
    body = b'{ "total": 12345678901234567.89, "n": 123456789012345678901234, "x": 1.0e400 }'
    [event] = inbox(secrets=[SECRET]).events(SOURCES[source](stored(body)))
    assert event.body() == body


def test_records_have_the_names_that_a_batch_reports() -> None:
    queue = lambda_events.sqs([stored(), stored()])
    stream = lambda_events.kinesis([stored(), stored()])
    assert [e.record_id for e in inbox().events(queue)] == ["record-0", "record-1"]
    assert [e.record_id for e in inbox().events(stream)] == ["0", "1"]


def test_only_streams_and_groups_of_fifo_queues_have_an_order() -> None:
    message = stored(partition_key="customer-42", fairness_key="tenant")
    [standard] = inbox().events(lambda_events.sqs([message]))
    [fifo] = inbox().events(lambda_events.sqs([message], fifo=True))
    [record] = inbox().events(lambda_events.kinesis([message]))
    assert standard.group is None
    assert fifo.group == "customer-42"
    assert record.group is not None


class TestOffloadedBodies:
    class Bodies:
        bucket = "bodies"

        def put(self, key: str, body: bytes, content_type: str) -> None: ...

        def get(self, bucket: str, key: str) -> bytes:
            return f"{bucket}/{key}".encode()

        def expire(self, bucket: str, key: str) -> None: ...

    def event(self, bucket: str = "bodies") -> Event:
        away = stored(b"", offloaded=Offloaded(bucket, "bodies/orders/1"), size=2_000_000)
        [event] = inbox().events(lambda_events.sqs([away]))
        return event

    def test_it_is_read_from_the_store(self) -> None:
        assert self.event().body(self.Bodies()) == b"bodies/bodies/orders/1"

    def test_without_a_store_it_is_an_error_and_never_an_empty_body(self) -> None:
        with pytest.raises(NotConfigured, match="s3://bodies/bodies/orders/1"):
            self.event().body()

    def test_an_address_in_another_bucket_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match=r"ce\.dataref: expected an object of bucket bodies"):
            self.event("other").body(self.Bodies())


class TestBadRecords:
    @pytest.mark.parametrize(
        "body",
        [
            "",
            "hello",
            "[]",
            "null",
            "{}",
            "[" * 100_000,
            '{"Type": "Notification"}',
            '{"Type": "Notification", "Message": "hello"}',
            '{"detail-type": "x", "detail": {}}',
            '{"specversion": "1.0", "id": "1", "source": "/x", "type": "y"}',
            '{"specversion":"1.0","id":"1","source":"/x","type":"y","fairboxref":"orders/0/0/1"}',
            "\ud800",
        ],
    )
    def test_one_is_an_event_that_raises_when_it_is_used(self, body: str) -> None:
        [event] = inbox().events(lambda_events.records_of_queue([body]))
        assert event.record_id == "record-0"
        with pytest.raises(InvalidInput):
            inbox().transact_items(event)
        with pytest.raises(InvalidInput):
            event.body()

    @pytest.mark.parametrize(
        "event",
        [None, [], {}, {"Records": [{"eventSource": "aws:s3"}]}, {"Records": ["x"]}, {"a": 1}],
    )
    def test_an_event_of_another_kind_is_refused(self, event: Any) -> None:
        with pytest.raises(InvalidInput, match="event: expected an event of SQS"):
            list(inbox().events(event))

    @pytest.mark.parametrize("body", [None, 7, {}])
    def test_members_of_another_type_fail_their_record(self, body: Any) -> None:
        [event] = inbox().events(lambda_events.records_of_queue([body]))
        with pytest.raises(InvalidInput, match="record"):
            event.body()


class TestRequests:
    def test_a_request_with_another_body_key_id_or_time_is_refused(self) -> None:
        good = webhook(stored())
        headers = good["headers"]
        late = FixedClock(TIME + 301)
        forged = {**headers, "webhook-id": new_id()}
        refused = [
            (inbox(secrets=[SECRET]), good | {"body": ""}),
            (inbox(secrets=[OLD]), good),
            (inbox(), good),
            (inbox(secrets=[SECRET]), good | {"headers": forged}),
            (inbox(secrets=[SECRET]), good | {"headers": {}}),
            (inbox(secrets=[SECRET]), good | {"headers": {**headers, "webhook-signature": "é"}}),
            (
                inbox(secrets=[SECRET]),
                good | {"headers": {**headers, "webhook-signature": "\ud800"}},
            ),
            (inbox(secrets=[SECRET]), good | {"headers": {**headers, "webhook-id": "\ud800"}}),
            (inbox(secrets=[SECRET]), good | {"headers": {**headers, "webhook-timestamp": "²"}}),
            (Inbox("Inbox", "billing", secrets=[SECRET], clock=late), good),
        ]
        for receiver, request in refused:
            [event] = receiver.events(request)
            with pytest.raises(InvalidInput, match="webhook-signature"):
                _ = event.message_id

    def test_any_of_several_keys_and_any_case_of_names_will_do(self) -> None:
        good = webhook(stored())
        good["headers"] = {name.title(): value for name, value in good["headers"].items()}
        [event] = inbox(secrets=[OLD, SECRET]).events(good)
        assert event.body() == b'{"a": 1}'

    def test_the_signed_id_decides_and_not_the_envelopes(self) -> None:
        message = stored()
        good = webhook(message)
        good["headers"]["ce-fairboxref"] = str(stored().ref)
        [event] = inbox(secrets=[SECRET]).events(good)
        assert event.message_id == message.message.id

    def test_an_unsigned_address_of_the_body_is_refused(self) -> None:
        good = webhook(stored())
        good["headers"]["ce-dataref"] = "s3://bodies/other"
        [event] = inbox(secrets=[SECRET]).events(good)
        with pytest.raises(InvalidInput, match=r"ce\.dataref: expected the body in the request"):
            event.body()

    def test_a_signed_id_that_is_no_message_is_refused(self) -> None:
        headers = signed_headers("other", TIME, b"{}", [parse_secret(SECRET)])
        [event] = inbox(secrets=[SECRET]).events(lambda_events.request(headers, b"{}"))
        with pytest.raises(InvalidInput, match="webhook-id"):
            _ = event.message_id


def test_importing_the_inbox_imports_no_sdk_and_no_client() -> None:
    code = (
        "import sys, fairbox.inbox\n"
        "heavy = {'boto3', 'botocore', 'pydantic', 'urllib3', 'fairbox.client', 'fairbox.tables'}\n"
        "print(heavy & set(sys.modules), len([m for m in sys.modules if m[:7] == 'fairbox']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    found, count = done.stdout.rsplit(maxsplit=1)
    assert found == "set()"
    assert int(count) <= 20
