"""The queue against a plain model: whatever consumers, operators and the clock do."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from fairbox import Message, Queue, Received, RetryPolicy, StaleReceipt, Topic
from fairbox.model.ids import IdGenerator
from fairbox.model.receipts import Receipt
from fairbox.testing.application import MemoryApplication
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

ATTEMPTS = 4
KEYS = st.sampled_from(["a", "b", "c", None])
SECONDS = st.sampled_from([0.0, 0.3, 1.0, 5.0, 31.0, 61.0])


@dataclass
class Sent:
    """The model's state of a message."""

    id: str
    key: str | None
    due: float
    count: int = 0
    free_at: float = 0.0
    holder: str = ""
    reasons: list[str] = field(default_factory=list)


class QueueMachine(RuleBasedStateMachine):
    """Two processes over one topic; the model is a dict of messages."""

    ordering = "none"

    @initialize(seed=st.integers(0, 2**32), shards=st.sampled_from([1, 2, 20]))
    def begin(self, seed: int, shards: int) -> None:
        self.app = MemoryApplication(rng=random.Random(seed))
        self.app.outbox.create_topic(
            Topic(
                "jobs",
                shards=shards,
                ordering=self.ordering,  # type: ignore[arg-type]  # a literal
                retry=RetryPolicy(max_attempts=ATTEMPTS),
            )
        )
        self.queues = [self.app.queue, Queue.over(self.app.outbox)]
        self.shards = shards
        self.model: dict[str, Sent] = {}
        self.dead: dict[str, Sent] = {}
        self.done: set[str] = set()
        self.stale: list[str] = []
        self.old_ids = IdGenerator(self.app.clock, self.app.rng.getrandbits)

    @property
    def now(self) -> float:
        return self.app.clock.now()

    def held(self) -> list[Sent]:
        return [s for s in self.model.values() if s.holder]

    def pick(self, number: int) -> Sent:
        held = self.held()
        return held[number % len(held)]

    @rule(count=st.integers(1, 6), key=KEYS, delay=st.sampled_from([0.0, 0.0, 2.0, 90.0]))
    def send(self, count: int, key: str | None, delay: float) -> None:
        delay = delay if self.ordering == "none" else 0.0
        made = [
            Message(topic="jobs", body=b"x", partition_key=key, delay=delay, id=self.app.ids.next())
            for _ in range(count)
        ]
        self.queues[0].send_many(made)
        for m in made:
            self.model[m.id] = Sent(m.id, key, (m.due or 0) / 1000)

    @rule(which=st.integers(0, 1), wanted=st.integers(1, 12), timeout=st.sampled_from([1.0, 30.0]))
    def receive(self, which: int, wanted: int, timeout: float) -> None:
        for received in self.queues[which].receive("jobs", wanted, timeout):
            self.check(received)
            sent = self.model[received.message.id]
            self.stale += [sent.holder] if sent.holder else []
            sent.count += 1
            sent.holder = received.receipt
            sent.free_at = self.now + timeout
        self.bury_exhausted()

    def check(self, received: Received) -> None:
        sent = self.model[received.message.id]
        assert sent.free_at <= self.now, "received while held or waiting"
        assert sent.due <= self.now + 0.001, "received before it was due"
        assert received.receive_count == sent.count + 1
        assert sent.count < ATTEMPTS
        if self.ordering == "key" and sent.key is not None:
            before = [s for s in self.model.values() if s.key == sent.key and s.id < sent.id]
            assert not [s for s in before if s.id not in self.buried()], "out of order"

    def buried(self) -> set[str]:
        return {letter.id for letter in self.app.outbox.dead("jobs")}

    def bury_exhausted(self) -> None:
        """Take into the model what receives found to have been tried too often."""
        for message_id in self.buried() & self.model.keys():
            sent = self.model.pop(message_id)
            assert sent.count == ATTEMPTS
            assert sent.free_at <= self.now
            self.stale += [sent.holder] if sent.holder else []
            self.dead[message_id] = sent

    @precondition(lambda self: self.held())
    @rule(number=st.integers(0, 99), more=st.integers(1, 9))
    def ack(self, number: int, more: int) -> None:
        chosen = [self.pick(number + n) for n in range(more)]
        self.queues[number % 2].ack({s.holder for s in chosen})
        for sent in chosen:
            if self.model.pop(sent.id, None) is not None:
                self.done.add(sent.id)

    @precondition(lambda self: self.held())
    @rule(number=st.integers(0, 99), delay=st.sampled_from([0.0, 0.0, 3.0, 100.0]))
    def nack(self, number: int, delay: float) -> None:
        sent = self.pick(number)
        self.queues[number % 2].nack(sent.holder, delay, f"reason {sent.count}")
        sent.reasons.append(f"reason {sent.count}")
        self.stale.append(sent.holder)
        sent.holder = ""
        sent.free_at = self.now + delay
        if sent.count == ATTEMPTS:
            self.dead[sent.id] = self.model.pop(sent.id)

    @precondition(lambda self: self.held())
    @rule(number=st.integers(0, 99), seconds=st.sampled_from([1.0, 40.0]))
    def extend(self, number: int, seconds: float) -> None:
        sent = self.pick(number)
        self.queues[number % 2].extend(sent.holder, seconds)
        sent.free_at = self.now + seconds

    @precondition(lambda self: self.held())
    @rule(number=st.integers(0, 99))
    def release(self, number: int) -> None:
        sent = self.pick(number)
        self.queues[number % 2].release(sent.holder)
        self.stale.append(sent.holder)
        sent.holder, sent.free_at, sent.count = "", self.now, sent.count - 1

    @precondition(lambda self: self.held())
    @rule(number=st.integers(0, 99))
    def give_up(self, number: int) -> None:
        sent = self.pick(number)
        self.queues[number % 2].bury(sent.holder, "hopeless")
        sent.reasons.append("hopeless")
        self.dead[sent.id] = self.model.pop(sent.id)

    @precondition(lambda self: self.stale)
    @rule(number=st.integers(0, 999), what=st.sampled_from(["ack", "nack", "extend", "release"]))
    def use_stale(self, number: int, what: str) -> None:
        receipt = self.stale[number % len(self.stale)]
        call: Any = getattr(self.queues[0], what)
        arguments = (receipt, 60) if what == "extend" else (receipt,)
        there = {i["sk"]["S"].rpartition("#")[2] for i in self.items()}
        try:
            call(*arguments)
        except StaleReceipt:
            return
        gone = Receipt.parse(receipt).ref.id not in there
        # what is gone counts as acknowledged; a release at the same instant as one taken for it
        assert (what == "ack" and gone) or what == "release"

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.app.clock.advance(seconds)

    @rule()
    def relay_and_mark(self) -> None:
        self.app.relay()
        self.app.mark()

    def items(self) -> list[dict[str, Any]]:
        items = self.app.engine.items("outbox")
        lanes = ("ready#", "later#")
        return [i for i in items if i["pk"]["S"].startswith(lanes) and i["sk"]["S"] != "!"]

    @invariant()
    def everything_is_accounted_for(self) -> None:
        if not hasattr(self, "app"):
            return
        there = {i["sk"]["S"].rpartition("#")[2] for i in self.items()}
        assert there == self.model.keys()
        assert self.buried() == self.dead.keys()

    def teardown(self) -> None:
        if not hasattr(self, "app"):
            return
        self.drain()
        for letter in self.app.outbox.dead("jobs"):
            assert letter.stored is not None
            history = [f.error for f in letter.stored.states["pull"].history]
            reasons = self.dead[letter.id].reasons
            assert [r for r in history if r in reasons] == reasons

    def drain(self) -> None:
        """Receive and acknowledge the rest: nothing is lost or out of reach."""
        for_nothing = 0  # a key gives one message at a time: only what never ends is wrong
        while self.model:
            left = len(self.model)
            for received in self.queues[0].receive("jobs", 100, 1000):
                self.check(received)
                self.queues[0].ack(received.receipt)
                del self.model[received.message.id]
            self.app.clock.advance(0.7)
            self.bury_exhausted()
            for_nothing = 0 if len(self.model) < left else for_nothing + 1
            assert for_nothing < 400, "what is there is out of reach"
        self.app.mark()
        stats = self.queues[0].stats("jobs")
        assert (stats.ready, stats.later, stats.dead) == (0, 0, len(self.dead))


class OrderedQueueMachine(QueueMachine):
    """The same on a topic that keeps the order of keys."""

    ordering = "key"


@pytest.mark.guarantee("one-receipt", "stale-receipt")
@pytest.mark.parametrize("machine", [QueueMachine, OrderedQueueMachine])
def test_the_queue_does_what_a_plain_model_does(machine: type[QueueMachine]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=12, stateful_step_count=40, deadline=None)
    )
