"""Publishing over HTTP: the four forms, byte for byte, and deduplication."""

from __future__ import annotations

import base64
import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.client.outbox import Outbox
from fairbox.model.ids import IdGenerator, time_of
from fairbox.model.messages import MessageRef
from fairbox.model.topics import Subscription, Topic
from fairbox.testing import ManualClock
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX, MemoryApplication
from fairbox.testing.faults import Fault, FaultyDynamoDB

from tests.functions.api_client import ApiClient, load_handler, read_event, reply_of
from tests.functions.running import Context

if TYPE_CHECKING:
    from fairbox.model.messages import Message

ITEM = "0198f7a2-7d7e-7abc-8def-0123456789ab:17:4031"
EVENT = {"specversion": "1.0", "source": "/shop", "type": "t"}


def stored(api: ApiClient, ref: str) -> Message:
    message = api.application.outbox.get(MessageRef.parse(ref))
    assert message is not None
    return message


def batch(api: ApiClient, events: list[dict[str, Any]], topic: str = "orders") -> Any:
    return api.call(
        "POST",
        f"/topics/{topic}/messages",
        json.dumps(events),
        content_type="application/cloudevents-batch+json",
    )


def test_a_json_message_keeps_every_field(api: ApiClient) -> None:
    given = api.application.ids.next()
    api.application.outbox.create_topic(Topic("orders", dedup_window=60))
    reply = api.post(
        "orders",
        {
            "body": "grüezi",
            "partition_key": "customer-42",
            "content_type": "text/plain",
            "headers": {"traceparent": "00-1"},
            "dedup_key": "invoice-7",
            "fairness_key": "acme",
            "direct": True,
            "batch_item": ITEM,
            "delay": 2.5,
            "id": given,
        },
    )
    assert reply.status == 202
    message = stored(api, reply.json["refs"][0])
    assert message.body == "grüezi".encode()
    assert (message.partition_key, message.content_type) == ("customer-42", "text/plain")
    assert (message.dedup_key, message.fairness_key) == ("invoice-7", "acme")
    assert (message.batch_item, message.direct) == (ITEM, True)
    shown = api.call("GET", f"/messages/{reply.json['refs'][0]}")
    assert (shown.json["batch_item"], shown.json["direct"]) == (ITEM, True)
    assert (dict(message.headers), message.delay, message.id) == (
        {"traceparent": "00-1"},
        2.5,
        given,
    )


@pytest.mark.parametrize(
    ("written", "body", "content_type"),
    [
        ('"text"', b"text", "text/plain; charset=utf-8"),
        ('""', b"", "text/plain; charset=utf-8"),
        ('{"a": 1.50, "b" : [1e2]}', b'{"a": 1.50, "b" : [1e2]}', "application/json"),
        ("123456789012345678901234567890.10", b"123456789012345678901234567890.10", None),
        ("null", b"null", "application/json"),
        ("[]", b"[]", "application/json"),
    ],
)
def test_a_json_body_is_stored_as_it_was_written(
    api: ApiClient, written: str, body: bytes, content_type: str | None
) -> None:
    text = f' {{ "headers": {{"body": "no", "x": "}}"}} ,\n "body" : {written} , "delay": 0 }} '
    reply = api.post("orders", text.encode())
    assert reply.status == 202
    message = stored(api, reply.json["refs"][0])
    assert message.body == body
    assert message.content_type == (content_type or "application/json")


def test_a_base64_body_is_stored_as_its_bytes(api: ApiClient) -> None:
    body = bytes(range(256))
    reply = api.post("orders", {"body": base64.b64encode(body).decode(), "body_encoding": "base64"})
    message = stored(api, reply.json["refs"][0])
    assert (message.body, message.content_type) == (body, "application/octet-stream")


@pytest.mark.parametrize("size", [0, 1, 399 * 1024, 3_000_000])
def test_bodies_of_every_size_come_back_as_they_went_in(api: ApiClient, size: int) -> None:
    body = random.Random(size).randbytes(size)
    event = {**EVENT, "id": "1", "data_base64": base64.b64encode(body).decode()}
    reply = api.call(
        "POST",
        "/topics/orders/messages",
        json.dumps(event),
        content_type="application/cloudevents+json",
    )
    assert reply.status == 202
    assert stored(api, reply.json["refs"][0]).body == body


@pytest.mark.parametrize(
    ("name", "body", "headers"),
    [
        ("http_api_post_json", b'{"id": 7, "total": 10.50}', None),
        ("http_api_post_cloudevent", b'{"id": 7}', {"ce-id": "evt-7", "ce-source": "/shop/orders"}),
        (
            "http_api_post_binary_mode",
            b"\x00\xff\x10scan",
            {"ce-id": "evt-9", "ce-subject": "café"},
        ),
    ],
)
def test_real_events_of_each_form_are_published(
    api: ApiClient, name: str, body: bytes, headers: dict[str, str] | None
) -> None:
    reply = api.send(read_event(name))
    assert reply.status == 202
    message = stored(api, reply.json["refs"][0])
    assert message.body == body
    assert (headers or {}).items() <= dict(message.headers).items()


def test_a_batch_is_published_in_its_order(api: ApiClient) -> None:
    reply = api.send(read_event("http_api_post_cloudevents_batch"))
    assert reply.status == 202
    bodies = [stored(api, ref).body for ref in reply.json["refs"]]
    assert bodies == [b"1", b"2"]


