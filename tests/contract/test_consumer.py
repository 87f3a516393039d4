"""Consumer processes on DynamoDB Local, killed and stopped: every message is accounted for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from fairbox import Message, Outbox, Queue, RetryPolicy, Topic
from fairbox.tables.definitions import table_definitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
RETRY = RetryPolicy(max_attempts=5, base=0.1, cap=0.2)


class Yard:
    """Tables of their own, and the consumer processes over them."""

    def __init__(self, endpoint: str, name: str) -> None:
        self._endpoint = endpoint
        self._names = f"outbox-{name}", f"deliveries-{name}"
        client = boto3.client(
            "dynamodb",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        for definition in table_definitions(outbox=self._names[0], deliveries=self._names[1]):
            definition.pop("StreamSpecification", None)
            client.create_table(**definition)
        self.outbox = Outbox(client, table=self._names[0], deliveries_table=self._names[1])
        self.queue = Queue.over(self.outbox)
        self.processes: list[subprocess.Popen[str]] = []

    def consume(self, topic: str) -> subprocess.Popen[str]:
        """Start a consumer process."""
        module = "tests.contract.consumer_process"
        process = subprocess.Popen(
            [sys.executable, "-m", module, self._endpoint, *self._names, topic],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def yard(dynamodb_local_endpoint: str, request: pytest.FixtureRequest) -> Iterator[Yard]:
    yard = Yard(dynamodb_local_endpoint, str(abs(hash(request.node.name))))
    yield yard
    yard.close()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.1)


def first_lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


@pytest.mark.guarantee("pulled-accounted")
@pytest.mark.extended  # kills processes, for seconds each
@pytest.mark.parametrize("ordering", ["none", "key"])
def test_every_message_is_accounted_for_though_consumers_are_killed(
    yard: Yard, ordering: str
) -> None:
    yard.outbox.create_topic(Topic("jobs", shards=2, ordering=ordering, retry=RETRY))  # type: ignore[arg-type]
    messages = [
        Message(topic="jobs", body=b"poison" if n % 40 == 7 else b"work", partition_key=f"k{n}")
        for n in range(160)
    ]
    yard.queue.send_many(messages)
    handled: Counter[str] = Counter()
    for _ in range(2):
        victim = yard.consume("jobs")
        lines = first_lines(victim, 20)
        victim.kill()
        rest, _ = victim.communicate()
        whole = rest.rpartition("\n")[0]  # what follows was cut off; the last whole line counts
        handled.update(line.split()[0] for line in [*lines, *whole.splitlines()])
    last = yard.consume("jobs")
    eventually(lambda: yard.outbox.outstanding_count("jobs") == 0)
    last.send_signal(signal.SIGTERM)
    out, _ = last.communicate(timeout=PATIENCE)
    handled.update(line.split()[0] for line in out.splitlines() if not line.startswith("ended"))
    dead = {letter.id: letter.reason for letter in yard.outbox.dead("jobs")}
    poisoned = {m.id for m in messages if m.body == b"poison"}
    assert set(dead) == poisoned  # all others were acknowledged, for nothing is outstanding
    assert {m.id for m in messages} <= set(handled)
    assert last.returncode == 0


@pytest.mark.guarantee("clean-stop")
def test_after_a_clean_drain_no_message_is_received_a_second_time(yard: Yard) -> None:
    yard.outbox.create_topic(Topic("jobs", shards=2, retry=RETRY))
    messages = [Message(topic="jobs", body=b"work") for _ in range(160)]
    yard.queue.send_many(messages)
    received: list[tuple[str, str]] = []
    for stopped in (True, True, False):
        process = yard.consume("jobs")
        lines = first_lines(process, 20)
        if not stopped:
            eventually(lambda: yard.outbox.outstanding_count("jobs") == 0)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        # `communicate` with a time limit passes by what `readline` has read ahead
        *rest, last = process.stdout.read().splitlines()
        assert last.startswith("ended")
        assert process.wait(PATIENCE) == 0
        received += [(one.split()[0], one.split()[1]) for one in [*lines, *rest]]
    assert sorted(id_ for id_, _ in received) == sorted(m.id for m in messages)
    assert {count for _, count in received} == {"1"}
