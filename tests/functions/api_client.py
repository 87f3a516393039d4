"""A client of the HTTP API in memory: requests to events of format 2.0, responses to answers."""

from __future__ import annotations

import base64
import copy
import importlib.util
import json
import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import jsonschema
from fairbox.api.app import App
from fairbox.api.openapi import openapi
from fairbox.api.route import Api
from fairbox.api.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from fairbox.client.batches import Batches
    from fairbox.client.feeds import Feeds
    from fairbox.testing.application import MemoryApplication

ROOT = Path(__file__).parents[2]
EVENTS = ROOT / "tests" / "events"
DOCUMENT = openapi(ROUTES)
_TEXT = ("application/json", "application/cloudevents", "text/")


def read_event(name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return event


def load_handler(name: str = "api") -> ModuleType:
    """Return a handler's module, fresh as at a cold start."""
    path = ROOT / "layers/fairbox/python/fairbox/functions" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_handler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Lines:
    """A logger that keeps its lines."""

    lines: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def warning(self, msg: str, *, extra: Mapping[str, object]) -> None:
        self.lines.append(("warning", msg, dict(extra)))

    def error(self, msg: str, *, extra: Mapping[str, object]) -> None:
        self.lines.append(("error", msg, dict(extra)))


@dataclass(frozen=True)
class Reply:
    """An answer, checked against the OpenAPI document."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def fields(self) -> list[str]:
        """The fields that a refusal names."""
        return [error["field"] for error in self.json.get("errors", [])]

    @property
    def kind(self) -> str:
        return str(self.json["type"]).rpartition(":")[2]


class ApiClient:
    """Calls the API over an application in memory."""

    def __init__(
        self,
        application: MemoryApplication,
        batches: Callable[[], Batches] | None = None,
        feeds: Callable[[], Feeds | None] = lambda: None,
    ) -> None:
        self.application = application
        self.log = Lines()
        api = Api(
            application.outbox,
            application.ids,
            application.clock,
            batches or (lambda: application.batches),
            feeds,
        )
        self.app = App(api, self.log)
        self._base = read_event("http_api_get_stats")

    def event(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        event = copy.deepcopy(self._base)
        event["rawPath"] = event["requestContext"]["http"]["path"] = path
        event["requestContext"]["http"]["method"] = method
        event["headers"] |= {k.lower(): v for k, v in (headers or {}).items()}
        if content_type is not None:
            event["headers"]["content-type"] = content_type
        if query:
            event["queryStringParameters"] = dict(query)
            event["rawQueryString"] = urlencode(query)
        if body is not None:
            data = body.encode() if isinstance(body, str) else body
            event["body"], event["isBase64Encoded"] = _encoded(data, content_type or "")
        return event

    def call(self, method: str, path: str, body: bytes | str | None = None, **rest: Any) -> Reply:
        return self.send(self.event(method, path, body, **rest))

    def send(self, event: dict[str, Any]) -> Reply:
        # an application that records what is asked of AWS knows who asks
        caller = getattr(self.application, "caller", None)
        with caller.as_one("api") if caller else nullcontext():
            reply = reply_of(self.app.resolve(event, None))
        check_documented(event, reply)
        return reply

    def post(self, topic: str, message: object, **rest: Any) -> Reply:
        """Publish a JSON message."""
        return self.call(
            "POST",
            f"/topics/{topic}/messages",
            message if isinstance(message, bytes) else json.dumps(message),
            content_type="application/json",
            **rest,
        )

    def page(self, topic: str, **query: str) -> Reply:
        return self.call("GET", f"/topics/{topic}/messages", query=query)


def reply_of(response: dict[str, Any]) -> Reply:
    json.dumps(response)
    text = response.get("body") or ""
    body = base64.b64decode(text) if response["isBase64Encoded"] else text.encode()
    headers = {k.lower(): v for k, v in response["headers"].items()}
    return Reply(response["statusCode"], headers, body)


def check_documented(event: dict[str, Any], reply: Reply) -> None:
    """Hold an answer to what the OpenAPI document says of its operation."""
    path, method = event["rawPath"], event["requestContext"]["http"]["method"]
    named = [r for r in ROUTES if r.path == path]
    taking = [r for r in named or ROUTES if r.method == method and re.fullmatch(r.rule, path)]
    route = taking[0] if taking else None
    if route is None:
        assert reply.status in (404, 405)
        return
    operation = DOCUMENT["paths"][route.path.replace("+}", "}")][method.lower()]
    told = operation["responses"][str(reply.status)]
    assert ("content" in told) == bool(reply.body)
    if not reply.body:
        return
    media_type = next(iter(told["content"]))  # what the gateway says itself comes behind it
    assert reply.headers["content-type"] == media_type
    schema = told["content"][media_type]["schema"] | {"components": DOCUMENT["components"]}
    jsonschema.validate(reply.json, schema)


def _encoded(data: bytes, content_type: str) -> tuple[str, bool]:
    """Return text as it is and the rest as base64, as the gateway does."""
    if content_type.startswith(_TEXT):
        try:
            return data.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(data).decode(), True
