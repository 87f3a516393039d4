"""The lifetime of consumers: a stop before the run, one run, and calls in the wrong order."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial

import pytest
from fairbox import PartitionedQueue, TopicIsPushed
from fairbox.consumer.consumer import Consumer
from fairbox.consumer.counts import ConsumerCounts
from fairbox.consumer.group import Consumers
from fairbox.errors import InvalidInput

from tests.support.scripted_queue import ScriptedQueue
from tests.unit.consumer.test_consumer import Running, eventually

SPENT = "expected one that has not run; make another for each run"


@pytest.fixture
def queue() -> ScriptedQueue:
    """A queue with three messages."""
    queue = ScriptedQueue(time.monotonic)
    queue.send(b"one", b"two", b"three")
    return queue


def group(queue: ScriptedQueue) -> Consumers:
    return PartitionedQueue("jobs", 2).consumers(queue, print)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_stop_before_the_run_is_a_stop(queue: ScriptedQueue, at_once: bool) -> None:
    for consumer in (Consumer(queue, "jobs", print), group(queue)):
        consumer.stop(at_once=at_once)
        assert consumer.run() == ConsumerCounts()
        assert not queue.calls
        with pytest.raises(InvalidInput, match=SPENT):
            consumer.run()


def test_a_consumer_runs_once(queue: ScriptedQueue) -> None:
    running = Running(Consumer(queue, "jobs", print))
    eventually(lambda: len(queue.acked) == 3)
    for end in (lambda: None, running.stop):  # while it runs, and after its run
        end()
        for call in (running.consumer.run, running.consumer.run_until_empty):
            with pytest.raises(InvalidInput, match=f"consumer: {SPENT}"):
                call()


def test_a_group_runs_once_and_with_consumers_that_have_not_run(queue: ScriptedQueue) -> None:
    consumers = group(queue)
    threading.Thread(target=partial(consumers.run, signals=False)).start()
    eventually(lambda: len(queue.acked) == 3)
    with pytest.raises(InvalidInput, match=f"consumers: {SPENT}"):
        consumers.run()
    consumers.stop()
    fresh = Consumer(queue, "jobs", print)
    with pytest.raises(InvalidInput, match=f"consumers: {SPENT}"):
        Consumers([fresh, consumers[0]]).run()
    assert fresh.can_run
    with pytest.raises(InvalidInput, match="consumers: expected each of them once"):
        Consumers([fresh, fresh])


def test_coroutines_run_in_each_run_until_empty_and_in_a_run_after(queue: ScriptedQueue) -> None:
    loops: list[object] = []

    async def handler(_received: object) -> None:
        loops.append(asyncio.get_running_loop())

    consumer = Consumer(queue, "jobs", handler)
    assert consumer.run_until_empty(limit=1).acked == 1
    assert consumer.run_until_empty().acked == 3
    queue.send(b"four")
    running = Running(consumer)
    eventually(lambda: len(queue.acked) == 4)
    running.stop()
    assert len(set(loops)) == 3  # each run ends its own


def test_a_stop_ends_a_run_until_empty(queue: ScriptedQueue) -> None:
    consumer = Consumer(queue, "jobs", lambda _: consumer.stop())
    assert consumer.run_until_empty() == ConsumerCounts(received=3, acked=1, released=2)
    assert queue.left == [b"two", b"three"]
    assert {entry.count for entry in queue.entries} == {0}
    with pytest.raises(InvalidInput, match=SPENT):
        consumer.run_until_empty()


def test_the_loop_ends_with_a_run_until_empty_that_fails(queue: ScriptedQueue) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def handler(_received: object) -> None:
        loops.append(asyncio.get_running_loop())
        queue.faults["receive"].append(TopicIsPushed("jobs"))

    consumer = Consumer(queue, "jobs", handler, concurrency=1, prefetch=0)
    with pytest.raises(TopicIsPushed):
        consumer.run_until_empty()
    eventually(loops[0].is_closed)
