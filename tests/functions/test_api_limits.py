"""Limits and back-pressure of every route: what is too much, and what a busy database answers."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Feed, Message
from fairbox.api.app import TRY_SECONDS
from fairbox.api.request import MAX_BODY_BYTES
from fairbox.api.routes import ROUTES
from fairbox.model.topics import Topic
from fairbox.testing.application import MemoryApplication
from fairbox.testing.faults import Fault, FaultyDynamoDB

from tests.functions.api_client import DOCUMENT, ApiClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.functions.api_client import Reply

JSON = "application/json"
SCHEMAS = DOCUMENT["components"]["schemas"]
GATEWAY_SECONDS = 30
LAST_CALL_SECONDS = 5  # of the client to the database
SLOW_SECONDS = 2.9  # near what the client waits for
NO_TABLE = {"show_openapi", "make_feed_token"}
BUSY = {
    "publish_messages": {"body": "x"},
    "redrive_dead_letters": {"limit": 5},
    "resize_topic": {"shards": 16},
    "put_topic": {},
    "put_feed": {},
    "publish_to_feed": {"body": 1},
    "put_subscription": {"destination": "sqs:http://q/q"},
    "add_items": {"count": 3, "request_id": "r"},
}
"""By operation, a body that is right; further ones need what only a run gives."""


class Busy:
    """An application whose tables can be made to throttle every call."""

    def __init__(self) -> None:
        self.faults: list[FaultyDynamoDB] = []
        self.application = MemoryApplication(wrap=self._wrap)
        outbox = self.application.outbox
        outbox.create_topic(Topic("jobs"))
        self.message = Message(topic="jobs", body=b"x", id=self.application.ids.next())
        self.ref = outbox.add(self.message)
        self.application.clock.advance(3)
        (self.received,) = self.application.queue.receive("jobs")
        self.batch = self.application.batches.open().id
        (self.group,) = self.application.batches.add(self.batch, 3, request_id="first")
        self.application.feeds.create(Feed("prices"))
        self.api = ApiClient(self.application, feeds=lambda: self.application.feeds)

    def drag(self, operation: str) -> None:
        """Let each call of an operation take long, and leave all of it unprocessed."""

        def draw(called: str) -> Fault | None:
            if called != operation:
                return None
            self.application.clock.advance(SLOW_SECONDS)
            return Fault.UNPROCESSED

        self.faults[0]._draw = draw  # type: ignore[assignment,method-assign]

    def _wrap(self, client: Any) -> FaultyDynamoDB:
        self.faults.append(FaultyDynamoDB(client, random.Random(1)))
        return self.faults[-1]

    def strike(self, fault: Fault | None) -> None:
        for faulty in self.faults:
            faulty._rates = {} if fault is None else {fault: 1.0}

    def call(self, name: str) -> Reply:
        route = next(route for route in ROUTES if route.endpoint.__name__ == name)
        path = route.path.replace("{topic}", "jobs").replace("{name}", "billing")
        path = path.replace("{id}", self.batch).replace("{ref+}", str(self.ref))
        path = path.replace("{feed}", "prices").replace("{key+}", "eur")
        body = BUSY.get(name) or self._body(name)
        text = None if body is None else json.dumps(body)
        return self.api.call(route.method, path, text, content_type=text and JSON)

    def _body(self, name: str) -> dict[str, Any] | None:
        items, receipts = [f"{self.group.id}:0"], [self.received.receipt]
        settled: dict[str, dict[str, Any]] = {
            "ack_items": {"items": items},
            "fail_items": {"items": items},
            "retry_items": {"items": items},
            "ack_messages": {"receipts": receipts},
            "release_messages": {"receipts": receipts},
            "nack_messages": {"nacks": [{"receipt": receipts[0]}]},
            "extend_messages": {"extensions": [{"receipt": receipts[0], "seconds": 60}]},
            "edit_message": {"delay": 30},
        }
        return settled.get(name)


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            yield operation["operationId"], operation


OPERATIONS = dict(operations())
WITH_TABLES = sorted(set(OPERATIONS) - NO_TABLE)


@pytest.mark.parametrize("name", WITH_TABLES)
def test_a_throttled_database_is_429_with_retry_after_before_the_gateway_gives_up(
    name: str,
) -> None:
    busy = Busy()
    busy.strike(Fault.THROTTLED)
    clock = busy.application.clock
    began = clock.now()
    reply = busy.call(name)
    assert (reply.status, reply.kind) == (429, "throttled")
    assert 1 <= int(reply.headers["retry-after"]) <= 30
    assert clock.now() - began < GATEWAY_SECONDS - LAST_CALL_SECONDS
    busy.strike(None)
    assert busy.call(name).status < 500


@pytest.mark.parametrize("name", WITH_TABLES)
def test_a_database_that_fails_is_503_with_retry_after(name: str) -> None:
    busy = Busy()
    busy.strike(Fault.INTERNAL_ERROR)
    reply = busy.call(name)
    assert (reply.status, reply.kind) == (503, "unavailable")
    assert int(reply.headers["retry-after"]) >= 1


def test_many_calls_of_one_request_share_its_time() -> None:
    busy = Busy()
    events = [{"specversion": "1.0", "id": str(n), "source": "/s", "type": "t"} for n in range(500)]
    clock = busy.application.clock
    busy.drag("batch_execute_statement")
    began = clock.now()
    reply = busy.api.call(
        "POST",
        "/topics/jobs/messages",
        json.dumps(events),
        content_type="application/cloudevents-batch+json",
    )
    assert (reply.status, reply.kind) == (503, "not-written")
    assert int(reply.headers["retry-after"]) >= 1
    assert clock.now() - began <= TRY_SECONDS + 3 + SLOW_SECONDS
    assert [e["field"] for e in reply.json["errors"]][-1] == "events[499]"


def test_calls_that_a_request_makes_side_by_side_share_its_time() -> None:
    busy = Busy()
    batch = busy.application.batches.open().id
    busy.application.batches.add(batch, 1_000, request_id="many", group_size=1)
    clock = busy.application.clock
    readers = 4
    busy.drag("batch_get_item")
    began = clock.now()
    reply = busy.api.call("GET", f"/batches/{batch}")
    assert (reply.status, reply.kind) == (429, "throttled")
    # this clock adds up what the readers wait at the same time
    assert clock.now() - began <= TRY_SECONDS + readers * (3 + SLOW_SECONDS)


def test_every_operation_documents_its_back_pressure() -> None:
    for name, operation in OPERATIONS.items():
        for status in ("429", "503"):
            assert "Retry-After" in operation["responses"][status]["headers"], (name, status)


@pytest.mark.parametrize(
    "name", sorted(name for name, operation in OPERATIONS.items() if "requestBody" in operation)
)
def test_every_body_has_a_documented_limit(name: str) -> None:
    busy = Busy()
    route = next(route for route in ROUTES if route.endpoint.__name__ == name)
    path = route.path.replace("{topic}", "jobs").replace("{name}", "s")
    path = path.replace("{id}", busy.batch).replace("{ref+}", str(busy.ref))
    body = b'{"x": "' + b"x" * MAX_BODY_BYTES + b'"}'
    reply = busy.api.call(route.method, path, body, content_type=JSON)
    assert (reply.status, reply.kind, reply.fields) == (413, "too-large", ["body"])


def bounded_fields() -> list[tuple[str, str, int]]:
    """Operations with the lists of their bodies, and how many entries each takes."""
    found = []
    for name, operation in OPERATIONS.items():
        content = operation.get("requestBody", {}).get("content", {})
        reference = content.get(JSON, {}).get("schema", {}).get("$ref", "")
        properties = SCHEMAS.get(reference.rpartition("/")[2], {}).get("properties", {})
        for field, schema in properties.items():
            for choice in (schema, *schema.get("anyOf", ())):
                if choice.get("type") == "array":
                    assert "maxItems" in choice, f"{name}: {field} has no limit"
                    found.append((name, field, choice["maxItems"]))
    return found


@pytest.mark.parametrize(("name", "field", "limit"), bounded_fields())
def test_one_entry_too_many_refuses_the_whole_call(name: str, field: str, limit: int) -> None:
    busy = Busy()
    entries: dict[str, list[Any]] = {
        "items": [f"{busy.group.id}:0"],
        "receipts": [busy.received.receipt],
        "nacks": [{"receipt": busy.received.receipt}],
        "extensions": [{"receipt": busy.received.receipt, "seconds": 9}],
        "ids": [busy.message.id],
        "allow": ["trades/btc"],
    }
    others = {"allow": {"user": "u7"}}
    route = next(route for route in ROUTES if route.endpoint.__name__ == name)
    path = route.path.replace("{topic}", "jobs")
    body = {field: entries[field] * (limit + 1), **others.get(field, {})}
    reply = busy.api.call(route.method, path, json.dumps(body), content_type=JSON)
    assert reply.status in (413, 422)
    assert reply.fields == [field]
    assert busy.application.batches.progress(busy.batch).pending == 3
    assert busy.application.outbox.get(busy.ref) is not None


def test_every_list_is_a_page_of_a_bounded_size() -> None:
    whole = {"list_epochs"}  # a topic has as many as were not yet empty: a few
    for name, operation in OPERATIONS.items():
        if not name.startswith("list_") or name in whole:
            continue
        parameters = {p["name"]: p["schema"] for p in operation["parameters"]}
        assert {"limit", "cursor"} <= set(parameters), name
        assert parameters["limit"]["maximum"] <= 10_000, name
        answer = operation["responses"]["200"]["content"][JSON]["schema"]["$ref"]
        assert "cursor" in SCHEMAS[answer.rpartition("/")[2]]["required"], name


@pytest.mark.parametrize(
    ("name", "parameter", "most"),
    [
        (name, parameter["name"], parameter["schema"]["maximum"])
        for name, operation in OPERATIONS.items()
        for parameter in operation["parameters"]
        if "maximum" in parameter["schema"]
    ],
)
def test_a_limit_over_its_maximum_is_refused(name: str, parameter: str, most: int) -> None:
    busy = Busy()
    route = next(route for route in ROUTES if route.endpoint.__name__ == name)
    path = route.path.replace("{topic}", "jobs").replace("{id}", busy.batch)
    for value, refused in ((most, False), (most + 1, True)):
        reply = busy.api.call(route.method, path, query={parameter: str(value)})
        assert (reply.status == 422) is refused
        assert reply.fields == ([parameter] if refused else [])


class TestTopics:
    def names(self, api: ApiClient, limit: int) -> list[list[str]]:
        pages, cursor = [], None
        while True:
            query = {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
            page = api.call("GET", "/topics", query=query).json
            pages.append([topic["name"] for topic in page["topics"]])
            cursor = page["cursor"]
            if cursor is None:
                return pages

    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
    def test_pages_give_every_topic_once_with_its_subscriptions(
        self, api: ApiClient, limit: int
    ) -> None:
        for name in ("orders-2", "orders.x", "Z", "a"):
            api.application.outbox.create_topic(Topic(name))
        path = "/topics/orders/subscriptions/billing"
        api.call("PUT", path, '{"destination": "sqs:http://q/q"}', content_type=JSON)
        pages = self.names(api, limit)
        everything = ["Z", "a", "orders", "orders-2", "orders.x"]
        assert [name for page in pages for name in page] == everything
        assert all(len(page) == limit for page in pages[:-1])
        assert pages[-1]
        query = {"limit": "3"}
        shown = api.call("GET", "/topics", query=query).json["topics"]
        assert [s["name"] for s in shown[2]["subscriptions"]] == ["billing"]

    def test_a_cursor_of_another_list_is_refused(self, api: ApiClient) -> None:
        for cursor in ("x", "", "W10", "WyJiYXRjaGVzIG9wZW4iLCJhIl0", "WyJ0b3BpY3MiLDddIA"):
            reply = api.call("GET", "/topics", query={"cursor": cursor})
            assert (reply.status, reply.fields) == (422, ["cursor"])


def test_a_batch_of_too_many_unfinished_groups_is_shown_by_an_estimate(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairbox.api.batch_routes.MAX_EXACT_GROUPS", 150)
    batches = api.application.batches
    for groups, exact in ((150, True), (151, False)):
        batch = batches.open().id
        batches.add(batch, groups * 2, request_id="r", group_size=2)
        shown = api.call("GET", f"/batches/{batch}").json
        assert (shown["exact"], shown["pending"]) == (exact, groups * 2)