def test_an_empty_batch_has_no_refs(api: ApiClient) -> None:
    assert batch(api, []).json == {"refs": []}
    assert batch(api, [], topic="nowhere").status == 404


def test_the_same_source_and_id_give_the_same_ref_within_the_window(api: ApiClient) -> None:
    api.application.outbox.create_topic(Topic("once", dedup_window=600))
    first = batch(api, [{**EVENT, "id": "1"}, {**EVENT, "id": "2"}], topic="once").json["refs"]
    again = batch(api, [{**EVENT, "id": "2"}, {**EVENT, "id": "1"}], topic="once").json["refs"]
    assert again == first[::-1]
    other = batch(api, [{**EVENT, "id": "1", "source": "/other"}], topic="once").json["refs"]
    assert other[0] not in first
    api.application.clock.advance(601)
    late = batch(api, [{**EVENT, "id": "1"}], topic="once").json["refs"]
    assert late[0] not in first


def test_without_a_window_the_same_event_is_another_message(api: ApiClient) -> None:
    refs = batch(api, [{**EVENT, "id": "1"}, {**EVENT, "id": "1"}]).json["refs"]
    assert len(set(refs)) == 2


def test_what_is_published_is_delivered(api: ApiClient) -> None:
    application = api.application
    application.outbox.add_subscription(Subscription("orders", "billing", "sqs:http://q/billing"))
    reply = api.post("orders", {"body": {"id": 7}})
    application.run()
    (received,) = application.destinations["sqs:http://q/billing"].received
    assert str(received.ref) == reply.json["refs"][0]
    assert received.message.body == b'{"id": 7}'


def test_an_id_made_here_sorts_above_after(api: ApiClient) -> None:
    first = api.post("orders", {"body": ""}).json["refs"][0].split("/")[3]
    api.application.clock.set(api.application.clock.now() - 100)
    second = api.post("orders", {"body": "", "after": first}).json["refs"][0].split("/")[3]
    assert second > first


def test_what_a_caller_names_in_after_delays_no_message_of_others(api: ApiClient) -> None:
    now = api.application.clock.now()
    ahead = IdGenerator(ManualClock(now + 299)).next()
    api.post("orders", {"body": "", "after": ahead})
    other = api.post("orders", {"body": ""}).json["refs"][0].split("/")[3]
    assert time_of(other) == int(now * 1000)


def test_a_batch_says_which_events_were_not_written() -> None:
    faulty: list[FaultyDynamoDB] = []

    def wrap(client: Any) -> FaultyDynamoDB:
        faulty.append(FaultyDynamoDB(client, random.Random(1)))
        return faulty[-1]

    application = MemoryApplication(wrap=wrap)
    application.outbox.create_topic(Topic("orders"))
    faulty[0].next("batch_execute_statement", None, *[Fault.THROTTLED] * 8)
    api = ApiClient(application)
    reply = batch(api, [{**EVENT, "id": str(n)} for n in range(30)])
    assert (reply.status, reply.kind) == (503, "not-written")
    assert (reply.json["retry"], reply.headers["retry-after"]) == ("after", "3")
    assert reply.fields == [f"events[{n}]" for n in range(25, 30)]
    assert application.outbox.outstanding_count("orders") == 25


def test_a_throttled_write_is_429_and_may_be_repeated() -> None:
    faulty: list[FaultyDynamoDB] = []

    def wrap(client: Any) -> FaultyDynamoDB:
        faulty.append(FaultyDynamoDB(client, random.Random(1)))
        return faulty[-1]

    application = MemoryApplication(wrap=wrap)
    application.outbox.create_topic(Topic("orders"))
    api = ApiClient(application)
    faulty[0].next("put_item", *[Fault.THROTTLED] * 8)
    reply = api.post("orders", {"body": "x"})
    assert (reply.status, reply.kind, reply.headers["retry-after"]) == (429, "throttled", "3")
    faulty[0].next("put_item", *[Fault.INTERNAL_ERROR] * 8)
    reply = api.post("orders", {"body": "x"})
    assert (reply.status, reply.kind, reply.headers["retry-after"]) == (503, "unavailable", "1")
    assert b"Internal server error" not in reply.body
    assert api.log.lines[-1][0] == "error"
    assert api.post("orders", {"body": "x"}).status == 202


def test_the_handler_answers_events_over_the_outbox_that_the_environment_names(
    application: MemoryApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    def from_env() -> Outbox:
        made.append(None)
        return application.outbox

    application.clock.set(time.time())  # the handler makes ids of the machine's time
    monkeypatch.setattr(Outbox, "from_env", from_env)
    monkeypatch.setenv("FAIRBOX_BATCHES_TABLE", BATCHES)
    monkeypatch.setenv("FAIRBOX_OUTBOX_TABLE", OUTBOX)
    monkeypatch.setenv("FAIRBOX_DELIVERIES_TABLE", DELIVERIES)
    batch = application.batches.open().id
    module = load_handler()
    for event in (
        read_event("http_api_post_json"),
        read_event("http_api_get_messages"),
        ApiClient(application).event("GET", f"/batches/{batch}"),
    ):
        reply = reply_of(module.handler(event, Context.of("api")))
        assert reply.status < 300
    assert len(made) == 1
