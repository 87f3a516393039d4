"""A consumer's rate: steady, with a small burst, whatever the workers; stops do not wait for it."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import PartitionedQueue
from fairbox.consumer.consumer import Consumer
from fairbox.consumer.counts import ConsumerCounts
from fairbox.consumer.options import Permits
from fairbox.consumer.turnstile import BURST_SECONDS, RateLimit
from fairbox.testing import ManualClock

from tests.support.scripted_queue import BulkQueue, ScriptedQueue
from tests.unit.consumer.test_consumer import Running, eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

RATES = (0.01, 0.5, 1, 9.9, 10, 33.3, 1000, 250_000)


@pytest.fixture
def queue() -> BulkQueue:
    return BulkQueue(time.monotonic)


def most_in(begun: Sequence[float], seconds: float) -> int:
    """The greatest number of messages begun within so many seconds."""
    most = first = 0
    for last, at in enumerate(begun):
        while at - begun[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def begin(clock: ManualClock, limit: RateLimit, count: int) -> list[float]:
    """Begin messages as soon as the rate allows it; return when."""
    begun = []
    for _ in range(count):
        clock.advance(limit.pause)
        begun.append(clock.now())
        limit.begin()
    return begun


class TestRateLimit:
    @pytest.mark.parametrize("rate", RATES[:-1])
    def test_a_long_run_keeps_to_the_rate(self, rate: float) -> None:
        clock = ManualClock(0)
        begun = begin(clock, RateLimit(rate, clock.now), 20_000)
        most = rate * begun[-1] + max(1, rate * BURST_SECONDS)
        assert most * 0.999 <= len(begun) <= most * 1.001

    @pytest.mark.guarantee("consumer-rate")
    @pytest.mark.parametrize("rate", RATES)
    def test_no_window_has_more_than_rate_and_burst(self, rate: float) -> None:
        clock, rng = ManualClock(0), random.Random(7)
        limit = RateLimit(rate, clock.now)
        begun: list[float] = []
        for _ in range(200):
            clock.advance(rng.choice([0.0, 0.3 / rate, 5 / rate, 1.0, 100.0]))  # idle
            begun += begin(clock, limit, rng.randint(1, 40))
        burst = max(1, rate * BURST_SECONDS)
        for window in (0.01, 0.1, 1.0, 10.0, 100.0):
            assert most_in(begun, window) <= window * rate + burst + 1e-3

    @pytest.mark.parametrize(("rate", "most"), [(0.1, 1), (10, 1), (19, 1), (50, 5), (1000, 100)])
    def test_after_an_idle_time_only_the_burst_begins_at_once(self, rate: float, most: int) -> None:
        clock = ManualClock(0)
        limit = RateLimit(rate, clock.now)
        begin(clock, limit, 100)
        clock.advance(3600)
        at_once = 0
        while limit.pause == 0:
            limit.begin()
            at_once += 1
        assert at_once in (most, max(1, most - 1))  # a fraction may round down

    @pytest.mark.parametrize("rate", RATES)
    def test_the_turns_of_a_time_are_those_that_begin_in_it(self, rate: float) -> None:
        clock, rng = ManualClock(0), random.Random(3)
        limit = RateLimit(rate, clock.now)
        for _ in range(50):
            begin(clock, limit, rng.randint(0, 20))
            clock.advance(rng.random() * 3 / rate)
            seconds = rng.random() * 20 / rate
            slots, end = limit.slots(seconds), clock.now() + seconds
            begun = begin(clock, limit, slots + 1)
            assert sum(at <= end for at in begun) == pytest.approx(slots, abs=1)

    def test_the_least_rate_is_no_fault(self) -> None:
        limit = RateLimit(5e-324, ManualClock(0).now)
        assert limit.slots(10) == 1
        limit.begin()
        assert limit.slots(10) == 0


def of_clock(
    queue: ScriptedQueue, clock: ManualClock, **settings: Any
) -> tuple[Consumer, list[float]]:
    """A consumer that runs in the test's thread, and the times at which it begins messages."""
    begun: list[float] = []

    def handler(_received: object) -> None:
        begun.append(clock.now())
        clock.advance(0.001)

    consumer = Consumer(queue, "jobs", handler, now=clock.now, sleep=clock.sleep, **settings)
    return consumer, begun


