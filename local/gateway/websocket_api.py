"""The template's WebSocket API: its routes, authorizer and limits, as API Gateway serves them."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from local.cloudformation.identities import ACCOUNT, HTTP_API, REGION, STAGE_TYPE
from local.gateway.apis import INTEGRATION, ROUTE, find_apis, function_of, parts_of
from local.gateway.websocket_answers import Refused, read_answer, read_policy
from local.workspace import LOOPBACK, LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from starlette.requests import Request

    from local.cloudformation.template import Template
    from local.functions.invoker import Invoker, InvokeResult

AUTHORIZER = "AWS::ApiGatewayV2::Authorizer"
CONNECT, DISCONNECT, DEFAULT = "$connect", "$disconnect", "$default"
MESSAGE_LIMIT, FRAME_LIMIT = 128 * 1024, 32 * 1024
SECONDS = 29.0
IDLE_SECONDS, LIFE_SECONDS = 600, 7200
CALLS_AT_ONCE = 64  # further ones wait
POST_SECONDS = 0.5  # for a client whose buffer is full
POST_ERRORS = {
    400: "BadRequestException",
    410: "GoneException",
    413: "PayloadTooLargeException",
    429: "LimitExceededException",
}
_HEADER = re.compile(r"route\.request\.header\.([\w-]+)")


SERVER_SETTINGS: Mapping[str, Any] = {
    "ws": "websockets-sansio",
    "ws_max_size": (MESSAGE_LIMIT, FRAME_LIMIT),  # past it: 1009
    "ws_per_message_deflate": False,
    "ws_ping_interval": None,
}


@dataclass(frozen=True, kw_only=True)
class SocketRoute:
    """The function of a route, or of the authorizer."""

    function: str
    seconds: float = SECONDS
    answers: bool = False  # its body goes back to the client
    needs: frozenset[str] = frozenset()  # headers, in lower case, without which it is not called


@dataclass(frozen=True, kw_only=True)
class WebSocketApi:
    """The API as the template has it: `$connect`, `$disconnect`, `$default` and the authorizer."""

    id: str
    stage: str
    routes: Mapping[str, SocketRoute]
    authorizer: SocketRoute | None = None


def read_websocket_api(template: Template) -> WebSocketApi | None:
    """Return the template's WebSocket API, if it has one.

    Raises:
        LocalError: a part of it is of a kind that is not run here.
    """
    apis = find_apis(template, "WEBSOCKET")
    if not apis:
        return None
    if len(apis) > 1:
        raise LocalError(f"one WEBSOCKET API is served here: {', '.join(apis)}")
    [api] = apis
    stages = parts_of(template, api, STAGE_TYPE)
    limits = [key for stage in stages.values() for key in stage if key.endswith("RouteSettings")]
    if len(stages) != 1 or limits:
        raise LocalError(
            f"{api} ({HTTP_API}) has stages {list(stages)} and limits {limits}: "
            "one stage without limits is run here"
        )
    responses = parts_of(template, api, "AWS::ApiGatewayV2::RouteResponse").values()
    answering = {response["RouteId"] for response in responses}
    integrations = {
        template.ref(name): _read_integration(name, properties)
        for name, properties in parts_of(template, api, INTEGRATION).items()
    }
    authorizers = {
        template.ref(name): _read_authorizer(name, properties)
        for name, properties in parts_of(template, api, AUTHORIZER).items()
    }
    routes, authorizer = {}, None
    for name, properties in parts_of(template, api, ROUTE).items():
        key, kind = properties["RouteKey"], properties.get("AuthorizationType", "NONE")
        if kind == "CUSTOM" and key == CONNECT:
            authorizer = authorizers[properties["AuthorizerId"]]
        elif kind != "NONE" or key not in (CONNECT, DISCONNECT, DEFAULT):
            raise LocalError(
                f"{name} ({ROUTE}) is {key} and asks for {kind}: "
                f"{CONNECT} (NONE, CUSTOM), {DISCONNECT} and {DEFAULT} are run here"
            )
        function, seconds = integrations[properties["Target"].removeprefix("integrations/")]
        routes[key] = SocketRoute(
            function=function, seconds=seconds, answers=template.ref(name) in answering
        )
    return WebSocketApi(
        id=template.ref(api),
        stage=next(iter(stages.values()))["StageName"],
        routes=routes,
        authorizer=authorizer,
    )


def _read_integration(name: str, properties: Mapping[str, Any]) -> tuple[str, float]:
    function = function_of(properties.get("IntegrationUri"))
    if properties.get("IntegrationType") != "AWS_PROXY" or function is None:
        raise LocalError(f"{name} ({INTEGRATION}) is no Lambda proxy")
    return function, float(properties.get("TimeoutInMillis", SECONDS * 1000)) / 1000


def _read_authorizer(name: str, properties: Mapping[str, Any]) -> SocketRoute:
    function = function_of(properties.get("AuthorizerUri"))
    sources = [_HEADER.fullmatch(source) for source in properties.get("IdentitySource", ())]
    if properties.get("AuthorizerType") != "REQUEST" or function is None or not all(sources):
        raise LocalError(f"{name} ({AUTHORIZER}) is no Lambda of type REQUEST that needs headers")
    return SocketRoute(function=function, needs=frozenset(s[1].lower() for s in sources if s))


@dataclass(kw_only=True, eq=False)
class Socket:
    """One client's connection; times are seconds since 1970."""

    id: str
    web_socket: WebSocket
    connected_at: float
    active_at: float
    authorizer: dict[str, str] = field(default_factory=dict)
    deleted: asyncio.Future[None] = field(default_factory=asyncio.Future)

    @property
    def source_ip(self) -> str:
        """The client's address."""
        return self.web_socket.client.host if self.web_socket.client else LOOPBACK

    def headers(self) -> dict[str, str]:
        """Return the handshake's headers, by their names in lower case."""
        return dict(self.web_socket.headers) | {"X-Forwarded-For": self.source_ip}


