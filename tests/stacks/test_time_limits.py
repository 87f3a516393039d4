"""Every function over a dead dependency: it ends before the time limit that the template gives.

AWS is doubled where it stands, below boto3: a call of a dead service takes as long as its client
waits, by the clock of the test.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError
from fairbox import Message, Subscription, Topic
from fairbox.aws.sqs_queues import SqsDoorbells, encode
from fairbox.client.outbox import Outbox
from fairbox.destinations import make_clients
from fairbox.dispatch.ports import Doorbell
from fairbox.errors import FairboxError
from fairbox.model.ids import IdGenerator
from fairbox.runtime import function_application as wiring
from fairbox.runtime.function_process import LAST_CALL_SECONDS
from fairbox.sdk.clients import make_client

from tests.functions.api_client import load_handler, read_event, reply_of
from tests.functions.running import Context, Functions, ack_event

if TYPE_CHECKING:
    from tests.stacks.assembly import Assembly

TOPICS: Final = 12
MAX_TIMEOUT: Final = 14
"""Seconds that a subscription may give its calls."""
WRITES_SECONDS: Final = 4
"""For the writes of what a call answered, before the time of the last call."""
GIVEN_UP: Final = 30
ACCOUNT: Final = "111122223333"
GATEWAY_SECONDS: Final = 30.0
"""Time that an HTTP API waits for its integration: the default, and the longest."""
START_SECONDS: Final = 1.5
"""Room for a cold start: the gateway waits for it, and no time limit of a function counts it."""
DEPENDENCIES: Final = {
    "relay": ("dynamodb", "sqs", "quick destinations"),
    "deliver_shard": ("dynamodb", "sqs", "quick destinations", "slow destinations"),
    "sweep": ("dynamodb", "sqs"),
    "repair": ("dynamodb", "sqs", "s3", "firehose"),
    "mark_delivered": ("dynamodb", "firehose"),
    "ack_batches": ("dynamodb",),
    "cascade_batches": ("dynamodb",),
    "clean_orphans": ("dynamodb",),
    "count_outstanding": ("dynamodb",),
}
ALIVE: Final = (0, 1)
"""Calls of the tables that are answered before they die: none, and enough to have begun."""
CASES: Final = [
    (name, dead, alive)
    for name, services in DEPENDENCIES.items()
    for dead in services
    for alive in (ALIVE if dead == "dynamodb" and name != "cascade_batches" else ALIVE[:1])
]
LATE: Final = [c for c in CASES if c[1] != "firehose" and (c[1] != "dynamodb" or c[2])]
REQUESTS: Final = (
    ("POST", "/topics/pulled/messages", {"body": "x"}, "dynamodb"),
    ("POST", "/topics/pulled/receive", {"max_messages": 10, "wait": 20}, "dynamodb"),
    ("GET", "/stats", None, "dynamodb"),
    ("DELETE", "/topics/topic0/subscriptions/one/pause", None, "sqs"),
)


class Dying:
    """Says how long a call to a dead service takes, and how it ends."""

    clock: Any
    hanging: bool
    calls = 0
    first_at = 0.0

    def take_long(self) -> None:
        """Let what comes before the first dead call take until `first_at`, if not longer."""
        self.clock.set(max(self.clock.now(), self.first_at))

    def watch(self, client: Any) -> Any:
        """Let the client's calls die."""

        def die(request: Any, **_: Any) -> None:
            self.calls += 1
            if self.calls == 1:
                self.take_long()
            if not self.hanging:
                raise EndpointConnectionError(endpoint_url=request.url)
            self.clock.sleep(client.meta.config.read_timeout)
            raise ReadTimeoutError(endpoint_url=request.url)

        client.meta.events.register("before-send", die)
        return client


