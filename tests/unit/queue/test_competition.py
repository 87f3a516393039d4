"""Consumers that compete for an unordered topic leave nothing when they are told that it is empty.

Their calls take turns in an order that a seed gives, so that each run is one interleaving.
"""

from __future__ import annotations

import random
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Consumer, Message, Outbox, Queue, Topic
from fairbox.testing import CostMeter
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CALL_SECONDS = 0.005


class Turns:
    """Runs threads one at a time; at each call of a client another one may go on."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._gates: dict[int, threading.Event] = {}

    def run(self, works: Sequence[Callable[[], object]]) -> None:
        """Run each of these in a thread, and return when all have ended."""
        threads = [threading.Thread(target=self._work, args=(work,)) for work in works]
        self._gates = {id(thread): threading.Event() for thread in threads}
        for thread in threads:
            thread.start()
        self._next()
        for thread in threads:
            thread.join()

    def _work(self, work: Callable[[], object]) -> None:
        self._wait()
        try:
            work()
        finally:
            del self._gates[id(threading.current_thread())]
            self._next()

    def _wait(self) -> None:
        gate = self._gates[id(threading.current_thread())]
        gate.wait()
        gate.clear()

    def _next(self) -> None:
        if self._gates:
            self._rng.choice(list(self._gates.values())).set()

    def yield_turn(self) -> None:
        """Let another thread go on, or the same."""
        if id(threading.current_thread()) in self._gates:
            self._next()
            self._wait()


class TurnClient:
    """A client at whose calls threads take turns."""

    def __init__(self, client: Any, turns: Turns, advance: Callable[[], object]) -> None:
        self._client = client
        self._turns = turns
        self._advance = advance

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(**request: Any) -> Any:
            self._turns.yield_turn()
            self._advance()
            return method(**request)

        return call


class Scene:
    """A topic with messages, and consumers whose calls interleave."""

    def __init__(self, seed: int, consumers: int, shards: int, *, shared: bool = False) -> None:
        self.application = MemoryApplication(rng=random.Random(seed))
        self.application.outbox.create_topic(Topic("jobs", shards=shards))
        self.turns = Turns(random.Random(seed))
        self.meter = CostMeter(self.application.client)
        clock = self.application.clock
        client = TurnClient(self.meter, self.turns, lambda: clock.advance(CALL_SECONDS / consumers))
        queues = [
            Queue.over(
                Outbox(
                    client,
                    table=OUTBOX,
                    deliveries_table=DELIVERIES,
                    clock=clock,
                    rng=random.Random(f"{seed} {number}"),
                )
            )
            for number in range(1 if shared else consumers)
        ]
        self.queues = queues * consumers if shared else queues

    def send(self, count: int, delay: float = 0) -> None:
        """Send messages that have all come at once."""
        ids = self.application.ids
        made = [Message(topic="jobs", body=b"x", id=ids.next(), delay=delay) for _ in range(count)]
        self.application.queue.send_many(made)


def drain(queue: Queue) -> None:
    """Receive and acknowledge until nothing is received."""
    while received := queue.receive("jobs", visibility_timeout=600):
        queue.ack([one.receipt for one in received])


def consume(queue: Queue) -> None:
    """Handle messages until the queue is empty."""
    Consumer(queue, "jobs", lambda _: None, visibility_timeout=600).run_until_empty()


@pytest.mark.parametrize("work", [drain, consume])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("shards", [1, 4])
def test_who_is_told_that_the_queue_is_empty_leaves_nothing(
    shards: int, shared: bool, work: Callable[[Queue], None]
) -> None:
    for seed in range(10):
        scene = Scene(seed, 2, shards, shared=shared)
        scene.send(120)
        scene.turns.run([partial(work, queue) for queue in scene.queues])
        assert scene.application.outbox.outstanding_count("jobs") == 0


@pytest.mark.parametrize(("consumers", "shards", "most"), [(16, 1, 3), (16, 8, 2.5)])
def test_who_competes_seldom_pays_for_lost_claims(consumers: int, shards: int, most: float) -> None:
    scene = Scene(1, consumers, shards)
    for _ in range(40):
        scene.send(25)
        scene.application.clock.advance(0.05)
    scene.meter.reset()
    scene.turns.run([partial(drain, queue) for queue in scene.queues])
    assert scene.meter.reading().wru / 1000 <= most  # claims and acknowledgements


def test_who_loses_two_claims_finds_what_competitors_left(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(1, 1, 1)
    scene.send(6)
    scene.application.clock.advance(1)
    claim = scene.application.engine.batch_execute_statement

    def overtaken(**request: Any) -> Any:
        monkeypatch.undo()
        assert len(scene.application.queue.receive("jobs", 2, 600)) == 2
        return claim(**request)

    monkeypatch.setattr(scene.application.engine, "batch_execute_statement", overtaken)
    assert len(scene.queues[0].receive("jobs", 1, 600)) == 1


def test_delayed_messages_are_not_left_while_others_move_the_hint() -> None:
    for seed in range(1049, 1052):
        scene = Scene(seed, 2, 1, shared=True)
        scene.send(60)
        scene.application.clock.advance(2)
        scene.send(60)
        scene.send(40, delay=0.001)
        scene.application.clock.advance(0.1)
        scene.turns.run([partial(drain, queue) for queue in scene.queues])
        assert scene.application.outbox.outstanding_count("jobs") == 0


def test_delayed_messages_are_not_hidden_when_ended_claims_fill_a_look() -> None:
    for seed in range(6):
        scene = Scene(seed, 1, 1)
        other = scene.application.queue
        scene.send(5)
        scene.application.clock.advance(1)
        assert len(other.receive("jobs", visibility_timeout=5)) == 5
        assert other.receive("jobs") == []  # and passes them
        scene.send(3, delay=1)
        scene.application.clock.advance(6)
        found = [len(scene.queues[0].receive("jobs", 5, 600)) for _ in range(2)]
        assert sum(found) == 8


def test_delayed_messages_in_flight_hide_none_behind_them() -> None:
    scene = Scene(1, 1, 1)
    ids = scene.application.ids
    made = [Message(topic="jobs", body=b"x", id=ids.next(), delay=5) for _ in range(121)]
    scene.application.queue.send_many(made)
    scene.application.clock.advance(5.1)
    held = 0
    while held < 120:
        held += len(scene.application.queue.receive("jobs", min(10, 120 - held), 600))
    assert len(scene.queues[0].receive("jobs")) == 1
