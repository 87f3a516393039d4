"""Messages a second from added to delivered and recorded, beside the four-index pattern.

Both run against a fresh DynamoDB Local and a fresh SQS (moto's server) with the same messages and
as many processes: one that adds and three that deliver. Fairbox adds 25 a call; its three are the
function `relay`, twice, and the marking, fed from the table's stream by the triggers of the local
application. The pattern's three share the shards of the topic. The clock starts when the first
messages are recorded, because the engines compile themselves at first. The CPU time of all
processes, engines included, is measured as well: it does not depend on other programs.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fairbox import Outbox, Subscription, Topic
from fairbox.tables.definitions import table_definitions

from benchmarks import four_index_pattern, workers
from benchmarks.deployment import orders_definition
from benchmarks.figures import Figure
from local.engines.endpoints import Endpoints
from local.engines.servers import DynamoDbLocal, Services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.context import SpawnContext

MESSAGES: Final = 4000
SEED_MESSAGES: Final = 700  # at its rate about as long
_LONGEST: Final = 30.0  # seconds of each part of a run
_RELAYS: Final = 2
_DELIVERERS: Final = _RELAYS + 1  # the pattern's: as many as relays and marking


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run.

    Attributes:
        messages: recorded as delivered after the warm-up.
        seconds: their duration.
        cpu_seconds: of all processes.
        expected: expected number of messages.
    """

    messages: int
    seconds: float
    cpu_seconds: float
    expected: int

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of CPU a message."""
        return self.cpu_seconds * 1000 / max(1, self.messages)


def figures(
    *, messages: int = MESSAGES, seed_messages: int = SEED_MESSAGES
) -> tuple[list[Figure], list[str]]:
    """Return the throughput with single messages, and with a transaction per message.

    Args:
        messages: of Fairbox's run; a third of them where each has a transaction.
        seed_messages: of the run of the four-index pattern.

    Returns:
        The figures, and those of runs that did not end in time.
    """
    found: list[Figure] = []
    faults: list[str] = []
    for name, transactional in (("end_to_end", False), ("transactional", True)):
        ours = messages // 3 if transactional else messages
        run = _fairbox(ours, transactional=transactional)
        seed = _seed(seed_messages, transactional=transactional)
        compared = four_index_pattern.NAME
        faults += [
            f"{name}, {who}: {one.messages} of {one.expected} messages in time"
            for who, one in (("Fairbox", run), (compared, seed))
            if one.messages < one.expected
        ]
        found += [
            Figure(f"throughput.{name}", "messages/s", run.rate, seed.rate, compared),
            Figure(f"throughput.{name}.cpu", "CPU ms/message", run.cpu_ms, seed.cpu_ms, compared),
        ]
    return found, faults


@contextmanager
def _engines() -> Iterator[tuple[Endpoints, str, list[int]]]:
    """Start a fresh database and SQS; yield their addresses, the queue's URL, and their pids."""
    with ExitStack() as stack:
        database, services = DynamoDbLocal(), Services()
        stack.callback(services.stop)
        services.start()
        stack.callback(database.stop)
        database.start()
        endpoints = Endpoints(
            dynamodb=database.endpoint, services=services.endpoint, firehose=services.endpoint
        )
        queue = endpoints.clients()["sqs"].create_queue(QueueName="sink")["QueueUrl"]
        yield endpoints, queue, [pid for pid in (database.pid, services.pid) if pid]


def _fairbox(messages: int, *, transactional: bool) -> Run:
    with _engines() as (endpoints, queue, pids), tempfile.TemporaryDirectory() as folder:
        client = endpoints.clients()["dynamodb"]
        outbox, deliveries = workers.OUTBOX, workers.DELIVERIES
        for definition in table_definitions(outbox=outbox, deliveries=deliveries):
            client.create_table(**definition)
        client.create_table(**orders_definition())
        maker = Outbox(client, table=outbox, deliveries_table=deliveries)
        maker.create_topic(Topic(workers.TOPIC, shards=workers.SHARDS))
        maker.add_subscription(Subscription(workers.TOPIC, "sink", f"sqs:{queue}"))
        stream = client.describe_table(TableName=outbox)["Table"]["LatestStreamArn"]
        archive = Path(folder) / "archive.json.gz"
        return _run(
            endpoints,
            messages,
            pids,
            produce=(workers.produce, (transactional,)),
            deliver=[
                *((workers.relay, (stream, number, _RELAYS)) for number in range(_RELAYS)),
                (workers.mark, (stream, str(archive))),
            ],
        )


def _seed(messages: int, *, transactional: bool) -> Run:
    with _engines() as (endpoints, queue, pids):
        client = endpoints.clients()["dynamodb"]
        client.create_table(**four_index_pattern.definition())
        client.create_table(**orders_definition())
        return _run(
            endpoints,
            messages,
            pids,
            produce=(workers.produce_seed, (transactional,)),
            deliver=[
                (workers.dispatch_seed, (queue, number, _DELIVERERS))
                for number in range(_DELIVERERS)
            ],
        )


Work = tuple["Callable[..., None]", tuple[Any, ...]]


def _run(
    endpoints: Endpoints, messages: int, engines: list[int], *, produce: Work, deliver: list[Work]
) -> Run:
    """Start the processes and the producer, measure until everything is recorded, stop them."""
    os.environ.update(endpoints.shell_variables())
    context = multiprocessing.get_context("spawn")
    warm = messages // 4
    board = workers.Board.make(context, messages + warm, len(deliver) + 1)
    processes = [_process(context, board, work) for work in (produce, *deliver)]
    pids = [*engines, *(process.pid for process in processes)]
    try:
        board.ready.wait(timeout=_LONGEST)
        _wait(board, warm, processes)
        before, cpu, began = board.recorded.value, cpu_seconds(pids), time.monotonic()
        _wait(board, messages + warm, processes)
        seconds = time.monotonic() - began
        done = board.recorded.value - before
        return Run(done, seconds, cpu_seconds(pids) - cpu, messages + warm - before)
    finally:
        board.stop.set()
        for process in processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()


def _wait(board: workers.Board, count: int, processes: list[Any]) -> None:
    """Wait until so many are recorded, or until the time limit."""
    deadline = time.monotonic() + _LONGEST
    while board.recorded.value < count and time.monotonic() < deadline:
        if any(process.exitcode for process in processes):
            raise RuntimeError("a process of the benchmark failed")
        time.sleep(0.01)


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU seconds of these processes, without those that have ended."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _process(context: SpawnContext, board: workers.Board, work: Work) -> Any:
    target, arguments = work
    process = context.Process(target=target, args=(board, *arguments), daemon=True)
    process.start()
    return process
