"""Bad input over HTTP: a problem that names the field, and nothing written."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.api.cursors import write_cursor
from fairbox.api.request import MAX_BODY_BYTES
from fairbox.client.message_pages import Place
from fairbox.testing.application import DELIVERIES, OUTBOX

from tests.functions.api_client import ApiClient, read_event

if TYPE_CHECKING:
    from fairbox.testing.application import MemoryApplication

JSON = "application/json"
CE = "application/cloudevents+json"
CE_BATCH = "application/cloudevents-batch+json"
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "t"}
NIL = "00000000-0000-0000-0000-000000000000"
FAR = "ffffffff-ffff-7fff-bfff-ffffffffffff"
DEEP = b'{"body": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"


def snapshot(application: MemoryApplication) -> list[Any]:
    return [application.engine.scan(TableName=table)["Items"] for table in (OUTBOX, DELIVERIES)]


@pytest.fixture(autouse=True)
def _nothing_is_written(application: MemoryApplication, api: ApiClient) -> Any:
    before = snapshot(application)
    yield
    assert snapshot(application) == before
    assert all(message.startswith("A request ") for _, message, _ in api.log.lines)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({}, "body"),
        ({"body": "x", "colour": "red"}, "colour"),
        ({"body": "x", "delay": -1}, "delay"),
        ({"body": "x", "delay": 1e300}, "delay"),
        ({"body": "x", "delay": "1"}, "delay"),
        ({"body": "x", "delay": True}, "delay"),
        ({"body": "x", "delay": 10**400}, "delay"),
        ({"body": "x", "id": "7"}, "id"),
        ({"body": "x", "id": NIL}, "id"),
        ({"body": "x", "id": ""}, "id"),
        ({"body": "x", "id": FAR}, "id"),
        ({"body": "x", "after": "yesterday"}, "after"),
        ({"body": "x", "after": FAR}, "after"),
        ({"body": "x", "headers": {"a": "b\r\nc: d"}}, "headers.a"),
        ({"body": "x", "headers": {"a": 1}}, "headers.a"),
        ({"body": "x", "headers": {"a b": "c"}}, "headers"),
        ({"body": "x", "headers": {"a": "x" * 20_000}}, "headers"),
        ({"body": "x", "headers": [1]}, "headers"),
        ({"body": "x", "partition_key": "x" * 257}, "partition_key"),
        ({"body": "x", "partition_key": 7}, "partition_key"),
        ({"body": "x", "dedup_key": "a\nb"}, "dedup_key"),
        ({"body": "x", "fairness_key": "\ud800"}, "fairness_key"),
        ({"body": "x", "batch_item": "x:1"}, "batch_item"),
        ({"body": "x", "content_type": ""}, "content_type"),
        ({"body": "x", "content_type": "a\nb"}, "content_type"),
        ({"body": "x", "body_encoding": "rot13"}, "body_encoding"),
        ({"body": {"a": 1}, "body_encoding": "utf-8"}, "body_encoding"),
        ({"body": "AA=A", "body_encoding": "base64"}, "body"),
        ({"body": "é", "body_encoding": "base64"}, "body"),
        ({"body": "\ud800"}, "body"),
        ([{"body": "x"}], "$"),
        ("x", "$"),
    ],
)
def test_a_field_that_is_not_what_it_takes_is_named(
    api: ApiClient, message: object, field: str
) -> None:
    reply = api.post("orders", message)
    assert (reply.status, reply.kind, reply.fields) == (422, "invalid-field", [field])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'body': 1}",
        b'{"body": NaN}',
        b'{"body": -Infinity}',
        b'{"body": 1} {}',
        b'{"body": "\xff"}',
        b'\xff\xfe{"body": 1}',
        b'\xef\xbb\xbf{"body": 1}',
        b'{"body": 1, "body": 2}',
        b'{"body": {"a": 1, "a": 2}}',
        b'{"body": "\x01"}',
        b'{"body": ' + b"9" * 5000 + b"}",
        DEEP,
    ],
)
def test_malformed_json_is_400(api: ApiClient, body: bytes) -> None:
    reply = api.post("orders", body)
    assert (reply.status, reply.kind) == (400, "malformed")
    assert reply.fields


@pytest.mark.parametrize(
    ("content_type", "body", "field"),
    [
        (CE, b"[]", "ce"),
        (CE, b"{", "ce"),
        (CE, b"\xff", "ce"),
        (CE, {**EVENT, "specversion": "0.3"}, "ce.specversion"),
        (CE, {**EVENT, "id": ""}, "ce.id"),
        (CE, {**EVENT, "id": None}, "ce.id"),
        (CE, {k: v for k, v in EVENT.items() if k != "source"}, "ce.source"),
        (CE, {**EVENT, "time": "yesterday"}, "ce.time"),
        (CE, {**EVENT, "data_base64": "*"}, "ce.data_base64"),
        (CE, {**EVENT, "data": 1, "data_base64": "AA=="}, "ce.data_base64"),
        (CE_BATCH, EVENT, "events"),
        (CE_BATCH, [EVENT, 7], "events[1]"),
        (CE_BATCH, [EVENT, {**EVENT, "type": 1}], "events[1].type"),
        (CE_BATCH, b"[" * 100_000, "events[0]"),
    ],
)
def test_malformed_cloudevents_are_400(
    api: ApiClient, content_type: str, body: object, field: str
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body)
    reply = api.call("POST", "/topics/orders/messages", data, content_type=content_type)
    assert (reply.status, reply.kind, reply.fields) == (400, "malformed", [field])


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"ce-id": "1"}, "ce.specversion"),
        ({"ce-specversion": "1.0", "ce-id": "%ff", "ce-source": "/", "ce-type": "t"}, "ce.id"),
        ({"ce-specversion": "1.0", "ce-id": "a%0Ab", "ce-source": "/", "ce-type": "t"}, "ce.id"),
        ({"ce-specversion": "1.0", "ce-id": "1", "ce-source": "a b", "ce-type": "t"}, "ce.source"),
    ],
)
def test_malformed_binary_mode_is_400(api: ApiClient, headers: dict[str, str], field: str) -> None:
    reply = api.call("POST", "/topics/orders/messages", b"\xff", headers=headers)
    assert (reply.status, reply.fields) == (400, [field])


def test_an_event_that_makes_no_message_stops_its_whole_batch(api: ApiClient) -> None:
    events = [EVENT, {**EVENT, "partitionkey": "x" * 257}]
    reply = api.call("POST", "/topics/orders/messages", json.dumps(events), content_type=CE_BATCH)
    assert (reply.status, reply.fields) == (422, ["events[1].partitionkey"])


def test_a_batch_of_too_many_events_is_422(api: ApiClient) -> None:
    events = json.dumps([EVENT] * 501)
    reply = api.call("POST", "/topics/orders/messages", events, content_type=CE_BATCH)
    assert (reply.status, reply.fields) == (422, ["events"])


@pytest.mark.parametrize(
    ("content_type", "headers"),
    [
        (None, {}),
        ("text/plain", {}),
        ("application/x-www-form-urlencoded", {}),
        ("application/cloudevents+avro", {}),
        ("application/json; charset=latin-1", {}),
        (JSON, {"content-encoding": "gzip"}),
        ("*" * 3000, {}),
    ],
)
def test_another_media_type_is_415(
    api: ApiClient, content_type: str | None, headers: dict[str, str]
) -> None:
    reply = api.call(
        "POST",
        "/topics/orders/messages",
        '{"body": 1}',
        content_type=content_type,
        headers=headers,
    )
    assert (reply.status, reply.kind) == (415, "unsupported-media-type")
    assert reply.fields in (["content-type"], ["content-encoding"])
    reply = api.call("PUT", "/topics/new", "{}", content_type=content_type, headers=headers)
    assert reply.status == 415


@pytest.mark.parametrize("content_type", [JSON, CE, CE_BATCH, "application/octet-stream"])
def test_a_body_over_the_limit_is_413_in_every_form(api: ApiClient, content_type: str) -> None:
    body = b"x" * (MAX_BODY_BYTES + 1)
    headers = {"ce-id": "1"} if content_type == "application/octet-stream" else {}
    reply = api.call(
        "POST", "/topics/orders/messages", body, content_type=content_type, headers=headers
    )
    assert (reply.status, reply.kind, reply.fields) == (413, "too-large", ["body"])
    assert str(MAX_BODY_BYTES) in reply.json["detail"]


def test_a_body_that_no_route_reads_is_passed_over(api: ApiClient) -> None:
    event = api.event("GET", "/topics", b"x" * (MAX_BODY_BYTES + 1))
    assert api.send(event).status == 200


def test_a_body_that_is_no_base64_is_400(api: ApiClient) -> None:
    event = read_event("http_api_post_binary_mode") | {"body": "A"}
    assert api.send(event).status == 400
    event = read_event("http_api_post_json") | {"body": "\ud800"}
    assert api.send(event).status == 400


@pytest.mark.parametrize("name", ["x" * 300, "a b", "-a", "a#b", "é", "..", '"', "a\nb", "%00"])
def test_a_name_that_no_topic_has_is_422_on_every_route(api: ApiClient, name: str) -> None:
    path = f"/topics/{name}"
    for reply in (
        api.post(name, {"body": "x"}),
        api.page(name),
        api.call("GET", path),
        api.call("PUT", path),
        api.call(
            "PUT", f"{path}/subscriptions/s", '{"destination":"sqs:http://q/q"}', content_type=JSON
        ),
        api.call("DELETE", f"{path}/subscriptions/s"),
    ):
        assert (reply.status, reply.fields) == (422, ["topic"])


@pytest.mark.parametrize("path", ["/topics//messages", "/", "", "/topics/a/b/c", "/messages/"])
def test_a_path_without_a_route_is_404(api: ApiClient, path: str) -> None:
    reply = api.call("POST", path, "{}", content_type=JSON)
    assert (reply.status, reply.kind) == (404, "unknown-route")


def test_an_unknown_topic_is_404_on_every_route(api: ApiClient) -> None:
    path = "/topics/nowhere"
    subscription = f"{path}/subscriptions/s"
    replies = [
        api.post("nowhere", {"body": "x"}),
        api.call("GET", path),
        api.call("PUT", subscription, '{"destination": "sqs:http://q/q"}', content_type=JSON),
        api.call("DELETE", subscription),
        api.call("POST", f"{path}/messages", json.dumps([EVENT, EVENT]), content_type=CE_BATCH),
        *(api.page("nowhere", state=s) for s in ("outstanding", "waiting", "dead", "delivered")),
    ]
    assert [(r.status, r.kind) for r in replies] == [(404, "unknown-topic")] * len(replies)


def test_a_method_that_a_route_does_not_take_is_405_and_says_which_it_takes(
    api: ApiClient,
) -> None:
    reply = api.send(read_event("http_api_default_route"))
    assert (reply.status, reply.kind) == (405, "method-not-allowed")
    assert reply.headers["allow"] == "DELETE, GET, PUT"
    reply = api.call("POST", "/messages/orders/0/0/x")
    assert (reply.status, reply.headers["allow"]) == (405, "DELETE, GET, PATCH")


@pytest.mark.parametrize(
    "ref",
    [
        "x",
        "orders/0/0",
        f"orders/0/0/{NIL}",
        f"orders/-1/0/{FAR}",
        f"orders/0/00/{FAR}",
        f"orders/{'9' * 5000}/0/{FAR}",
        f"orders/0/0/{FAR}/soon",
        f"orders/0/0/{FAR}/1/2",
        f"{'x' * 300}/0/0/{FAR}",
        "orders%2F0%2F0%2Fx",
        "%ff%fe",
    ],
)
def test_a_ref_that_is_none_is_400(api: ApiClient, ref: str) -> None:
    for method in ("GET", "DELETE"):
        reply = api.call(method, f"/messages/{ref}")
        assert (reply.status, reply.kind) == (400, "malformed")
        assert reply.fields[0].startswith(("ref", "topic"))


def test_a_ref_of_no_message_is_404(api: ApiClient) -> None:
    for ref in (f"orders/0/0/{FAR}", f"orders/9/999/{FAR}/999999999999999", f"no/0/0/{FAR}"):
        for method in ("GET", "DELETE"):
            reply = api.call(method, f"/messages/{ref}")
            assert (reply.status, reply.kind) == (404, "unknown-message")


def cursor(*fields: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "abc"}, "limit"),
        ({"limit": "0"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "1,2"}, "limit"),
        ({"limit": "1.5"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"limit": ""}, "limit"),
        ({"state": "asleep"}, "state"),
        ({"state": ""}, "state"),
        ({"colour": "red"}, "colour"),
        ({"\ufffd": "\ufffd"}, "\ufffd"),
        ({"since": "0"}, "since"),
        ({"state": "delivered", "since": "yesterday"}, "since"),
        ({"state": "delivered", "since": "2026-01-01"}, "since"),
        ({"state": "delivered", "since": "9" * 30}, "since"),
        ({"state": "delivered", "since": "0001-01-01T00:00:00+14:00"}, "since"),
        ({"state": "delivered", "until": "9999-12-31T23:59:59-14:00"}, "until"),
        ({"state": "delivered", "since": "2000", "until": "1000"}, "until"),
        ({"cursor": ""}, "cursor"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "é"}, "cursor"),
        ({"cursor": "A" * 2001}, "cursor"),
        ({"cursor": cursor()}, "cursor"),
        ({"cursor": cursor(*range(7))}, "cursor"),
        ({"cursor": cursor(1, "orders", "outstanding", "ready", 0, "~", "")}, "cursor"),
        ({"cursor": cursor(1, "orders", "outstanding", "dead", 0, FAR, "")}, "cursor"),
        ({"cursor": cursor(1, "orders", "outstanding", "ready", 10**20, FAR, "")}, "cursor"),
        ({"cursor": cursor(1, "orders", "outstanding", "ready", -1, FAR, "")}, "cursor"),
        ({"cursor": cursor(1, "orders", "outstanding", "ready", True, FAR, "")}, "cursor"),
        ({"cursor": cursor(1, "orders", "outstanding", ["ready"], 0, FAR, "")}, "cursor"),
        ({"state": "dead", "cursor": cursor(1, "orders", "dead", "dead", 0, "", "")}, "cursor"),
        ({"cursor": write_cursor("orders", "waiting", "later", Place(1, FAR))}, "cursor"),
        ({"cursor": write_cursor("other", "outstanding", "ready", Place(0, FAR))}, "cursor"),
        ({"cursor": base64.b64encode(b"[" * 1400).decode()}, "cursor"),
    ],
)
def test_a_query_that_makes_no_sense_names_its_parameter(
    api: ApiClient, query: dict[str, str], field: str
) -> None:
    reply = api.page("orders", **query)
    assert (reply.status, reply.fields) == (422, [field])


@pytest.mark.parametrize(
    ("state", "part"),
    [
        ("outstanding", "ready"),
        ("outstanding", "later"),
        ("waiting", "later"),
        ("dead", "dead"),
        ("delivered", "ledger"),
    ],
)
def test_a_forged_cursor_lists_nothing_at_worst(api: ApiClient, state: Any, part: Any) -> None:
    forged = write_cursor("orders", state, part, Place(10**14 - 1, FAR, "~"))
    reply = api.page("orders", state=state, cursor=forged)
    assert (reply.status, reply.json["messages"], reply.json["cursor"]) == (200, [], None)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/topics/new", {"shards": 0}, "shards"),
        ("/topics/new", {"shards": 1001}, "shards"),
        ("/topics/new", {"shards": 10**100}, "shards"),
        ("/topics/new", {"shards": 8.5}, "shards"),
        ("/topics/new", {"shards": "8"}, "shards"),
        ("/topics/new", {"ordering": "fifo"}, "ordering"),
        ("/topics/new", {"retry": {"max_attempts": 0}}, "retry.max_attempts"),
        ("/topics/new", {"retry": {"base": 10, "cap": 5}}, "retry.cap"),
        ("/topics/new", {"retry": {"tries": 3}}, "retry.tries"),
        ("/topics/new", {"retry": None}, "retry"),
        ("/topics/new", {"dedup_window": -1}, "dedup_window"),
        ("/topics/new", {"retention": 1}, "retention"),
        ("/topics/new", {"message_retention": 59}, "message_retention"),
        ("/topics/new", {"max_outstanding": 0}, "max_outstanding"),
        ("/topics/new", {"message_retention": 0.5}, "message_retention"),
        ("/topics/new", {"name": "new"}, "name"),
        ("/topics/new", [], "$"),
        ("/topics/orders/subscriptions/s", {}, "destination"),
        ("/topics/orders/subscriptions/s", {"destination": "ftp://x"}, "destination"),
        ("/topics/orders/subscriptions/s", {"destination": "sqs:"}, "destination"),
        ("/topics/orders/subscriptions/s", {"destination": "sqs:a\nb"}, "destination"),
        (
            "/topics/orders/subscriptions/s",
            {"destination": "sns:arn:aws:sns:eu-west:123456789012:t"},
            "destination",
        ),
        ("/topics/orders/subscriptions/s", {"destination": 7}, "destination"),
        (
            "/topics/orders/subscriptions/s",
            {"destination": "sqs:http://q/q", "timeout": 60},
            "timeout",
        ),
        ("/topics/orders/subscriptions/pull", {"destination": "sqs:http://q/q"}, "subscription"),
        ("/topics/orders/subscriptions/a b", {"destination": "sqs:http://q/q"}, "subscription"),
        (
            f"/topics/orders/subscriptions/{'x' * 65}",
            {"destination": "sqs:http://q/q"},
            "subscription",
        ),
    ],
)
def test_an_administrator_is_told_which_field(
    api: ApiClient, path: str, body: object, field: str
) -> None:
    reply = api.call("PUT", path, json.dumps(body), content_type=JSON)
    assert (reply.status, reply.fields) == (422, [field])


def test_an_unknown_parameter_is_422_on_every_route(api: ApiClient) -> None:
    ref = f"/messages/orders/0/0/{FAR}"
    routes = [
        ("GET", "/topics"), ("GET", "/topics/orders"), ("PUT", "/topics/orders"), ("GET", ref),
        ("DELETE", ref), ("GET", "/stats"), ("GET", "/openapi.json"),
        ("POST", "/topics/orders/messages"), ("GET", "/topics/orders/messages"),
        ("PUT", "/topics/orders/subscriptions/s"), ("DELETE", "/topics/orders/subscriptions/s"),
    ]  # fmt: skip
    for method, path in routes:
        reply = api.call(method, path, query={"verbose": "1"})
        assert (reply.status, reply.fields) == (422, ["verbose"])


def test_a_cancel_reason_is_text(api: ApiClient) -> None:
    for reason in ("x" * 257, "a\nb"):
        reply = api.call("DELETE", f"/messages/orders/0/0/{FAR}", query={"reason": reason})
        assert (reply.status, reply.fields) == (422, ["reason"])


def test_a_refusal_is_problem_details_and_one_log_line_with_the_same_id(api: ApiClient) -> None:
    reply = api.post("orders", {"body": "secret text", "delay": -1})
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json == {
        "type": "urn:fairbox:problem:invalid-field",
        "title": "A field is not what it takes",
        "status": 422,
        "detail": reply.json["detail"],
        "instance": "urn:fairbox:request:ULqH4hVuliAEPZw=",
        "retry": "never",
        "errors": [{"field": "delay", "expected": "greater than or equal to 0"}],
    }
    ((level, message, fields),) = api.log.lines
    assert (level, message) == ("warning", "A request was refused.")
    assert fields["request_id"] in reply.json["instance"]
    assert fields["fields"] == ["delay"]
    assert "secret" not in f"{fields}{reply.body!r}"


def test_garbage_that_is_echoed_is_cut(api: ApiClient) -> None:
    reply = api.post("orders", {"body": "x", **{f"{'k' * 5000}{n}": 1 for n in range(700)}})
    assert reply.status == 422
    assert len(reply.body) < 200_000
    assert len(json.dumps(api.log.lines[-1][2])) < 5_000


@pytest.mark.parametrize("action", ["acks", "fails", "retries"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
def test_an_action_on_batches_is_no_batch_and_allows_its_own_method_alone(
    api: ApiClient, action: str, method: str
) -> None:
    reply = api.call(method, f"/batches/{action}")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