@pytest.mark.guarantee("consumer-rate")
@pytest.mark.parametrize("rate", [0.05, 2, 25])
def test_running_until_empty_keeps_the_rate(rate: float) -> None:
    clock = ManualClock(1000)
    queue = ScriptedQueue(clock.now)
    queue.send(*(b"%d" % n for n in range(200)))
    consumer, begun = of_clock(queue, clock, rate=rate, concurrency=50)
    assert consumer.run_until_empty() == ConsumerCounts(received=200, acked=200)
    assert 200 / (begun[-1] - begun[0]) == pytest.approx(rate, rel=0.05)
    assert most_in(begun, 1.0) <= max(1, rate * (1 + BURST_SECONDS))


def test_what_is_over_the_rate_is_not_claimed_long_before_its_turn() -> None:
    clock = ManualClock(1000)
    queue = ScriptedQueue(clock.now)
    queue.send(*(b"%d" % n for n in range(40)))
    held: list[int] = []
    claimed: dict[bytes, float] = {}
    waits: list[float] = []

    def handler(received: Any) -> None:
        held.append(sum(entry.count for entry in queue.entries))
        waits.append(clock.now() - claimed[received.message.body])

    receive = queue.receive

    def noted(*arguments: Any, **more: Any) -> Any:
        got = receive(*arguments, **more)
        claimed.update((one.message.body, clock.now()) for one in got)
        return got

    queue.receive = noted  # type: ignore[method-assign]
    Consumer(
        queue,
        "jobs",
        handler,
        now=clock.now,
        sleep=clock.sleep,
        concurrency=100,
        rate=0.5,
        visibility_timeout=30,
    ).run_until_empty()
    assert len(held) == 40
    assert max(held) <= 3  # of half a heartbeat, which is 5 s
    assert max(waits) <= 5
    assert queue.extensions == []


def test_a_stop_does_not_wait_for_the_rate(queue: BulkQueue) -> None:
    queue.send(*(b"%d" % n for n in range(50)))
    running = Running(
        Consumer(queue, "jobs", lambda _: None, concurrency=20, rate=0.001, visibility_timeout=60)
    )
    eventually(lambda: running.consumer.counts.acked == 1)
    counts = running.stop()
    assert counts == ConsumerCounts(received=counts.received, acked=1, released=counts.received - 1)
    assert {entry.count for entry in queue.entries} == {0}


def test_who_waits_for_its_rate_takes_no_permit_from_others(queue: BulkQueue) -> None:
    queue.send(b"one", b"two", topic="slow")
    queue.send(*(b"%d" % n for n in range(20)), topic="fast")
    permits = Permits(1)
    slow = Running(Consumer(queue, "slow", lambda _: None, rate=0.01, permits=permits))
    eventually(lambda: slow.consumer.counts.acked == 1)
    fast = Running(Consumer(queue, "fast", lambda _: None, permits=permits))
    eventually(lambda: fast.consumer.counts.acked == 20)
    assert slow.stop().acked == 1
    fast.stop()


def test_each_partition_s_consumer_has_a_rate_of_its_own() -> None:
    queue = ScriptedQueue(time.monotonic)
    consumers = PartitionedQueue("email", 3).consumers(queue, print, rate=7.5)
    assert [one.limits.rate for one in consumers] == [7.5] * 3
    assert len({id(one._rate) for one in consumers}) == 3


class TestPermits:
    def test_a_stop_does_not_wait_for_a_permit(self, queue: BulkQueue) -> None:
        permits = Permits(1)
        assert permits.acquire(0)
        queue.send(*(b"%d" % n for n in range(20)))
        running = Running(Consumer(queue, "jobs", lambda _: None, concurrency=20, permits=permits))
        eventually(lambda: running.consumer.counts.received == 20)
        assert running.stop() == ConsumerCounts(received=20, released=20)

    def test_what_waits_first_begins_first(self, queue: BulkQueue) -> None:
        bodies = [b"%02d" % n for n in range(60)]
        queue.send(*bodies)
        begun: list[bytes] = []

        def handler(received: Any) -> None:
            begun.append(received.message.body)

        running = Running(
            Consumer(queue, "jobs", handler, concurrency=20, permits=Permits(1), prefetch=40)
        )
        eventually(lambda: len(begun) == 60)
        running.stop()
        assert begun == bodies
