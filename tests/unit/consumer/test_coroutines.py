"""Coroutines as handlers, and the time limit of handlers."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.consumer.consumer import Consumer, start_thread
from fairbox.testing import ManualClock

from tests.support.scripted_queue import ScriptedQueue
from tests.unit.consumer.test_consumer import PATIENCE, Running, ended, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.model.receipts import Received


@pytest.fixture
def queue() -> ScriptedQueue:
    return ScriptedQueue(time.monotonic)


def test_the_coroutines_of_a_consumer_run_at_a_time_on_one_loop(queue: ScriptedQueue) -> None:
    queue.send(*(b"%d" % n for n in range(4)))
    loops: set[Any] = set()
    threads: set[int] = set()
    met = 0
    all_met = asyncio.Event()

    async def handler(_received: Received) -> None:
        nonlocal met
        loops.add(asyncio.get_running_loop())
        threads.add(threading.get_ident())
        met += 1
        if met == 4:
            all_met.set()
        await asyncio.wait_for(all_met.wait(), PATIENCE)

    running = Running(Consumer(queue, "jobs", handler, concurrency=4))
    eventually(lambda: len(queue.acked) == 4)
    assert running.stop().acked == 4
    assert len(loops) == len(threads) == 1
    eventually(lambda: all(loop.is_closed() for loop in loops))


def test_a_coroutine_that_exits_fails_its_message_and_no_other(queue: ScriptedQueue) -> None:
    async def handler(received: Received) -> None:
        await asyncio.sleep(0)
        if received.message.body == b"bad":
            raise SystemExit(1)

    queue.send(b"bad", b"good")
    running = Running(Consumer(queue, "jobs", handler, concurrency=1, max_attempts=1))
    eventually(lambda: queue.acked == [b"good"] and b"bad" in queue.dead)
    assert running.stop().acked == 1


def test_a_coroutine_is_cancelled_at_its_time_limit(queue: ScriptedQueue) -> None:
    cleaned: list[bytes] = []

    async def handler(received: Received) -> None:
        try:
            if received.message.body == b"slow":
                await asyncio.Event().wait()
        finally:
            cleaned.append(received.message.body)

    queue.send(b"slow", b"fast")
    running = Running(
        Consumer(queue, "jobs", handler, concurrency=1, max_attempts=1, time_limit=0.02)
    )
    eventually(lambda: queue.acked == [b"fast"] and b"slow" in queue.dead)
    assert queue.dead[b"slow"] == "TimeoutError: the handler took over 0.02 s"
    assert cleaned == [b"slow", b"fast"]
    assert running.stop().dead == 1


def test_a_time_limit_of_the_handlers_own_keeps_its_text(queue: ScriptedQueue) -> None:
    async def handler(_received: Received) -> None:
        await asyncio.sleep(0)
        raise TimeoutError("the warehouse")

    queue.send(b"a")
    running = Running(Consumer(queue, "jobs", handler, max_attempts=1, time_limit=60))
    eventually(lambda: b"a" in queue.dead)
    assert queue.dead[b"a"] == "TimeoutError: the warehouse"
    running.stop()


def test_a_plain_function_over_its_limit_loses_its_message_and_keeps_its_worker(
    queue: ScriptedQueue,
) -> None:
    returns = threading.Event()
    clock = ManualClock(time.monotonic())
    began: list[bytes] = []

    def handler(received: Received) -> None:
        began.append(received.message.body)
        if received.message.body == b"slow":
            returns.wait(PATIENCE)

    queue.send(b"slow", b"next")
    running = Running(
        Consumer(
            queue,
            "jobs",
            handler,
            concurrency=1,
            prefetch=0,
            max_attempts=1,
            time_limit=0.02,
            now=clock.now,
        )
    )
    eventually(lambda: began == [b"slow"])
    clock.advance(1)
    eventually(lambda: b"slow" in queue.dead)
    assert began == [b"slow"]
    returns.set()
    eventually(lambda: queue.acked == [b"next"])
    assert running.stop().dead == 1


def test_a_stop_does_not_wait_for_a_function_over_its_limit(queue: ScriptedQueue) -> None:
    returns = threading.Event()
    joins: list[float] = []

    class Joined:
        def __init__(self, work: Callable[[], None], name: str) -> None:
            self._thread, self._name = start_thread(work, name), name

        def join(self, timeout: float | None = None) -> None:
            if self._name != "jobs-receiver":
                joins.append(timeout or 0.0)
            self._thread.join(timeout)

    queue.send(b"slow")
    consumer = Consumer(
        queue,
        "jobs",
        lambda _: ended(returns.wait, PATIENCE),
        max_attempts=1,
        time_limit=0.02,
        threads=Joined,
    )
    running = Running(consumer)
    eventually(lambda: b"slow" in queue.dead)
    assert running.stop().dead == 1
    assert set(joins) == {0.0}
    returns.set()


def test_a_coroutine_that_a_stop_abandons_is_cancelled(queue: ScriptedQueue) -> None:
    ended: list[str] = []

    async def handler(_received: Received) -> None:
        ended.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    queue.send(b"a")
    running = Running(Consumer(queue, "jobs", handler, shutdown_timeout=0))
    eventually(lambda: ended == ["began"])
    assert running.stop().abandoned == 1
    eventually(lambda: ended == ["began", "cancelled"])
