"""Functions as processes: isolation, freezing, kills, time-outs, replacement, limits."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local.functions.logs import FunctionLogs, metric_data
from local.functions.pool import LocalInvoker, PoolSettings
from local.functions.specs import FunctionSpec
from local.workspace import LocalError
from tests.local.assemblies import SAMPLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Call = Callable[..., dict[str, Any]]


@contextmanager
def running(
    tmp_path: Path,
    *,
    handler: str = "handler.handler",
    timeout: float = 20,
    log_format: str = "Text",
    environment: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[LocalInvoker]:
    counter = itertools.count(1)
    spec = FunctionSpec(
        name="Sample",
        physical="App-Sample",
        handler=handler,
        task_root=SAMPLE,
        environment={
            "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"),
            "MINE": "1",
            **(environment or {}),
        },
        timeout=timeout,
        log_format=log_format,
    )
    logs = FunctionLogs(tmp_path / "log")
    invoker = LocalInvoker(
        {"Sample": spec},
        settings=PoolSettings(**{"processes": 2, **settings}),
        log=logs,
        new_id=lambda: f"id-{next(counter)}",
    )
    try:
        yield invoker
    finally:
        invoker.close()
        logs.close()


@pytest.fixture
def invoker(tmp_path: Path) -> Iterator[LocalInvoker]:
    with running(tmp_path) as made:
        yield made


def call(invoker: LocalInvoker, **event: Any) -> dict[str, Any]:
    result = invoker.invoke("Sample", json.dumps(event).encode())
    answer = json.loads(result.payload)
    assert isinstance(answer, dict)
    return {**answer, "function_error": result.function_error}


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "did not come true in a minute"
        time.sleep(0.01)


def test_a_function_answers_and_its_process_stays_warm(invoker: LocalInvoker) -> None:
    first, second = call(invoker, a=1), call(invoker, a=2)
    assert first["function_error"] is None
    assert first["event"] == {"a": 1}
    assert first["request_id"] != second["request_id"]
    assert first["pid"] == second["pid"] != os.getpid()


def test_a_function_is_found_by_each_of_its_names(invoker: LocalInvoker) -> None:
    arn = "arn:aws:lambda:us-east-1:123456789012:function:App-Sample"
    pids = {json.loads(invoker.invoke(name, b"{}").payload)["pid"] for name in ("App-Sample", arn)}
    assert len(pids) == 1
    assert invoker.functions() == ["Sample"]
    with pytest.raises(LocalError, match="Nobody"):
        invoker.invoke("Nobody", b"{}")


def test_a_process_sees_its_own_environment_and_nothing_else(
    invoker: LocalInvoker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAKED", "yes")
    seen = call(invoker, action="environment")
    assert seen["MINE"] == "1"
    assert seen["AWS_LAMBDA_FUNCTION_NAME"] == "App-Sample"
    assert seen["LAMBDA_TASK_ROOT"] == str(SAMPLE)
    assert "LEAKED" not in seen
    assert "HOME" not in seen


@pytest.mark.extended  # a process of its own
def test_a_function_that_logs_in_json_writes_one_object_a_line_whatever_it_is_given(
    tmp_path: Path,
) -> None:
    said = 'x\n{"level": "INFO"}\x1b[2J'
    with running(tmp_path, log_format="JSON") as made:
        call(made, action="log", said=said)
        path = tmp_path / "log" / "Sample.log"
        wait_for(lambda: path.is_file() and b"constant" in path.read_bytes())
        objects = [json.loads(x) for x in path.read_text().splitlines() if x.startswith("{")]
    (line,) = [one for one in objects if one.get("message") == "constant"]
    assert (line["said"], line["level"]) == (said, "WARNING")


def test_a_process_is_frozen_between_events(invoker: LocalInvoker) -> None:
    pid = call(invoker)["pid"]
    wait_for(lambda: state_of(pid) == "T")
    assert call(invoker)["pid"] == pid


def test_an_exception_is_reported_and_the_process_lives_on(invoker: LocalInvoker) -> None:
    pid = call(invoker)["pid"]
    failed = call(invoker, action="fail")
    assert (failed["function_error"], failed["errorType"]) == ("Unhandled", "ValueError")
    assert failed["errorMessage"] == "as asked"
    assert call(invoker)["pid"] == pid


def test_a_process_that_ends_is_reported_and_replaced(invoker: LocalInvoker) -> None:
    pid = call(invoker)["pid"]
    failed = call(invoker, action="exit")
    assert failed["function_error"] == "Unhandled"
    assert failed["errorType"] == "Runtime.ExitError"
    assert "exit status 3" in failed["errorMessage"]
    assert call(invoker)["pid"] != pid


def test_a_killed_process_is_reported_and_replaced(invoker: LocalInvoker) -> None:
    pid = call(invoker)["pid"]
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(call, invoker, action="sleep", seconds=60)
        wait_for(lambda: state_of(pid) == "S")
        assert invoker.kill("Sample") == 1
        failed = busy.result()
    assert failed["function_error"] == "Unhandled"
    assert "signal: killed" in failed["errorMessage"]
    assert call(invoker)["pid"] != pid


def test_a_process_killed_while_idle_is_replaced_without_an_error(invoker: LocalInvoker) -> None:
    pid = call(invoker)["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(one.alive for one in invoker.pool("Sample")._idle))
    assert call(invoker)["function_error"] is None


@pytest.mark.extended  # a process of its own
def test_a_process_over_its_time_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, timeout=0.5) as invoker:
        pid = call(invoker)["pid"]
        failed = call(invoker, action="sleep", seconds=60)
        assert failed["errorType"] == "Sandbox.Timedout"
        assert failed["errorMessage"].endswith("Task timed out after 0.50 seconds")
        assert not Path(f"/proc/{pid}").exists()
        assert call(invoker)["function_error"] is None


@pytest.mark.extended  # a process of its own
def test_code_that_cannot_be_loaded_is_an_error_of_the_call(tmp_path: Path) -> None:
    with running(tmp_path, handler="missing.handler") as invoker:
        failed = call(invoker)
        assert failed["errorType"] == "Runtime.ImportModuleError"
        assert failed["function_error"] == "Unhandled"


@pytest.mark.extended  # a process of its own
def test_an_answer_over_six_megabytes_is_refused(invoker: LocalInvoker) -> None:
    assert call(invoker, action="large")["errorType"] == "Function.ResponseSizeTooLarge"


@pytest.mark.extended  # a process of its own
def test_calls_beyond_the_limit_wait_for_a_process(invoker: LocalInvoker) -> None:
    with ThreadPoolExecutor(5) as pool:
        calls = [pool.submit(call, invoker, action="sleep", seconds=0.05) for _ in range(10)]
        pids = {one.result()["pid"] for one in calls}
    assert len(pids) == 2


@pytest.mark.extended
def test_a_worn_process_is_recycled(tmp_path: Path) -> None:
    with running(tmp_path, recycle_after=2) as invoker:
        pids = [call(invoker)["pid"] for _ in range(4)]
        assert pids[0] == pids[1] != pids[2] == pids[3]
        invoker.recycle("Sample")
        assert call(invoker)["pid"] != pids[3]


@pytest.mark.extended  # a process of its own
def test_processes_are_told_by_how_often_they_were_called(tmp_path: Path) -> None:
    with running(tmp_path) as invoker:
        pids = [call(invoker)["pid"] for _ in range(2)]
        assert invoker.pool("Sample").pids(calls=2) == pids[:1]
        assert invoker.pool("Sample").pids(calls=3) == []


def test_closing_ends_all_processes_and_whoever_waits(invoker: LocalInvoker) -> None:
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(call, invoker, action="sleep", seconds=60) for _ in range(3)]
        wait_for(lambda: len(invoker.pool("Sample").pids()) == 2)
        pids = invoker.pool("Sample").pids()
        invoker.close()
        results = [one.result()["function_error"] for one in calls]
    assert results == ["Unhandled"] * 3
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_what_a_function_prints_is_in_its_log(invoker: LocalInvoker, tmp_path: Path) -> None:
    call(invoker, action="print", line={"level": "INFO"})
    log = tmp_path / "log" / "Sample.log"
    wait_for(lambda: b'{"level": "INFO"}\n' in log.read_bytes())
    assert b"START RequestId: id-" in log.read_bytes()
    assert b"REPORT RequestId: id-" in log.read_bytes()


METRIC = {
    "_aws": {
        "Timestamp": 1_760_000_000_000,
        "CloudWatchMetrics": [
            {
                "Namespace": "Fairbox",
                "Dimensions": [["service"], ["service", "topic"]],
                "Metrics": [{"Name": "Sent", "Unit": "Count"}, {"Name": "Absent"}],
            }
        ],
    },
    "service": "fairbox",
    "topic": "orders",
    "Sent": [2, 3],
}


def test_a_metric_line_becomes_one_datum_for_each_dimension_set() -> None:
    data = list(metric_data(json.dumps(METRIC).encode()))
    assert [namespace for namespace, _ in data] == ["Fairbox", "Fairbox"]
    assert data[1][1]["Dimensions"] == [
        {"Name": "service", "Value": "fairbox"},
        {"Name": "topic", "Value": "orders"},
    ]
    assert (data[0][1]["MetricName"], data[0][1]["Values"]) == ("Sent", [2, 3])


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"_aws": 1}', b'{"_aws": {"Timestamp": 1}}'])
def test_a_line_that_is_no_metric_gives_nothing(line: bytes) -> None:
    assert list(metric_data(line)) == []


class FakeCloudWatch:
    def __init__(self) -> None:
        self.put: list[tuple[str, int]] = []
        self.lock = threading.Lock()

    def put_metric_data(self, *, Namespace: str, MetricData: list[Any]) -> None:  # noqa: N803
        with self.lock:
            self.put.append((Namespace, len(MetricData)))


def test_metrics_of_many_lines_are_put_together_and_none_is_lost(tmp_path: Path) -> None:
    cloudwatch = FakeCloudWatch()
    logs = FunctionLogs(tmp_path, cloudwatch=cloudwatch)
    for _ in range(300):
        logs.write("Sample", json.dumps(METRIC).encode() + b"\n")
    logs.close()
    assert sum(count for _, count in cloudwatch.put) == 600
    assert len(cloudwatch.put) < 10
