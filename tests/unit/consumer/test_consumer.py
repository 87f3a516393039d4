"""A consumer's threads: concurrency, a stop that drains, signals, refusals, hung handlers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from fairbox import Throttled, TopicIsPushed
from fairbox.consumer import consumer as consumer_module
from fairbox.consumer.consumer import ABANDONED, Consumer
from fairbox.consumer.counts import ConsumerCounts
from fairbox.consumer.options import Permits
from fairbox.errors import InvalidInput

from tests.support.scripted_queue import Lines, ScriptedQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.model.receipts import Received

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0


@pytest.fixture
def queue() -> ScriptedQueue:
    return ScriptedQueue(time.monotonic)


class Running:
    """A consumer that runs in a thread of its own."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.counts: ConsumerCounts | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.counts = self.consumer.run()

    def stop(self) -> ConsumerCounts:
        self.consumer.stop()
        return self.ended()

    def ended(self) -> ConsumerCounts:
        self._thread.join(PATIENCE)
        assert self.counts is not None, "it does not end"
        return self.counts


def ended(wait: Callable[..., object], *arguments: float) -> None:
    """Wait in a handler, which returns None."""
    wait(*arguments)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


def test_every_message_is_handled_once_by_many_workers(queue: ScriptedQueue) -> None:
    bodies = [b"%03d" % n for n in range(300)]
    queue.send(*bodies)
    seen: list[bytes] = []
    running = Running(Consumer(queue, "jobs", lambda r: seen.append(r.message.body), concurrency=8))
    eventually(lambda: len(queue.acked) == 300)
    assert running.stop() == ConsumerCounts(received=300, acked=300)
    assert sorted(seen) == bodies
    assert sorted(queue.acked) == bodies
    assert max(queue.sizes["receive"]) == 10


@pytest.mark.parametrize("name", ["", "worker-1"])
def test_it_receives_under_its_name(queue: ScriptedQueue, name: str) -> None:
    queue.send(b"one")
    Consumer(queue, "jobs", lambda _: None, name=name).run_until_empty()
    assert set(queue.consumers) == {name}


def test_a_name_that_is_too_long_is_refused(queue: ScriptedQueue) -> None:
    with pytest.raises(InvalidInput, match="name"):
        Consumer(queue, "jobs", lambda _: None, name="x" * 65)


def test_as_many_handlers_run_at_a_time_as_there_are_workers(queue: ScriptedQueue) -> None:
    queue.send(*(b"%d" % n for n in range(8)))
    together = threading.Barrier(4, timeout=PATIENCE)
    running = Running(Consumer(queue, "jobs", lambda _: ended(together.wait), concurrency=4))
    eventually(lambda: len(queue.acked) == 8)
    assert running.stop().acked == 8


def test_permits_bound_the_handlers_of_several_consumers(queue: ScriptedQueue) -> None:
    lock, two = threading.Lock(), threading.Event()
    at_once, most = 0, 0

    def handler(_received: object) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        if most == 2:
            two.set()
        assert two.wait(PATIENCE)
        with lock:
            at_once -= 1

    queue.send(*(b"%d" % n for n in range(20)), topic="a")
    queue.send(*(b"%d" % n for n in range(20)), topic="b")
    permits = Permits(2)
    running = [
        Running(Consumer(queue, topic, handler, concurrency=4, permits=permits))
        for topic in ("a", "b")
    ]
    eventually(lambda: len(queue.acked) == 40)
    for one in running:
        one.stop()
    assert most == 2


def test_a_stop_finishes_what_is_worked_on_and_releases_what_waits(queue: ScriptedQueue) -> None:
    queue.send(*(b"%d" % n for n in range(9)))
    go = threading.Event()
    running = Running(
        Consumer(queue, "jobs", lambda _: ended(go.wait, PATIENCE), concurrency=2, prefetch=4)
    )
    eventually(lambda: running.consumer.counts.received == 6)
    eventually(lambda: sum(entry.count for entry in queue.entries) == 6)
    running.consumer.stop()
    eventually(lambda: running.consumer.counts.released == 4)
    assert running.counts is None  # it waits for the two
    go.set()
    counts = running.ended()
    assert counts == ConsumerCounts(received=6, acked=2, released=4)
    assert {entry.count for entry in queue.entries} == {0}
    assert {entry.receipt for entry in queue.entries} == {""}
    assert len(queue.entries) == 7


@pytest.mark.guarantee("clean-stop")
def test_after_a_clean_drain_nothing_is_received_a_second_time(queue: ScriptedQueue) -> None:
    bodies = [b"%03d" % n for n in range(200)]
    queue.send(*bodies)
    handled: list[bytes] = []
    counts: list[int] = []

    def handler(received: Any) -> None:
        handled.append(received.message.body)
        counts.append(received.receive_count)
        time.sleep(0.001)

    consumer = partial(Consumer, queue, "jobs", handler)
    for _ in range(5):  # each of them stopped on the way
        there = len(handled)
        running = Running(consumer(concurrency=4, prefetch=8))
        eventually(partial(lambda at_least: len(handled) >= at_least, min(200, there + 30)))
        running.stop()
    last = Running(consumer())
    eventually(lambda: len(queue.acked) == 200)
    last.stop()
    assert set(counts) == {1}, "some came a second time"
    assert sorted(handled) == bodies


