"""The template's HTTP APIs: their routes, limits and errors, as API Gateway serves them."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response as StarletteResponse
from starlette.routing import Route as StarletteRoute

from local.cloudformation.identities import STAGE_TYPE
from local.gateway.apis import INTEGRATION, ROUTE, function_of, parts_of
from local.gateway.http_events import (
    STAGE,
    Match,
    Request,
    Response,
    build_event,
    message,
    read_result,
)
from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request as StarletteRequest
    from starlette.types import ASGIApp, Receive, Scope, Send

    from local.cloudformation.template import Template
    from local.functions.invoker import Invoker, InvokeResult
    from local.gateway.throttling import TokenBucket

BODY_LIMIT = 10 * 1024 * 1024
DRAIN_LIMIT = 10 * BODY_LIMIT
SECONDS = 30.0
CALLS_AT_ONCE = 64  # those that wait for a process among them; one more is refused
RETRY_AFTER_SECONDS = 1
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
_VARIABLE = re.compile(r"\{(\w+)(\+?)\}")


@dataclass(frozen=True, kw_only=True)
class ApiRoute:
    """One route: the requests that it matches and the function behind it."""

    key: str
    method: str  # ANY takes all
    pattern: re.Pattern[str]
    variables: int  # of the path; fewer is more specific
    greedy: bool  # ends in {name+}, or is $default
    function: str
    iam: bool
    seconds: float = SECONDS

    @classmethod
    def parse(cls, key: str, *, function: str, iam: bool, seconds: float = SECONDS) -> ApiRoute:
        """Read a route key.

        Raises:
            LocalError: the key is not of the form `METHOD /path` or `$default`.
        """
        if key == "$default":
            pattern = re.compile(r".*", re.DOTALL)
            return cls(
                key=key,
                method="ANY",
                pattern=pattern,
                variables=1_000,
                greedy=True,
                function=function,
                iam=iam,
                seconds=seconds,
            )
        method, separator, path = key.partition(" ")
        if not separator or not path.startswith("/"):
            raise LocalError(f"route key {key!r} is not `METHOD /path` or `$default`")
        found = _VARIABLE.findall(path)
        return cls(
            key=key,
            method=method,
            pattern=_path_pattern(path),
            variables=len(found),
            greedy=any(plus for _, plus in found),
            function=function,
            iam=iam,
            seconds=seconds,
        )

    @property
    def rank(self) -> tuple[bool, bool, int, bool]:
        """Sort key: `$default` last, full matches before greedy ones, ANY after methods."""
        return (self.key == "$default", self.greedy, self.variables, self.method == "ANY")


def _path_pattern(path: str) -> re.Pattern[str]:
    pattern = ""
    position = 0
    for found in _VARIABLE.finditer(path):
        pattern += re.escape(path[position : found.start()])
        pattern += f"(?P<{found[1]}>{'.+' if found[2] else '[^/]+'})"
        position = found.end()
    return re.compile(pattern + re.escape(path[position:]))


def read_routes(template: Template, api: str) -> list[ApiRoute]:
    """Return the routes of an HTTP API of the template, most specific first.

    Raises:
        LocalError: an integration or authorisation is of a kind not run here.
    """
    for name, properties in parts_of(template, api, STAGE_TYPE).items():
        stage = properties["StageName"]
        if stage != STAGE:
            raise LocalError(f"{name} ({STAGE_TYPE}) is named {stage}: {STAGE} is run here")
    integrations = {
        template.ref(name): (name, properties)
        for name, properties in parts_of(template, api, INTEGRATION).items()
    }
    routes = []
    for name, properties in parts_of(template, api, ROUTE).items():
        authorisation = properties.get("AuthorizationType", "NONE")
        if authorisation not in ("NONE", "AWS_IAM"):
            raise LocalError(
                f"{name} ({ROUTE}) asks for {authorisation}: NONE and AWS_IAM are known here"
            )
        target = properties.get("Target", "").removeprefix("integrations/")
        function, seconds = _function_of(*integrations[target])
        routes.append(
            ApiRoute.parse(
                properties["RouteKey"],
                function=function,
                iam=authorisation == "AWS_IAM",
                seconds=seconds,
            )
        )
    return sorted(routes, key=lambda route: route.rank)


def _function_of(name: str, properties: dict[str, Any]) -> tuple[str, float]:
    function = function_of(properties.get("IntegrationUri"))
    if (
        properties.get("IntegrationType") != "AWS_PROXY"
        or properties.get("PayloadFormatVersion") != "2.0"
        or function is None
    ):
        raise LocalError(f"{name} ({INTEGRATION}) is no Lambda proxy with payload format 2.0")
    return function, float(properties.get("TimeoutInMillis", SECONDS * 1000)) / 1000


def read_cors(template: Template, api: str) -> dict[str, Any]:
    """Return what the API allows to other origins, as Starlette's middleware takes it."""
    names = {
        "AllowOrigins": "allow_origins",
        "AllowMethods": "allow_methods",
        "AllowHeaders": "allow_headers",
        "ExposeHeaders": "expose_headers",
        "MaxAge": "max_age",
    }
    configured = template.properties(api).get("CorsConfiguration", {})
    return {names[name]: value for name, value in configured.items()}


