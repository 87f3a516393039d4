"""The WebSocket API: the template's parts, events over the wire, refusals, limits."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from local.cloudformation.assembly import Assembly
from local.cloudformation.identities import PARAMETER, Identities
from local.cloudformation.synthesis import synthesise
from local.cloudformation.template import Template
from local.functions.invoker import InvokeResult
from local.gateway.web_server import WebServer
from local.gateway.websocket_api import (
    FRAME_LIMIT,
    IDLE_SECONDS,
    LIFE_SECONDS,
    MESSAGE_LIMIT,
    SERVER_SETTINGS,
    SocketRoute,
    WebSocketApi,
    WebSocketGateway,
    read_websocket_api,
)
from local.workspace import Workspace, choose_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ARN = "arn:aws:execute-api:us-east-1:123456789012:api/live/$connect"
OFFERED: Any = ["v1", "token.abc"]


@pytest.fixture(scope="module")
def synthesised() -> Template:
    identities = Identities(
        services_endpoint="", api_endpoint="", feeds_endpoint="ws://127.0.0.1:1"
    )
    return Template(assembly=Assembly.load(synthesise(Workspace())), identities=identities)


def test_the_synthesised_feeds_are_served(synthesised: Template) -> None:
    found = read_websocket_api(synthesised)
    assert found is not None
    assert found.authorizer is not None
    assert "FeedsAuthorize" in found.authorizer.function
    assert found.authorizer.needs == {"sec-websocket-protocol"}
    answers = {key: route.answers for key, route in found.routes.items()}
    assert answers == {"$connect": False, "$disconnect": False, "$default": True}
    assert found.stage == "feeds"
    (parameter,) = synthesised.of_type(PARAMETER)
    variables = json.loads(synthesised.properties(parameter)["Value"])
    assert variables["FAIRBOX_FEEDS_URL"] == "ws://127.0.0.1:1/feeds"


def api() -> WebSocketApi:
    keys = ("$connect", "$disconnect", "$default")
    routes = {key: SocketRoute(function=key, answers=key == "$default", seconds=60) for key in keys}
    needs = frozenset({"sec-websocket-protocol"})
    authorizer = SocketRoute(function="authorizer", needs=needs)
    return WebSocketApi(id="api", stage="live", routes=routes, authorizer=authorizer)


def policy(effect: str = "Allow", resource: str = ARN, **context: Any) -> dict[str, Any]:
    statement = {"Action": "execute-api:Invoke", "Effect": effect, "Resource": resource}
    document = {"Version": "2012-10-17", "Statement": [statement]}
    return {"principalId": "u7", "policyDocument": document, "context": context}


class World:
    """A served gateway; its functions' `answers` (values, errors or callables) and `events`."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.5
        self.events: list[tuple[str, Any]] = []
        self.ended = threading.Event()
        self.answers: dict[str, Any] = {
            "authorizer": policy(),
            "$connect": {"statusCode": 200, "headers": {"Sec-Websocket-Protocol": "v1"}},
            "$default": lambda event: {"statusCode": 200, "body": event["body"].upper()},
            "$disconnect": {"statusCode": 200},
        }
        self.gateway = WebSocketGateway(
            api=api(),
            invoker=self,
            new_id=iter(f"id-{n}" for n in range(1000)).__next__,
            clock=lambda: self.now,
            tick=0.02,
        )
        settings: Any = SERVER_SETTINGS
        port = choose_port(0, "feeds")
        self.server = WebServer(self.gateway.app, port=port, name="feeds", **settings)
        self.url = f"ws://127.0.0.1:{port}/live"

    def invoke(self, function: str, payload: bytes) -> InvokeResult:
        event = json.loads(payload)
        self.events.append((function, event))
        answer = self.answers[function]
        answer = answer(event) if callable(answer) else answer
        if function == "$disconnect":
            self.ended.set()
        if isinstance(answer, Exception):
            return InvokeResult(json.dumps({"errorMessage": str(answer)}).encode(), "Unhandled")
        return InvokeResult(json.dumps(answer).encode(), None)

    def status(self, url: str | None = None, offered: Any = OFFERED) -> int:
        """Return the HTTP status that refuses a handshake."""
        with (
            pytest.raises(InvalidStatus) as refused,
            connect(url or self.url, subprotocols=offered),
        ):
            pass
        return refused.value.response.status_code


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.server.start()
    yield world
    world.server.stop()
    world.gateway.close()


def test_events_and_answers_of_a_connection(world: World) -> None:
    world.answers["authorizer"] = policy(resource="arn:aws:execute-api:*", allow='["a"]', n=1)
    with connect(world.url, subprotocols=OFFERED, user_agent_header="test") as client:
        assert client.subprotocol == "v1"
        assert exchange(client, "hello") == "HELLO"
        assert list(world.gateway.sockets) == ["id-0="]
    assert world.ended.wait(60)
    asked, connected, said, ended = (event for _, event in world.events)
    context = {
        "apiId": "api",
        "authorizer": {"principalId": "u7", "allow": '["a"]', "n": "1"},
        "connectedAt": 1_800_000_000_500,
        "connectionId": "id-0=",
        "domainName": "127.0.0.1",
        "eventType": "CONNECT",
        "identity": {"sourceIp": "127.0.0.1", "userAgent": "test"},
        "messageDirection": "IN",
        "requestId": "id-1",
        "requestTimeEpoch": 1_800_000_000_500,
        "routeKey": "$connect",
        "stage": "live",
    }
    assert connected["requestContext"] == context
    assert connected["headers"]["sec-websocket-protocol"] == "v1, token.abc"
    assert (asked["type"], asked["methodArn"]) == ("REQUEST", ARN)
    assert asked["headers"] == connected["headers"]
    ids = {name: said["requestContext"][name] for name in ("requestId", "messageId")}
    context |= {"eventType": "MESSAGE", "routeKey": "$default", **ids}
    assert said == {"requestContext": context, "body": "hello", "isBase64Encoded": False}
    assert ended["requestContext"]["eventType"] == "DISCONNECT"
    assert ended["requestContext"]["disconnectStatusCode"] == 1000
    assert not world.gateway.sockets


