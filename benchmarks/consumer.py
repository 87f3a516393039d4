"""Messages a second of one consumer by workers and handler, in real time.

The queue's real code runs against the engine in memory, and each call takes a fixed time in
addition, as on a network. The messages are there when the consumer starts. Messages whose claims
end while their handlers run are faults.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox import Consumer, Message, Outbox, Queue, Topic
from fairbox.dynamodb.definitions import table_definitions
from fairbox.model.clock import SystemClock
from fairbox.testing import CostMeter, MemoryDynamoDB

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.topics import Ordering

TOPIC: Final = "jobs"
WORKERS: Final = (1, 100, 1_000)
HANDLER_MS: Final = (0, 10, 1_000)
CALL_SECONDS: Final = 0.005
SECONDS: Final = 4.0
_SHARDS: Final = 16
_MOST: Final = 5_000
_BODY: Final = random.Random(7).randbytes(700)


@dataclass(frozen=True, slots=True)
class Worked:
    """The result of a run: acknowledged, a second; units each; claims that ended too early."""

    rate: float
    wru: float
    lost: int


class _Slow:
    """A client whose calls take a time."""

    def __init__(self, client: CostMeter) -> None:
        self._client = client
        self.seconds = 0.0

    def __getattr__(self, operation: str) -> Any:
        call = getattr(self._client, operation)

        def slow(**arguments: Any) -> Any:
            time.sleep(self.seconds)
            return call(**arguments)

        return slow


def figures(
    *, workers: Sequence[int] = WORKERS, handler_ms: Sequence[int] = HANDLER_MS
) -> tuple[list[Figure], list[str]]:
    """Return messages a second and write units a message, and the runs that lost claims."""
    found: list[Figure] = []
    faults: list[str] = []
    orderings: tuple[tuple[str, Ordering], ...] = (("unordered", "none"), ("ordered", "key"))
    for name, ordering in orderings:
        for count in workers:
            for ms in handler_ms:
                done = work(count, ms / 1000, ordering)
                what = f"{count}_workers.{ms}_ms.{name}"
                found += [
                    Figure(f"consumer.throughput.{what}", "messages/s", done.rate),
                    Figure(f"consumer.wru_per_message.{what}", "WRU", done.wru),
                ]
                if done.lost:
                    faults.append(f"{what}: {done.lost} claims ended too early")
    return found, faults


def work(workers: int, handler: float, ordering: Ordering) -> Worked:
    """Run a consumer until it has handled what takes some seconds."""
    clock = SystemClock()
    meter = CostMeter(MemoryDynamoDB(clock))
    slow = _Slow(meter)
    for definition in table_definitions(outbox="outbox", deliveries="deliveries"):
        meter.create_table(**definition)
    outbox = Outbox(slow, table="outbox", deliveries_table="deliveries", clock=clock)
    outbox.create_topic(Topic(TOPIC, shards=_SHARDS, ordering=ordering))
    queue = Queue.over(outbox)
    count = round(min(_MOST, workers * 50, SECONDS * workers / max(handler, 0.001)))
    queue.send_many([Message(topic=TOPIC, body=_BODY, partition_key=f"{n}") for n in range(count)])
    time.sleep(1)  # receives pass no message that is younger than half a second
    slow.seconds = CALL_SECONDS
    meter.reset()
    done = threading.Semaphore(0)

    def handle(_received: object) -> None:
        time.sleep(handler)
        done.release()

    consumer = Consumer(queue, TOPIC, handle, concurrency=workers)
    thread = threading.Thread(target=consumer.run, kwargs={"signals": False})
    began = time.monotonic()
    thread.start()
    for _ in range(count):
        done.acquire()
    while consumer.counts.acked + consumer.counts.lost < count:
        time.sleep(0.01)
    seconds = time.monotonic() - began
    wru = meter.reading().wru / count
    consumer.stop()
    thread.join()
    return Worked(count / seconds, wru, consumer.counts.lost)