def choose_route(routes: Sequence[ApiRoute], request: Request) -> tuple[ApiRoute, Match] | None:
    """Return the first route that matches the request."""
    for route in routes:
        if route.method not in ("ANY", request.method):
            continue
        found = route.pattern.fullmatch(request.path)
        if found:
            variables = {name: unquote(value) for name, value in found.groupdict().items()}
            return route, Match(route_key=route.key, path_parameters=variables, iam=route.iam)
    return None


@dataclass(kw_only=True)
class Gateway:
    """The HTTP API as an ASGI application (`app`).

    Two kinds of requests are refused with 429: requests over the stage's limit, without
    `Retry-After`, as on AWS, where an HTTP API cannot send it; and requests that would wait for a
    process behind `calls_at_once` others, with `Retry-After`, immediately, without their body.
    """

    routes: Sequence[ApiRoute]
    invoker: Invoker
    api_id: str
    new_id: Callable[[], str]
    throttle: TokenBucket | None = None
    cors: Mapping[str, Any] = field(default_factory=dict)
    calls_at_once: int = CALLS_AT_ONCE
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.calls_at_once, thread_name_prefix="api")
        self._under_way = 0  # changed by the event loop alone
        self.app: ASGIApp = Starlette(
            routes=[StarletteRoute("/{path:path}", self._handle, methods=METHODS)],
            exception_handlers={404: self._handle_unmatched},
        )
        if self.cors:
            self.app = CORSMiddleware(self.app, **self.cors)

    async def _handle(self, incoming: StarletteRequest) -> StarletteResponse:
        response = await self._respond(incoming)
        reply = StarletteResponse(response.body, status_code=response.status)
        names = {"content-length"}
        reply.raw_headers = [h for h in reply.raw_headers if h[0].decode() in names]
        reply.raw_headers += [
            (name.encode("latin-1"), value.encode("utf-8"))
            for name, value in response.headers
            if name not in names
        ]
        return reply

    async def _handle_unmatched(
        self, incoming: StarletteRequest, _error: Exception
    ) -> StarletteResponse:
        """Answer a path with a line break, which Starlette's own pattern does not match."""
        return await self._handle(incoming)

    async def _respond(self, incoming: StarletteRequest) -> Response:
        if self._under_way >= self.calls_at_once:
            await _read_body(incoming, limit=0)
            again = ("retry-after", str(RETRY_AFTER_SECONDS))
            return _too_many(again)
        self._under_way += 1
        try:
            return await self._answer(incoming)
        finally:
            self._under_way -= 1

    async def _answer(self, incoming: StarletteRequest) -> Response:
        body = await _read_body(incoming)
        if body is None:
            return message(413, "Request Entity Too Large")
        if self.throttle is not None and not self.throttle.take():
            return _too_many()
        request = _request(incoming, body)
        chosen = choose_route(self.routes, request)
        if chosen is None:
            return message(404, "Not Found")
        route, match = chosen
        event = build_event(
            request, match, api_id=self.api_id, request_id=self.new_id(), now=self.now()
        )
        payload = json.dumps(event, ensure_ascii=False).encode()
        try:
            result = await self._call(route, payload)
        except TimeoutError:
            return message(503, "Service Unavailable")
        return read_result(result)

    async def _call(self, route: ApiRoute, payload: bytes) -> InvokeResult:
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._threads, self.invoker.invoke, route.function, payload)
        try:
            return await asyncio.wait_for(asyncio.shield(call), route.seconds)
        except TimeoutError:
            # The function runs on after the gateway's timeout, as on AWS, and counts until it ends.
            self._under_way += 1
            call.add_done_callback(self._ended)
            raise

    def _ended(self, _call: object) -> None:
        self._under_way -= 1

    def close(self) -> None:
        """Accept no more calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def at_one_address(gateways: Sequence[Gateway]) -> ASGIApp:
    """Return APIs as one ASGI application: each has its own paths, and `$default` the others."""
    default, *others = sorted(gateways, key=lambda one: one.routes[-1].key != "$default")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        asked = (one for one in others if any(r.pattern.fullmatch(path) for r in one.routes))
        await next(asked, default).app(scope, receive, send)

    return app


def _too_many(*headers: tuple[str, str]) -> Response:
    refusal = message(429, "Too Many Requests")
    return replace(refusal, headers=(*refusal.headers, *headers))


async def _read_body(incoming: StarletteRequest, limit: int = BODY_LIMIT) -> bytes | None:
    """Read the body; None if it is over the limit.

    A client that is still sending would see a broken connection instead of the answer, so the rest
    is read and dropped, up to ten times the limit.
    """
    body = bytearray()
    read = 0
    async for chunk in incoming.stream():
        read += len(chunk)
        if read <= limit:
            body += chunk
        elif read > DRAIN_LIMIT:
            break
    return bytes(body) if read <= limit else None


def _request(incoming: StarletteRequest, body: bytes) -> Request:
    return Request(
        method=incoming.method,
        path=incoming.scope["raw_path"].decode("latin-1"),
        query=incoming.url.query,
        headers=[
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in incoming.headers.raw
        ],
        body=body,
        source_ip=incoming.client.host if incoming.client else "127.0.0.1",
    )
