"""Acks a second beside source 004's design, and the delay from the last ack to the completion.

Both designs run on one DynamoDB Local, with the same number of worker processes that ack single
items at random, in batches of 10, 100 and 1,000 full groups. The first second of each run is not
counted. The engine and the workers share this machine: the figures compare the designs and are
not limits of DynamoDB. CPU time, the engine's included, depends less on other programs.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import boto3
from fairbox import Outbox
from fairbox.batches.models import LeafKey
from fairbox.client.batch_maintenance import BatchMaintenance
from fairbox.client.batches import COMPLETED_TOPIC
from fairbox.dynamodb.definitions import batches_definition, table_definitions

from benchmarks import ack_workers, baseline_004
from benchmarks.ack_workers import BATCHES, DELIVERIES, GROUP_SIZE, OUTBOX, Gate, Plan
from benchmarks.figures import Figure
from benchmarks.latency import percentile
from benchmarks.throughput import Run, cpu_seconds
from local.engines.endpoints import Endpoints
from local.engines.servers import DynamoDbLocal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox import Batches

GROUPS: Final = (10, 100, 1000)
WORKERS: Final = 4
_WARM_SECONDS: Final = 1.0
_WARM_GROUPS: Final = 20  # of a run before all others: the engine compiles itself at first
_SECONDS: Final = 4.0
_LONGEST: Final = 60.0  # seconds until all workers have their clients
_COMPLETIONS: Final = 100
_CLOSERS: Final = 4  # who ack the last items of a batch at once
_ITEMS: Final = 10  # of each of them


def figures(
    *,
    groups: tuple[int, ...] = GROUPS,
    workers: int = WORKERS,
    seconds: float = _SECONDS,
    completions: int = _COMPLETIONS,
) -> tuple[list[Figure], list[str]]:
    """Return acks a second at several sizes, and percentiles of the completion's delay.

    The delay is from the moment when the last of the acks, which several workers send at once, is
    sent, to the answer of the one that completed the batch: the message is in the outbox then.

    Args:
        groups: sizes of the batches, in full groups.
        workers: processes that ack at once.
        seconds: measured of each run.
        completions: batches over which the delay is measured.

    Returns:
        The figures and their faults.
    """
    found: list[Figure] = []
    with _engine() as engine:
        how = {"workers": workers, "engine": engine}
        for work, make in ((ack_workers.fairbox, _ours), (ack_workers.seed, _seeds)):
            _run(work, make(_WARM_GROUPS), _WARM_GROUPS, seconds=_WARM_SECONDS, **how)
        for count in groups:
            ours = _run(ack_workers.fairbox, _ours(count), count, seconds=seconds, **how)
            seed = _run(ack_workers.seed, _seeds(count), count, seconds=seconds, **how)
            name, other = f"batches.acks_per_second.{count}_groups", baseline_004.NAME
            found += [
                Figure(name, "acks/s", ours.rate, seed.rate, other),
                Figure(f"{name}.cpu", "CPU ms/ack", ours.cpu_ms, seed.cpu_ms, other),
            ]
        waits, faults = _completions(completions)
    found += [
        Figure("batches.completion_delay_ms.p50", "ms", percentile(waits, 0.5)),
        Figure("batches.completion_delay_ms.p99", "ms", percentile(waits, 0.99)),
    ]
    return found, faults


@contextmanager
def _engine() -> Iterator[int]:
    """Start a fresh database with the tables of both, for this process and those it starts.

    Yields:
        Its process id.
    """
    database = DynamoDbLocal().start()
    try:
        address = database.endpoint
        endpoints = Endpoints(dynamodb=address, services=address, firehose=address)
        os.environ.update(endpoints.shell_variables())
        client = endpoints.clients()["dynamodb"]
        for definition in (
            *table_definitions(outbox=OUTBOX, deliveries=DELIVERIES),
            batches_definition(BATCHES),
            baseline_004.definition(),
        ):
            definition.pop("StreamSpecification", None)  # nobody reads it, and it slows the engine
            client.create_table(**definition)
        yield database.pid or 0
    finally:
        database.stop()


def _ours(groups: int) -> str:
    batches = ack_workers.batches()
    batch = batches.open().id
    batches.add(batch, groups * GROUP_SIZE, request_id="all")
    return batch


def _seeds(groups: int) -> str:
    tracker = baseline_004.SeedBatches(boto3.client("dynamodb"))
    batch = str(uuid.uuid4())
    tracker.open(batch)
    tracker.add(batch, groups, GROUP_SIZE)
    return batch


def _run(
    work: Callable[[Gate, Plan], None],
    batch: str,
    groups: int,
    *,
    workers: int,
    seconds: float,
    engine: int,
) -> Run:
    """Ack one batch by so many processes for so many seconds."""
    context = multiprocessing.get_context("spawn")
    gate = Gate.make(context, workers)
    processes = [
        context.Process(target=work, args=(gate, Plan(batch, groups, number, workers)), daemon=True)
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    pids = [engine, *(process.pid or 0 for process in processes)]
    try:
        gate.ready.wait(timeout=_LONGEST)
        time.sleep(_WARM_SECONDS)
        before, cpu, began = sum(gate.acks), cpu_seconds(pids), time.monotonic()
        time.sleep(seconds)
        acks, took = sum(gate.acks) - before, time.monotonic() - began
        if any(process.exitcode for process in processes):
            raise RuntimeError("a worker of the benchmark failed")
        return Run(acks, took, cpu_seconds(pids) - cpu, acks)
    finally:
        gate.stop.set()
        for process in processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()


def _completions(count: int) -> tuple[list[float], list[str]]:
    """Complete batches, each by several closers at once.

    Returns:
        For each batch, in ms, how long after the last ack was sent its message was in the outbox;
        and what is wrong with these figures.
    """
    batches = ack_workers.batches()
    _complete(batches)  # makes the topic
    found = [_complete(batches) for _ in range(count)]
    outbox = Outbox(boto3.client("dynamodb"), table=OUTBOX, deliveries_table=DELIVERIES)
    announced = outbox.outstanding_count(COMPLETED_TOPIC)
    faults = [] if announced == count + 1 else [f"{announced} messages of {count + 1} batches"]
    return found, faults


def _complete(batches: Batches) -> float:
    batch = batches.open().id
    groups = batches.add(batch, _CLOSERS * _ITEMS, request_id="all", group_size=_ITEMS)
    batches.seal(batch)
    for group in groups:
        batches.ack(list(group.item_ids())[1:])
    together = threading.Barrier(_CLOSERS)
    sent: list[float] = []
    completed: list[float] = []

    def close(item: str) -> None:
        together.wait()
        sent.append(time.monotonic())
        if batches.ack([item]).completed:
            completed.append(time.monotonic())

    closers = [threading.Thread(target=close, args=(f"{group.id}:0",)) for group in groups]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join()
    if not completed:  # all lost a race three times: then the stream's function does it
        BatchMaintenance(batches).cascade(LeafKey(batch, group.ordinal) for group in groups)
        completed.append(time.monotonic())
    return (completed[0] - max(sent)) * 1000