def test_it_logs_its_progress_with_all_counts_as_fields(
    queue: ScriptedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairbox.consumer.consumer.PROGRESS_SECONDS", 0.01)
    queue.send(b"one", b"two")
    log = Lines()
    running = Running(Consumer(queue, "jobs", lambda _: None, log=log))
    progress = "A consumer's progress: 2 received, 2 acked."
    eventually(lambda: any(line["acked"] == 2 for line in log.told(progress)))
    counts = running.stop()
    (started,) = log.told("A consumer started.")
    (stopped,) = log.told("A consumer stopped.")
    assert {name: started[name] for name in counts.as_fields()} == ConsumerCounts().as_fields()
    assert {name: stopped[name] for name in counts.as_fields()} == counts.as_fields()
    assert {line["topic"] for line in (started, stopped)} == {"jobs"}


def test_a_stop_waits_for_a_handler_no_longer_than_its_limit(queue: ScriptedQueue) -> None:
    queue.send(b"hangs", b"waits")
    log = Lines()
    began, go = threading.Event(), threading.Event()

    def handler(_received: Received) -> None:
        began.set()
        go.wait(PATIENCE)

    running = Running(
        Consumer(queue, "jobs", handler, concurrency=1, shutdown_timeout=0.05, log=log)
    )
    eventually(lambda: running.consumer.counts.received == 2 and began.is_set())
    assert running.stop() == ConsumerCounts(received=2, released=1, abandoned=1)
    assert queue.entry(b"hangs").history == [ABANDONED.reason]
    assert queue.entry(b"hangs").count == 1
    assert queue.entry(b"waits").count == 0
    (told,) = log.told("A consumer stopped.")
    assert told["topic"] == "jobs"
    assert told["abandoned"] == 1
    assert told["drained_seconds"] >= 0
    go.set()


def test_a_topic_that_cannot_be_received_from_ends_the_run_with_its_error(
    queue: ScriptedQueue,
) -> None:
    queue.faults["receive"] += [Throttled("receive"), TopicIsPushed("jobs")]
    with pytest.raises(TopicIsPushed):
        Consumer(queue, "jobs", print).run(signals=False)


def test_on_an_ordered_topic_an_ack_ends_the_pause_for_the_next_of_its_key(
    queue: ScriptedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "FIRST_PAUSE_SECONDS", 3600.0)
    queue.ordered_topics.add("jobs")
    bodies = [b"%02d" % n for n in range(20)]
    queue.send(*bodies, key="k")
    running = Running(Consumer(queue, "jobs", lambda _: None, idle=3600.0))
    eventually(lambda: len(queue.acked) == 20)
    assert queue.acked == bodies
    running.stop()


def test_what_waits_long_in_a_stop_is_still_extended(queue: ScriptedQueue) -> None:
    queue.send(b"long")
    go = threading.Event()
    running = Running(
        Consumer(
            queue, "jobs", lambda _: ended(go.wait, PATIENCE), visibility_timeout=1, concurrency=1
        )
    )
    eventually(lambda: running.consumer.counts.received == 1)
    running.consumer.stop()
    eventually(lambda: len(queue.extensions) >= 3)
    go.set()
    assert running.ended() == ConsumerCounts(received=1, acked=1)


def test_the_main_thread_s_signal_handlers_are_put_back(queue: ScriptedQueue) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    during: list[object] = []
    queue.send(b"a")

    def handler(_received: object) -> None:
        during.extend(signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT))
        consumer.stop()

    consumer = Consumer(queue, "jobs", handler)
    consumer.run()
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before
    assert during != before


@pytest.mark.parametrize("options", [(), ("elsewhere",), ("group", "elsewhere")])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(number: signal.Signals, options: tuple[str, ...]) -> None:
    with Process(*options) as process:
        process.signal(number)
        process.released()
        process.go()
        ended = process.ended()
    assert ended["counts"]["received"] == 6
    assert ended["counts"]["released"] == 4
    assert ended["counts"]["acked"] == 2
    assert list(ended["left"].values()) == [0, 0, 0, 0]


@pytest.mark.parametrize("options", [(), ("elsewhere",), ("group", "elsewhere")])
def test_a_second_signal_ends_it_at_once(options: tuple[str, ...]) -> None:
    with Process(*options) as process:
        process.signal(signal.SIGTERM)
        process.released()
        process.signal(signal.SIGINT)
        ended = process.ended()
    assert ended["counts"]["released"] == 4
    assert ended["counts"]["abandoned"] == 2
    assert ended["counts"]["acked"] == 0
    assert sorted(ended["left"].values()) == [0, 0, 0, 0, 1, 1]


class Process:
    """The consumer process, with both of its workers at work."""

    def __init__(self, *options: str) -> None:
        self._options = options

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.unit.consumer.program", *self._options]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._says("begun", "begun")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def signal(self, number: signal.Signals) -> None:
        """Signal it."""
        self._process.send_signal(number)

    def released(self) -> None:
        """Wait until it has given back what waited."""
        self._says("released")

    def go(self) -> None:
        """Let its handlers return."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def ended(self) -> dict[str, Any]:
        """Wait for its end; return its last words."""
        ended: dict[str, Any] = json.loads(self._says("ended")[-1])
        assert self._process.wait(PATIENCE) == 0
        return ended

    def _says(self, *words: str) -> list[str]:
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline().partition(" ") for _ in words]
        assert [word.strip() for word, _, _ in lines] == list(words)
        return [rest for _, _, rest in lines]