@dataclass(kw_only=True)
class WebSocketGateway:
    """The WebSocket API as an ASGI application (`app`), and its open `sockets` by connection id.

    The same port serves `post_to_connection` and `delete_connection` of boto3's client
    `apigatewaymanagementapi`. Each `tick` seconds it closes what is idle or old by `clock`
    (seconds since 1970).
    """

    api: WebSocketApi
    invoker: Invoker
    new_id: Callable[[], str]
    clock: Callable[[], float] = time.time
    tick: float = 1.0
    sockets: dict[str, Socket] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="feeds")
        self._answers: set[asyncio.Task[None]] = set()
        stage = f"/{self.api.stage}"
        managed = Route(f"{stage}/@connections/{{id}}", self._manage, methods=())  # any method
        self.app = Starlette(routes=[WebSocketRoute(stage, self._serve), managed])

    async def _serve(self, web_socket: WebSocket) -> None:
        id_, now = f"{self.new_id()}=", self.clock()  # API Gateway's ids end so
        socket = Socket(id=id_, web_socket=web_socket, connected_at=now, active_at=now)
        try:
            subprotocol = await self._admit(socket)
        except Refused as refused:
            text = {"message": http.client.responses.get(refused.status, "")}
            await web_socket.send_denial_response(JSONResponse(text, refused.status))
            await asyncio.sleep(0)  # without it, uvicorn logs an unfinished handshake
            return
        code, reason = 1006, "Connection closed abnormally"
        try:
            with suppress(OSError):  # it may have left already
                await web_socket.accept(subprotocol)
                self.sockets[id_] = socket
                code, reason = await self._read(socket)
        finally:
            self.sockets.pop(id_, None)
        told = {"disconnectStatusCode": code, "disconnectReason": reason}
        with suppress(Refused):
            await self._call(DISCONNECT, self._event(socket, DISCONNECT, **told))

    async def _admit(self, socket: Socket) -> str | None:
        """Ask the authorizer, then `$connect`; return the subprotocol that it chose.

        Raises:
            Refused: one of them refused or failed.
        """
        headers, authorizer = socket.headers(), self.api.authorizer
        event = self._event(socket, CONNECT) | {"headers": headers}
        if authorizer is not None:
            if not authorizer.needs <= headers.keys():
                raise Refused(401)
            arn = f"arn:aws:execute-api:{REGION}:{ACCOUNT}:{self.api.id}/{self.api.stage}/{CONNECT}"
            asked = {"type": "REQUEST", "methodArn": arn, **event}
            socket.authorizer = read_policy(await self._invoke(authorizer, asked))
            event["requestContext"]["authorizer"] = socket.authorizer
        status, subprotocol, _ = await self._call(CONNECT, event)
        if status >= 300:
            raise Refused(status)
        return subprotocol

    async def _read(self, socket: Socket) -> tuple[int, str]:
        """Take messages until the socket ends; return its code and reason."""
        code, reason = 1001, "Going away"
        with suppress(TimeoutError):
            while True:
                message = await self._in_time(socket, socket.web_socket.receive())
                if message["type"] == "websocket.disconnect":
                    return message["code"], message.get("reason") or ""
                if message.get("text") is None:
                    code, reason = 1003, "Binary frames are not taken"
                    break
                socket.active_at = self.clock()
                task = asyncio.create_task(self._answer(socket, message["text"]))
                self._answers.add(task)
                task.add_done_callback(self._answers.discard)
        if socket.deleted.done():
            code, reason = 1000, ""
        with suppress(TimeoutError, RuntimeError, WebSocketDisconnect):
            async with asyncio.timeout(self.tick):  # it may wait for a client that does not read
                await socket.web_socket.close(code, reason)
        return code, reason

    async def _in_time(self, socket: Socket, work: Coroutine[Any, Any, Any]) -> Any:
        """Await `work`; TimeoutError once the socket is deleted, idle or old."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                end = min(socket.active_at + IDLE_SECONDS, socket.connected_at + LIFE_SECONDS)
                if socket.deleted.done() or self.clock() >= end:
                    raise TimeoutError
                both = {task, socket.deleted}
                await asyncio.wait(both, timeout=self.tick, return_when=asyncio.FIRST_COMPLETED)
            return task.result()
        finally:
            task.cancel()

    async def _answer(self, socket: Socket, text: str) -> None:
        """Call the route's function for a message, and send what it says."""
        event = self._event(socket, DEFAULT, messageId=self.new_id()) | {"body": text}
        try:
            _, _, body = await self._call(DEFAULT, event)
            reply = body if self.api.routes[DEFAULT].answers else ""
        except Refused:
            told = {"connectionId": socket.id, "requestId": event["requestContext"]["requestId"]}
            reply = json.dumps({"message": "Internal server error", **told})
        with suppress(RuntimeError, WebSocketDisconnect):  # the socket has ended
            if reply:
                await socket.web_socket.send_text(reply)
                socket.active_at = self.clock()

    async def _manage(self, request: Request) -> Response:
        """Post to a socket, or delete it."""
        serve = {"POST": self._post, "DELETE": self._delete}.get(request.method)
        if serve is None:
            raise HTTPException(404)
        try:
            status = await serve(request.path_params["id"], await request.body())
        except Refused as refused:
            text = {"message": http.client.responses[refused.status]}
            headers = {"x-amzn-ErrorType": POST_ERRORS[refused.status]}
            return JSONResponse(text, refused.status, headers)
        return Response(status_code=status)

    async def _post(self, id_: str, body: bytes) -> int:
        socket = self.sockets.get(id_)
        if len(body) > MESSAGE_LIMIT:
            raise Refused(413)
        if socket is None:
            raise Refused(410)
        try:
            async with asyncio.timeout(POST_SECONDS):  # uvicorn waits, and then writes at once
                await socket.web_socket.send_text(body.decode())
        except UnicodeDecodeError:
            raise Refused(400) from None
        except TimeoutError:
            raise Refused(429) from None
        except (RuntimeError, WebSocketDisconnect):
            raise Refused(410) from None
        socket.active_at = self.clock()
        return 200

    async def _delete(self, id_: str, _body: bytes) -> int:
        socket = self.sockets.pop(id_, None)
        if socket is None:
            raise Refused(410)
        socket.deleted.set_result(None)  # `_read` closes it
        return 204

    async def _call(self, key: str, event: Mapping[str, Any]) -> tuple[int, str | None, str]:
        return read_answer(await self._invoke(self.api.routes[key], event))

    async def _invoke(self, route: SocketRoute, event: Mapping[str, Any]) -> InvokeResult:
        payload = json.dumps(event, ensure_ascii=False).encode()
        call = asyncio.get_running_loop().run_in_executor(
            self._threads, self.invoker.invoke, route.function, payload
        )
        try:
            return await asyncio.wait_for(asyncio.shield(call), route.seconds)
        except TimeoutError:
            raise Refused(504) from None

    def _event(self, socket: Socket, route: str, **more: Any) -> dict[str, Any]:
        now, request_id = self.clock(), self.new_id()
        headers = socket.headers()
        context = {
            "apiId": self.api.id,
            "connectedAt": int(socket.connected_at * 1000),
            "connectionId": socket.id,
            "domainName": headers.get("host", LOOPBACK).rsplit(":", 1)[0],
            "eventType": {CONNECT: "CONNECT", DISCONNECT: "DISCONNECT"}.get(route, "MESSAGE"),
            "identity": {"sourceIp": socket.source_ip, "userAgent": headers.get("user-agent", "")},
            "messageDirection": "IN",
            "requestId": request_id,
            "requestTimeEpoch": int(now * 1000),
            "routeKey": route,
            "stage": self.api.stage,
            **more,
        }
        if socket.authorizer:
            context["authorizer"] = socket.authorizer
        return {"requestContext": context, "isBase64Encoded": False}

    def close(self) -> None:
        """Accept no more calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)
