"""A consumer with many workers: heartbeats and settlement in time, under slow and failing calls."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from fairbox import StaleReceipt, Throttled
from fairbox.consumer.consumer import Consumer
from fairbox.consumer.counts import ConsumerCounts, Counts, EventLog
from fairbox.consumer.handler_outcomes import ACK, Outcome
from fairbox.consumer.in_flight import InFlight
from fairbox.consumer.options import Limits
from fairbox.consumer.worker_steps import WorkerSteps
from fairbox.errors import InvalidInput
from fairbox.testing import ManualClock

from tests.support.scripted_queue import BulkQueue, Lines, ScriptedQueue
from tests.unit.consumer.test_consumer import PATIENCE, Running, eventually

if TYPE_CHECKING:
    from fairbox.consumer.in_flight import InFlightMessage


class Busy:
    """Steps under a clock that is set, with every worker at work."""

    def __init__(self, count: int, *, visibility: float = 30, plain: bool = False) -> None:
        self.clock = ManualClock(1000)
        self.queue = ScriptedQueue(self.clock.now) if plain else BulkQueue(self.clock.now)
        limits = Limits(
            concurrency=count,
            prefetch=0,
            visibility_timeout=visibility,
            linger=min(0.05, visibility),
        )
        self.hold = InFlight(count, 0, self.clock.now)
        self.counting = Counts()
        self.steps = WorkerSteps(
            self.queue,
            "jobs",
            lambda _: ACK,
            late=lambda _: Outcome("fail"),
            limits=limits,
            in_flight=self.hold,
            events=EventLog(self.counting, Lines(), {}),
        )
        self.queue.send(*(b"%04d" % n for n in range(count)))
        self.held: list[InFlightMessage | None] = []
        while len(self.hold) < count:
            self.held += [self.hold.take() for _ in range(self.steps.receive())]

    @property
    def counts(self) -> ConsumerCounts:
        return self.counting.counts


@pytest.mark.guarantee("many-workers")
@pytest.mark.parametrize("seconds", [0.005, 0.02, 0.05])
def test_a_thousand_in_hand_are_extended_by_one_thread_before_they_end(seconds: float) -> None:
    busy = Busy(1000)

    def takes(_name: str) -> None:
        busy.clock.sleep(seconds)
        assert busy.queue.expired == [], "late"

    busy.queue.takes = takes
    for _ in range(120):
        busy.steps.keep()
        busy.clock.advance(0.5)
    assert busy.counts == ConsumerCounts(received=1000)
    sizes = busy.queue.sizes["extend_many"]
    assert set(sizes) == {25}
    assert len(sizes) <= 40 * 6 * 1.3  # 40 calls each 10 s


def test_a_queue_that_extends_one_by_one_is_asked_so() -> None:
    busy = Busy(30, plain=True)
    busy.clock.advance(10)
    busy.steps.keep()
    assert busy.queue.calls["extend"] == 30


def test_what_ends_first_is_extended_first() -> None:
    busy = Busy(100)
    held = busy.held
    for n, one in enumerate(held):
        assert one is not None
        busy.hold.extended(one, until=2000 - n, extend_at=1500)
    busy.clock.set(1500)
    busy.steps.keep()
    extended = [body for body, _ in busy.queue.extensions]
    assert extended[0] == b"0099"
    assert extended == sorted(extended, reverse=True)


def test_what_is_due_soon_goes_along_and_the_rest_waits() -> None:
    busy = Busy(3)
    for one, at in zip(busy.held, (1010.0, 1010.4, 1011.0), strict=True):
        assert one is not None
        busy.hold.extended(one, until=at + 20, extend_at=at)
    assert busy.hold.heartbeats.next == 1010
    busy.clock.set(1010)
    assert busy.steps.extend()
    assert [body for body, _ in busy.queue.extensions] == [b"0000", b"0001"]
    assert not busy.steps.extend()


def test_a_stale_one_among_others_is_lost_alone() -> None:
    busy = Busy(25)
    busy.queue.steal(b"0007")
    busy.clock.advance(10)
    busy.steps.keep()
    assert busy.queue.calls["extend_many"] == 1
    assert len(busy.queue.extensions) == 24
    assert busy.counts == ConsumerCounts(received=25, lost=1)
    busy.clock.advance(10)
    busy.steps.keep()
    assert busy.queue.sizes["extend_many"] == [25, 24]


@pytest.mark.guarantee("many-workers")
@pytest.mark.parametrize("visibility", [1, 3, 30])
def test_a_throttled_call_is_repeated_in_time(visibility: float) -> None:
    busy = Busy(50, visibility=visibility)
    for name in ("extend", "extend_many"):
        busy.queue.faults[name] += [Throttled("extend")] * 4
    for _ in range(200):
        busy.steps.keep()
        assert busy.queue.expired == []
        busy.clock.advance(visibility / 50)
    assert busy.counts == ConsumerCounts(received=50, errors=4)


def test_a_receipt_that_its_own_settlement_made_stale_is_not_lost() -> None:
    busy = Busy(2)
    first, second = busy.held
    assert first is not None
    assert second is not None
    busy.clock.advance(10)

    def settled_meanwhile(_name: str) -> None:
        busy.queue.takes = lambda _: None
        busy.hold.finish(first, ACK)
        busy.hold.finish(second, Outcome("fail", 0.0, "why"))
        while busy.steps.settle(flush=True):
            pass

    busy.queue.takes = settled_meanwhile
    busy.steps.keep()
    assert busy.counts == ConsumerCounts(received=2, acked=1, failed=1)
    assert busy.hold.heartbeats.next == float("inf")
    assert len(busy.hold) == 0


def test_settled_messages_are_not_kept_in_memory() -> None:
    clock = ManualClock(1000)
    queue = BulkQueue(clock.now)
    queue.send(*(b"%04d" % n for n in range(2000)))
    consumer = Consumer(queue, "jobs", lambda _: None, now=clock.now, visibility_timeout=12 * 3600)
    assert consumer.run_until_empty().acked == 2000
    assert len(consumer._in_flight.heartbeats._heap) < 50


@pytest.mark.parametrize(
    ("workers", "prefetch", "least"), [(1000, None, 5), (1000, 0, 2.5), (200, 200, 1)]
)
def test_a_visibility_that_so_many_messages_cannot_be_held_for_is_refused(
    workers: int, prefetch: int | None, least: float
) -> None:
    def made(visibility: float) -> Consumer:
        return Consumer(
            ScriptedQueue(time.monotonic),
            "jobs",
            print,
            concurrency=workers,
            prefetch=prefetch,
            visibility_timeout=visibility,
        )

    made(least)
    with pytest.raises(InvalidInput, match=f"seconds from {least}") as refused:
        made(least - 0.1)
    assert refused.value.field == "visibility_timeout"


def test_a_receive_asks_for_as_many_as_a_quarter_of_the_workers() -> None:
    for workers, most in ((4, 8), (40, 10), (100, 25), (400, 100), (1000, 100)):
        queue = BulkQueue(time.monotonic)
        queue.send(*(b"%d" % n for n in range(3000)))
        Consumer(queue, "jobs", lambda _: None, concurrency=workers).run_until_empty(limit=300)
        assert max(queue.sizes["receive"]) == most


def test_a_queue_s_own_stale_answer_for_one_counts_whatever_it_names() -> None:
    busy = Busy(1, plain=True)
    busy.queue.faults["extend"].append(StaleReceipt(["of another form"]))
    busy.clock.advance(10)
    busy.steps.keep()
    assert busy.counts == ConsumerCounts(received=1, lost=1)


def test_an_ordered_topic_s_acks_go_a_hundred_a_call_one_call_at_a_time() -> None:
    queue = BulkQueue(time.monotonic)
    queue.ordered_topics.add("jobs")
    for n in range(400):
        queue.send(b"%d" % n, key=f"k{n}")
    calls, most, lock = 0, 0, threading.Lock()
    handled: list[object] = []

    def takes(name: str) -> None:
        nonlocal calls, most
        if name == "ack":
            with lock:
                calls += 1
                most = max(most, calls)
            eventually(lambda: len(handled) >= 200)  # others would be acknowledged meanwhile
            with lock:
                calls -= 1

    queue.takes = takes
    running = Running(Consumer(queue, "jobs", handled.append, concurrency=100, prefetch=300))
    eventually(lambda: len(queue.acked) == 400)
    assert running.stop().acked == 400
    assert most == 1
    assert 25 < max(queue.sizes["ack"]) <= 100


def test_an_unordered_topic_s_acks_go_side_by_side() -> None:
    queue = BulkQueue(time.monotonic)
    queue.send(*(b"%d" % n for n in range(400)))
    together = threading.Barrier(2, timeout=PATIENCE)
    first_two = threading.Semaphore(2)

    def takes(name: str) -> None:
        if name == "ack" and first_two.acquire(blocking=False):
            together.wait()

    queue.takes = takes
    running = Running(Consumer(queue, "jobs", lambda _: None, concurrency=100))
    eventually(lambda: len(queue.acked) == 400)
    assert running.stop().acked == 400
    assert max(queue.sizes["ack"]) <= 25
