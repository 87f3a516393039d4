"""The time of the last call: it holds in every client, retry and thread."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from random import Random
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from fairbox.aws.sqs_queues import send_all
from fairbox.destinations import make_clients
from fairbox.destinations.aws_services import Sqs
from fairbox.dispatch.sending.sender import run_concurrently
from fairbox.errors import Unavailable
from fairbox.model.clock import SystemClock, calls_until, out_of_time, seconds_left
from fairbox.runtime.function_process import LAST_CALL_SECONDS, ends_in_time
from fairbox.sdk import clients
from fairbox.sdk.clients import NoTimeLeftError, make_client
from fairbox.tables.calls import Calls
from fairbox.tables.parallel_scan import parallel_scan
from fairbox.testing import ManualClock

from tests.functions.api_client import ROOT
from tests.support.destination_examples import ACCOUNT, stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUEUE = f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/q"


class NoJitter(Random):
    def random(self) -> float:
        return 0.0


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A server that accepts connections and never answers, in place of AWS."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    config = Config(read_timeout=0.2, retries={"total_max_attempts": 1})
    monkeypatch.setattr(clients, "_CONFIG", clients._CONFIG.merge(config))
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        yield server


def test_retries_over_a_server_that_never_answers_end_with_the_time(
    silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SystemClock()
    calls = Calls(make_client("dynamodb"), clock, NoJitter())
    monkeypatch.setattr("fairbox.tables.calls._BASE_SECONDS", 0.01)
    with (
        calls_until(clock, clock.now() + 0.5),
        pytest.raises(Unavailable, match="ReadTimeoutError"),
    ):
        calls.call("get_item", TableName="t", Key={"pk": {"S": "a"}})
    silent.setblocking(False)
    calls_made = 0
    with suppress(BlockingIOError):
        while True:
            silent.accept()[0].close()
            calls_made += 1
    assert 1 <= calls_made <= 3  # at 0, 0.2 and 0.4 s; fewer where the machine is busy


def test_no_client_calls_when_the_time_is_over(silent: socket.socket) -> None:
    clock = ManualClock()
    sqs, s3 = make_client("sqs"), make_client("s3")
    session = boto3.session.Session
    with calls_until(clock, clock.now()):
        with pytest.raises(NoTimeLeftError):
            s3.get_object(Bucket="bucket", Key="key")
        with pytest.raises(Unavailable, match="no time is left"):
            send_all(sqs, QUEUE, [{"MessageBody": "x"}])
        destination = Sqs(make_clients(session)("sqs"), QUEUE)
        (outcome,) = destination.send([stored()], 3)
        assert outcome.verdict == "throttled"  # which counts no attempt
    silent.setblocking(False)
    with pytest.raises(BlockingIOError):
        silent.accept()


def test_threads_keep_to_the_time(silent: socket.socket) -> None:
    clock = ManualClock()
    seen: list[bool] = []

    def call() -> Any:
        seen.append(out_of_time())
        return lambda: None

    waiting = [[call, call]]
    with calls_until(clock, clock.now()):
        run_concurrently(lambda: waiting.pop() if waiting else [])
        calls = Calls(make_client("dynamodb"), clock, NoJitter())
        with pytest.raises(Unavailable, match="no time is left"):
            list(parallel_scan(calls, lambda *_: {"TableName": "t"}, concurrency=2))
    assert seen == [True, True]
    silent.setblocking(False)
    with pytest.raises(BlockingIOError):
        silent.accept()


def test_a_block_inside_cannot_extend_the_time() -> None:
    clock = ManualClock()
    with calls_until(clock, clock.now() + 10):
        with calls_until(clock, clock.now() + 100):
            assert seconds_left() == 10
        with calls_until(clock, clock.now() + 1):
            assert seconds_left() == 1
        assert seconds_left() == 10
    assert not out_of_time()


@pytest.mark.parametrize(("limit", "left"), [(45, 45 - LAST_CALL_SECONDS), (15, 7.5), (2, 1)])
def test_an_invocation_keeps_the_time_of_its_last_call(limit: float, left: float) -> None:
    class Process:
        clock = ManualClock()

    class Context:
        def get_remaining_time_in_millis(self) -> int:
            return int(limit * 1000)

    handler = ends_in_time(Process)(lambda *_: {"left": seconds_left()})
    assert handler({}, Context()) == {"left": left}


HANDLERS = sorted((ROOT / "layers/fairbox/python/fairbox/functions").glob("[a-z]*.py"))


@pytest.mark.parametrize("path", HANDLERS, ids=lambda path: path.stem)
def test_every_function_ends_in_time(path: Path) -> None:
    above = path.read_text().partition("\ndef handler(")[0].splitlines()[-1]
    assert above in ("@ends_in_time(application)", "@ends_in_time(app)")
