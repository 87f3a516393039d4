"""The HTTP API of the running application, from request to destination."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from fairbox import MessageRef

from tests.e2e.stage import Stage, eventually

pytestmark = [pytest.mark.engine, pytest.mark.e2e]


def call(
    stage: Stage,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, str, Any]:
    """Return status, content type and JSON of an answer."""
    connection = HTTPConnection(urlsplit(stage.app.api_url).netloc, timeout=60)
    try:
        text = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(
            method, path, text, {"content-type": "application/json", **(headers or {})}
        )
        answer = connection.getresponse()
        content = answer.read()
        kind = answer.headers.get_content_type()
        return answer.status, kind, json.loads(content) if content else None
    finally:
        connection.close()


def test_a_message_goes_from_the_api_to_its_destination(stage: Stage) -> None:
    topic, queue = stage.topic("from-api"), stage.queue()
    stage.subscribe(topic, {"queue": f"sqs:{queue.url}"})
    headers = {
        "ce-specversion": "1.0",
        "ce-id": "7",
        "ce-source": "/tests",
        "ce-type": "order.made",
        "ce-partitionkey": "customer-7",
    }
    status, _, answer = call(
        stage, "POST", f"/topics/{topic}/messages", '{"name":"Zoë"}'.encode(), headers
    )
    assert status == 202
    (ref,) = map(MessageRef.parse, answer["refs"])
    queue.wait_for([ref])
    assert queue.read()[0].body == '{"name":"Zoë"}'.encode()

    def delivered() -> list[str]:
        path = f"/topics/{topic}/messages?state=delivered"
        return [one["id"] for one in call(stage, "GET", path)[2]["messages"]]

    eventually(lambda: delivered() == [ref.id], failing=delivered)
    status, kind, problem = call(stage, "GET", f"/messages/{quote(str(ref))}")
    assert (status, kind, problem["status"]) == (404, "application/problem+json", 404)


def test_messages_are_listed_by_state_shown_and_cancelled(stage: Stage) -> None:
    topic = stage.topic("listed")
    posted = {"body": {"n": 1}, "partition_key": "k"}
    status, _, answer = call(stage, "POST", f"/topics/{topic}/messages", posted)
    assert status == 202
    (ref,) = answer["refs"]
    _, _, answer = call(stage, "POST", f"/topics/{topic}/messages", posted | {"delay": 600})
    (waiting,) = answer["refs"]

    def refs(state: str) -> list[str]:
        status, _, page = call(stage, "GET", f"/topics/{topic}/messages?state={state}")
        assert status == 200
        return [one["ref"] for one in page["messages"]]

    assert (refs("outstanding"), refs("waiting"), refs("dead")) == ([ref], [waiting], [])
    status, _, shown = call(stage, "GET", f"/messages/{quote(waiting)}")
    assert (status, shown["state"], shown["partition_key"]) == (200, "waiting", "k")
    for one in (ref, waiting):
        assert call(stage, "DELETE", f"/messages/{quote(one)}")[0] == 204
    assert (refs("outstanding"), refs("waiting")) == ([], [])
    status, kind, problem = call(stage, "DELETE", f"/messages/{quote(ref)}")
    assert (status, kind) == (404, "application/problem+json")
    assert ref in json.dumps(problem)


@pytest.mark.parametrize(
    ("path", "body", "status", "named"),
    [
        ("/topics/nobody-made-it/messages", b'{"body":1}', 404, "nobody-made-it"),
        ("/topics/{topic}/messages", b'{"body":', 400, "character 8"),
        ("/topics/{topic}/messages", b'{"body":1,"delay":-1}', 422, "delay"),
        ("/topics/{topic}/messages", b'{"body":1,"headers":{"a":"b\\nc"}}', 422, "headers"),
    ],
)
def test_what_is_refused_says_why_and_writes_nothing(
    stage: Stage, path: str, body: bytes, status: int, named: str
) -> None:
    topic = stage.topic("refusing")
    given, kind, problem = call(stage, "POST", path.format(topic=topic), body)
    assert (given, kind, problem["status"]) == (status, "application/problem+json", status)
    assert named in json.dumps(problem)
    assert stage.outbox.outstanding_count(topic) == 0


def test_a_route_that_is_none_is_not_found(stage: Stage) -> None:
    assert call(stage, "GET", "/nowhere")[0] == 404