@pytest.mark.parametrize(
    ("function", "answer", "status"),
    [
        ("authorizer", Exception("Unauthorized"), 401),
        ("authorizer", Exception("broken"), 500),
        ("authorizer", policy("Deny"), 403),
        ("$connect", {"statusCode": 418}, 418),
        ("$connect", Exception("broken"), 502),
    ],
)
def test_a_refused_handshake_has_the_status_of_its_reason(
    world: World, function: str, answer: Any, status: int
) -> None:
    world.answers[function] = answer
    assert world.status() == status
    assert not world.ended.is_set()


def test_a_handshake_without_the_header_or_of_another_path_calls_nothing(world: World) -> None:
    assert world.status(offered=None) == 401
    assert world.status(f"{world.url}/other") == 403
    assert not world.events


def exchange(client: Any, sent: Any) -> Any:
    client.send(sent)
    return client.recv(60)


@pytest.mark.parametrize(
    ("sent", "code"),
    [("x" * (FRAME_LIMIT + 1), 1009), (["x" * FRAME_LIMIT] * 4 + ["x"], 1009), (b"binary", 1003)],
)
def test_what_is_over_a_limit_or_no_text_closes(world: World, sent: Any, code: int) -> None:
    with connect(world.url, subprotocols=OFFERED) as client:
        most = ["x" * FRAME_LIMIT] * 4
        assert exchange(client, most) == "".join(most).upper()
        with pytest.raises(ConnectionClosed) as closed:
            exchange(client, sent)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code
    assert world.ended.wait(60)
    assert world.events[-1][1]["requestContext"]["disconnectStatusCode"] == code


def pass_idle(world: World, client: Any) -> None:
    world.now += IDLE_SECONDS


def pass_life(world: World, client: Any) -> None:
    for _ in range(0, LIFE_SECONDS - 1, IDLE_SECONDS - 1):
        assert exchange(client, "busy") == "BUSY"
        world.now += IDLE_SECONDS - 1


@pytest.mark.parametrize("pass_time", [pass_idle, pass_life])
def test_an_idle_or_old_socket_is_closed(world: World, pass_time: Callable[..., None]) -> None:
    with connect(world.url, subprotocols=OFFERED) as client:
        pass_time(world, client)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001
    assert world.ended.wait(60)


def manage(world: World) -> Any:
    """Return boto3's client of the management API."""
    settings: Any = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "test")
    settings |= {"config": Config(retries={"total_max_attempts": 1}), "region_name": "us-east-1"}
    url = f"{world.server.url}/live"
    return boto3.client("apigatewaymanagementapi", endpoint_url=url, **settings)


def fill(posts: Any, id_: str) -> list[str]:
    """Post until the client's buffer is full; return what was taken."""
    taken: list[str] = []
    try:
        for n in range(1000):
            text = f"{n}".ljust(MESSAGE_LIMIT, "x")
            posts.post_to_connection(ConnectionId=id_, Data=text)
            taken.append(text)
    except posts.exceptions.LimitExceededException:
        return taken
    raise AssertionError(f"{len(taken)} posts do not fill the buffer")


def test_a_post_reaches_its_client_up_to_the_limit(world: World) -> None:
    posts, longest = manage(world), b"x" * MESSAGE_LIMIT
    with connect(world.url, subprotocols=OFFERED) as client:
        world.now += 5
        posts.post_to_connection(ConnectionId="id-0=", Data="grüße".encode())
        assert world.gateway.sockets["id-0="].active_at == world.now
        with pytest.raises(posts.exceptions.PayloadTooLargeException):
            posts.post_to_connection(ConnectionId="id-0=", Data=longest + b"x")
        posts.post_to_connection(ConnectionId="id-0=", Data=longest)
        assert [client.recv(60), client.recv(60)] == ["grüße", longest.decode()]


@pytest.mark.parametrize("reads", [True, False])
def test_a_deleted_connection_ends_and_is_gone(world: World, reads: bool) -> None:
    posts = manage(world)
    with connect(world.url, subprotocols=OFFERED, max_queue=1) as client:
        taken = [] if reads else fill(posts, "id-0=")
        answer = posts.delete_connection(ConnectionId="id-0=")
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 204
        for call, more in (posts.post_to_connection, {"Data": b"x"}), (posts.delete_connection, {}):
            with pytest.raises(posts.exceptions.GoneException):
                call(ConnectionId="id-0=", **more)
        assert world.ended.wait(60)
        assert [client.recv(60) for _ in taken] == taken
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(60)
    assert world.events[-1][1]["requestContext"]["disconnectStatusCode"] == 1000
    if reads:
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


def test_a_full_buffer_refuses_for_good_and_holds_up_no_other_client(world: World) -> None:
    posts = manage(world)
    with (
        connect(world.url, subprotocols=OFFERED, max_queue=1) as stuck,
        connect(world.url, subprotocols=OFFERED) as other,
    ):
        taken = fill(posts, "id-0=")
        posts.post_to_connection(ConnectionId="id-2=", Data=b"hello")
        assert other.recv(60) == "hello"
        assert [stuck.recv(60) for _ in taken] == taken
        posts.post_to_connection(ConnectionId="id-0=", Data=b"last")
        assert stuck.recv(60) == "last"
