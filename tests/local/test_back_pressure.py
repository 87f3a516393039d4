"""Back-pressure of the local gateway: refusals of excess requests."""

from __future__ import annotations

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from local.functions.invoker import InvokeResult
from local.gateway.http_api import BODY_LIMIT, ApiRoute, Gateway
from local.gateway.throttling import TokenBucket, read_throttle
from local.gateway.web_server import WebServer
from local.workspace import LocalError, choose_port
from tests.local.assemblies import read_template

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT_ONCE = 4


@dataclass
class HeldInvoker:
    """An invoker that blocks every call until released and counts the most blocked calls."""

    let_go: threading.Event = field(default_factory=threading.Event)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    inside: int = 0
    most: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def invoke(self, function: str, payload: bytes) -> InvokeResult:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.entered.release()
        assert self.let_go.wait(60)
        with self._lock:
            self.inside -= 1
        return InvokeResult(b'{"statusCode": 202, "body": "taken"}', None)


@contextmanager
def serving(invoker: HeldInvoker, *, seconds: float = 60.0, **changes: Any) -> Iterator[str]:
    gateway = Gateway(
        routes=[ApiRoute.parse("POST /take", function="f", iam=True, seconds=seconds)],
        invoker=invoker,
        api_id="api",
        new_id=lambda: "id-1",
        **changes,
    )
    server = WebServer(gateway.app, port=choose_port(0, "api"), name="api")
    server.start()
    try:
        yield server.url
    finally:
        invoker.let_go.set()
        gateway.close()
        server.stop()


def post(url: str, body: bytes = b"x") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=90)
    try:
        connection.request("POST", "/take", body=body)
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, answer.read()
    finally:
        connection.close()


def test_what_would_wait_behind_too_many_is_refused_at_once_and_told_when_to_come_again() -> None:
    invoker = HeldInvoker()
    with (
        serving(invoker, calls_at_once=AT_ONCE) as url,
        ThreadPoolExecutor(AT_ONCE) as clients,
    ):
        held = [clients.submit(post, url) for _ in range(AT_ONCE)]
        for _ in range(AT_ONCE):
            assert invoker.entered.acquire(timeout=60)
        for body in (b"x", b"x" * (BODY_LIMIT + 1)):
            status, headers, text = post(url, body)
            assert (status, json.loads(text)) == (429, {"message": "Too Many Requests"})
            assert int(headers["retry-after"]) >= 1
        invoker.let_go.set()
        assert [call.result()[0] for call in held] == [202] * AT_ONCE
        assert post(url)[0] == 202
    assert invoker.most == AT_ONCE


def test_a_call_that_the_gateway_gave_up_keeps_its_place_until_it_ends() -> None:
    invoker = HeldInvoker()
    with serving(invoker, seconds=0.2, calls_at_once=1) as url:
        assert post(url)[0] == 503
        assert post(url)[0] == 429
        invoker.let_go.set()
        while invoker.inside:
            threading.Event().wait(0.01)
        statuses = [post(url)[0] for _ in range(3)]
    assert statuses[-1] == 202
    assert invoker.most == 1


def test_what_is_over_the_stages_limit_is_refused_as_the_gateway_on_aws_does() -> None:
    invoker = HeldInvoker()
    invoker.let_go.set()
    bucket = TokenBucket(rate=0.001, burst=3, clock=lambda: 0.0)
    with serving(invoker, throttle=bucket) as url:
        answers = [post(url) for _ in range(5)]
    assert [status for status, _, _ in answers] == [202] * 3 + [429] * 2
    _, headers, text = answers[-1]
    assert json.loads(text) == {"message": "Too Many Requests"}
    assert "retry-after" not in headers


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    now = [100.0]
    bucket = TokenBucket(rate=10, burst=5, clock=lambda: now[0])
    assert sum(bucket.take() for _ in range(20)) == 5
    now[0] += 0.35
    assert sum(bucket.take() for _ in range(20)) == 3
    now[0] += 1_000
    assert sum(bucket.take() for _ in range(20)) == 5
    taken = 0
    for _ in range(1_000):
        now[0] += 0.01
        taken += bucket.take()
    assert 99 <= taken <= 101


def stage(**properties: Any) -> dict[str, Any]:
    shown = {"StageName": "$default", **properties}
    return {"App": {"Resources": {"S": {"Type": "AWS::ApiGatewayV2::Stage", "Properties": shown}}}}


def test_the_templates_stage_limits_the_gateway(tmp_path: Path) -> None:
    settings = {"ThrottlingRateLimit": 50, "ThrottlingBurstLimit": 80}
    bucket = read_throttle(read_template(tmp_path, stage(DefaultRouteSettings=settings)))
    assert bucket is not None
    assert (bucket.rate, bucket.burst) == (50.0, 80)


def test_a_stage_without_a_limit_has_none(tmp_path: Path) -> None:
    assert read_throttle(read_template(tmp_path, stage())) is None


def test_a_limit_of_one_route_is_not_passed_over(tmp_path: Path) -> None:
    template = read_template(tmp_path, stage(RouteSettings={"GET /topics": {}}))
    with pytest.raises(LocalError, match="RouteSettings"):
        read_throttle(template)