class Failing:
    """A client of the tables that dies after some calls."""

    def __init__(self, engine: Any, alive: int) -> None:
        self._engine = engine
        self._left = alive

    def __getattr__(self, operation: str) -> Any:
        def call(**request: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                DYING.take_long()
            client = self._engine if self._left >= 0 else dead_client("dynamodb")
            return getattr(client, operation)(**request)

        return call


DYING: Final = Dying()


@cache
def dead_client(service: str) -> Any:
    return DYING.watch(make_client(service))


class _Session(boto3.session.Session):
    """A session of whose clients none is answered."""

    def client(self, *args: Any, **kwargs: Any) -> Any:
        return DYING.watch(super().client(*args, **kwargs))


@cache
def dead_destinations() -> Any:
    return make_clients(lambda: _Session(region_name="us-east-1"))


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Functions:
    """The functions over many topics, each with messages that are overdue."""
    functions = Functions(monkeypatch)
    DYING.clock, DYING.calls, DYING.first_at = functions.clock, 0, 0.0
    ids = IdGenerator(functions.clock)
    for name in [f"topic{n}" for n in range(TOPICS)]:
        functions.outbox.create_topic(Topic(name, shards=1))
        quick = f"sqs:https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/{name}"
        slow = f"lambda:arn:aws:lambda:us-east-1:{ACCOUNT}:function:{name}"
        subscription = Subscription(name, "one", slow if name == "topic1" else quick, timeout=14)
        functions.outbox.add_subscription(subscription)
        # functions get several calls at once, and calls in parallel would each move the clock
        for _ in range(1 if name == "topic1" else 3):
            functions.outbox.add(Message(topic=name, body=b"x", id=ids.next()))
    functions.outbox.create_topic(Topic("pulled", shards=8))
    functions.invoke("mark_delivered", {"Records": _records(functions)})
    return functions


def _records(functions: Functions) -> list[dict[str, Any]]:
    """Return the outbox's stream, without what the mappings filter."""
    records: list[dict[str, Any]] = functions.engine.stream(functions.tables["outbox"]).take(None)
    return [r for r in records if _key(r, "pk").startswith("ready#") and _key(r, "sk") != "!"]


def _key(record: dict[str, Any], name: str) -> str:
    return str(record["dynamodb"]["Keys"][name]["S"])


def _event(functions: Functions, name: str, dead: str) -> dict[str, Any]:
    """Return an event that makes the function call what is dead."""
    if name in ("relay", "mark_delivered"):
        records = _records(functions)
        # the newest, for one destination: calls in parallel would each move the clock
        only = f"ready#topic{TOPICS - 1}#" if dead == "quick destinations" else ""
        return {"Records": [r for r in records if _key(r, "pk").startswith(only)]}
    functions.clock.sleep(7200)  # everything is overdue
    if name == "deliver_shard":
        topic = "topic1" if dead == "slow destinations" else "topic0"
        bell = {"body": encode(Doorbell(topic, 0, 0)), "messageId": "m"}
        return {"Records": [bell | {"eventSourceARN": "arn:aws:sqs:us-east-1:1:now.fifo"}]}
    if name in ("ack_batches", "cascade_batches"):
        batch = functions.batch(*[1] * TOPICS)
        if name == "ack_batches":
            return ack_event(*([f"{batch}:{group}:0"] for group in range(TOPICS)))
        functions.batches.ack([f"{batch}:{group}:0" for group in range(TOPICS)])
        return functions.stream()
    if name == "clean_orphans":
        for _ in range(TOPICS):
            functions.batch(1, seal=False)
        functions.clock.sleep(30 * 24 * 3600)
    if name == "repair":
        records = _records(functions)
        for number in range(GIVEN_UP):
            payload = json.dumps({"Records": records})
            functions.s3.objects[f"aws/lambda/{number}"] = json.dumps({"payload": payload}).encode()
    return {}


def _kill(functions: Functions, dead: str, monkeypatch: pytest.MonkeyPatch, alive: int = 0) -> None:
    if dead == "dynamodb":
        functions.clients[dead] = Failing(functions.engine, alive)
    elif dead.endswith("destinations"):
        monkeypatch.setattr(wiring, "make_clients", lambda _: dead_destinations())
    else:
        functions.clients[dead] = dead_client(dead)


@pytest.mark.parametrize("hanging", [True, False], ids=["hanging", "refusing"])
@pytest.mark.parametrize(("name", "dead", "alive"), CASES)
def test_a_function_ends_before_its_time_limit(
    *,
    functions: Functions,
    assembly: Assembly,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    dead: str,
    alive: int,
    hanging: bool,
) -> None:
    limit = assembly.functions()[name]["Timeout"]
    event = _event(functions, name, dead)
    _kill(functions, dead, monkeypatch, alive)
    DYING.hanging = hanging
    began = functions.clock.now()
    with suppress(FairboxError):  # the invocation fails with what was wrong, and is tried again
        functions.invoke(name, event, LivingContext(functions.clock, began + limit))
    assert DYING.calls
    assert functions.clock.now() - began < limit


@pytest.mark.parametrize(("name", "dead", "alive"), LATE)
def test_a_function_ends_in_time_although_what_it_calls_dies_late(
    *,
    functions: Functions,
    assembly: Assembly,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    dead: str,
    alive: int,
) -> None:
    limit = assembly.functions()[name]["Timeout"]
    event = _event(functions, name, dead)
    _kill(functions, dead, monkeypatch, alive)
    DYING.hanging = True
    began = functions.clock.now()
    share = {"relay": 0.5, "deliver_shard": 0.4}[name] if "destinations" in dead else 1.0
    DYING.first_at = began + (limit - LAST_CALL_SECONDS if share == 1 else limit * share) - 0.1
    with suppress(FairboxError):
        functions.invoke(name, event, LivingContext(functions.clock, began + limit))
    assert functions.clock.now() - began < limit - (WRITES_SECONDS if share < 1 else 0)


def test_a_visit_can_write_what_the_longest_call_answered(assembly: Assembly) -> None:
    limit = assembly.functions()["deliver_shard"]["Timeout"]
    longest = MAX_TIMEOUT + 1  # to connect
    assert 0.4 * limit + longest + WRITES_SECONDS <= limit - LAST_CALL_SECONDS


class LivingContext(Context):
    """The context of an invocation whose time runs out by a clock."""

    def __init__(self, clock: Any, end: float) -> None:
        self.__dict__ |= {"clock": clock, "end": end}

    def get_remaining_time_in_millis(self) -> int:
        left: float = self.__dict__["end"] - self.__dict__["clock"].now()
        return int(left * 1000)


@pytest.mark.parametrize("hanging", [True, False], ids=["hanging", "refusing"])
@pytest.mark.parametrize(("method", "path", "body", "dead"), REQUESTS)
def test_the_api_answers_before_its_time_limit(
    *,
    functions: Functions,
    assembly: Assembly,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: Any,
    dead: str,
    hanging: bool,
) -> None:
    limit = assembly.functions()["api"]["Timeout"]
    clock = functions.clock
    if dead == "sqs":
        functions.outbox.pause_subscription("topic0", "one")
    _kill(functions, dead, monkeypatch)
    DYING.hanging = hanging
    handler = load_handler()
    queues = (functions.now, functions.later)
    outbox = Outbox(
        functions.clients["dynamodb"],
        table=functions.tables["outbox"],
        deliveries_table=functions.tables["deliveries"],
        doorbells=SqsDoorbells(functions.clients["sqs"], *queues, clock=clock),
        clock=clock,
    )
    monkeypatch.setattr(handler, "SystemClock", lambda: clock)
    monkeypatch.setattr(handler.Outbox, "from_env", lambda: outbox)
    event = read_event("http_api_get_stats")
    event["rawPath"] = event["requestContext"]["http"]["path"] = path
    event["requestContext"]["http"]["method"] = method
    if body is not None:
        event["headers"]["content-type"] = "application/json"
        event["body"], event["isBase64Encoded"] = json.dumps(body), False
    began = clock.now()
    reply = reply_of(handler.handler(event, LivingContext(clock, began + limit)))
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert DYING.calls
    assert clock.now() - began < limit


def test_the_api_s_function_ends_before_the_gateway_gives_up(assembly: Assembly) -> None:
    limit = assembly.functions()["api"]["Timeout"]
    (integration,) = assembly.of_type("AWS::ApiGatewayV2::Integration").values()
    gateway = integration.get("TimeoutInMillis", GATEWAY_SECONDS * 1000) / 1000
    assert limit + START_SECONDS <= gateway


def test_every_function_is_tried(assembly: Assembly) -> None:
    assert {*DEPENDENCIES, "api"} == set(assembly.functions())
