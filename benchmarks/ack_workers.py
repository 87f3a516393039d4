"""The processes of the benchmark of acks: Fairbox's workers, and source 004's."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import boto3
from fairbox import BatchBusy, Batches

from benchmarks.baseline_004 import SeedBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import SpawnContext

BATCHES: Final = "batches"
OUTBOX: Final = "outbox"
DELIVERIES: Final = "deliveries"
GROUP_SIZE: Final = 7168


@dataclass(frozen=True, slots=True)
class Plan:
    """One worker's share of one batch.

    Attributes:
        batch: its id.
        groups: number of its groups.
        number, workers: this worker acks every `workers`-th item.
    """

    batch: str
    groups: int
    number: int
    workers: int

    def items(self) -> Iterator[tuple[int, int]]:
        """Yield groups and indexes in random order, no item twice and none of another worker."""
        rng, share = random.Random(self.number), GROUP_SIZE // self.workers
        count = self.groups * share
        stride = rng.randrange(count // 3, count)
        while math.gcd(stride, count) != 1:
            stride += 1
        for step in range(count):
            place = step * stride % count
            yield place // share, place % share * self.workers + self.number


@dataclass(frozen=True, slots=True)
class Gate:
    """The state shared by the processes of a run: start, end, and acks by worker."""

    ready: Any
    stop: Any
    acks: Any

    @classmethod
    def make(cls, context: SpawnContext, workers: int) -> Gate:
        """Return the gate of a run; the measuring process waits at `ready`, too."""
        return cls(context.Barrier(workers + 1), context.Event(), context.Array("l", workers))

    def run(self, plan: Plan, ack: Callable[[int, int], object]) -> None:
        """Ack item by item until the run is over."""
        self.ready.wait()
        for group, index in plan.items():
            if self.stop.is_set():
                return
            ack(group, index)
            self.acks[plan.number] += 1


def batches() -> Batches:
    """Return batches over the database that the environment names."""
    client = boto3.client("dynamodb")
    return Batches(client, table=BATCHES, outbox_table=OUTBOX, deliveries_table=DELIVERIES)


def fairbox(gate: Gate, plan: Plan) -> None:
    """Ack through the library."""
    tracker = batches()

    def ack(group: int, index: int) -> None:
        while True:
            try:
                tracker.ack([f"{plan.batch}:{group}:{index}"])
            except BatchBusy:
                continue
            return

    gate.run(plan, ack)


def seed(gate: Gate, plan: Plan) -> None:
    """Ack as source 004 does."""
    tracker = SeedBatches(boto3.client("dynamodb"))
    gate.run(plan, lambda group, index: tracker.ack(plan.batch, group, [index]))
