"""The queue under faults and crashes, with a total account of every message."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from fairbox import Message, Queue, Received, RetryPolicy, StaleReceipt, Topic
from fairbox.client.outbox import Outbox
from fairbox.errors import Throttled, Unavailable
from fairbox.tables.key_claims import KeyClaimTable
from fairbox.testing import Fault, FaultyDynamoDB
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication
from fairbox.testing.faults import OPERATIONS

from tests.support.seeds import seeds

RATES = {
    Fault.THROTTLED: 0.05,
    Fault.INTERNAL_ERROR: 0.02,
    Fault.APPLIED_THEN_TIMEOUT: 0.06,
    Fault.TIMEOUT_UNAPPLIED: 0.03,
    Fault.UNPROCESSED: 0.05,
    Fault.CONFLICT: 0.03,
}
NOT_KNOWN = (Throttled, Unavailable)


class Killed(BaseException):
    """The process died here."""


class Mortal:
    """A client whose process dies at a call now and then, before the call or after it."""

    def __init__(self, client: Any, rng: random.Random, rate: float) -> None:
        self._client = client
        self._rng = rng
        self.rate = rate

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in OPERATIONS:
            return method

        def call(**request: Any) -> Any:
            drawn = self._rng.random()
            if drawn < self.rate / 2:
                raise Killed
            answer = method(**request)
            if drawn < self.rate:
                raise Killed
            return answer

        return call


class World:
    """Consumers that fail, and what they were told."""

    def __init__(self, seed: int, ordering: Any, *, attempts: int = 1000, shards: int = 3) -> None:
        self.rng = random.Random(seed)
        self.app = MemoryApplication(rng=random.Random(seed + 1))
        self.app.outbox.create_topic(
            Topic(
                "jobs", shards=shards, ordering=ordering, retry=RetryPolicy(max_attempts=attempts)
            )
        )
        self.ordering = ordering
        faulty = FaultyDynamoDB(self.app.engine, random.Random(seed + 2), RATES)
        self.mortal = Mortal(faulty, self.rng, 0.01)
        self.queues = [self.process() for _ in range(3)]
        self.sent: dict[str, str | None] = {}
        self.acked: list[str] = []
        self.unknown: set[str] = set()  # acknowledged, as far as anybody knows
        self.held: dict[str, Received] = {}
        self.order: dict[str, list[str]] = defaultdict(list)

    def process(self) -> Queue:
        """Return the queue of another process."""
        return Queue.over(
            Outbox(
                self.mortal,
                table=OUTBOX,
                deliveries_table=DELIVERIES,
                clock=self.app.clock,
                rng=self.app.rng,
            )
        )

    def step(self) -> None:
        which = self.rng.randrange(3)
        try:
            self.act(self.queues[which])
        except Killed:
            self.queues[which] = self.process()
        except NOT_KNOWN:
            pass

    def act(self, queue: Queue) -> None:
        action = self.rng.random()
        if action < 0.3:
            self.send()
        elif action < 0.65:
            self.receive(queue, self.rng.choice([2.0, 10.0]))
        elif action < 0.9:
            self.finish(queue)
        else:
            self.app.clock.advance(self.rng.choice([0.4, 3.0, 20.0]))

    def send(self) -> None:
        key = self.rng.choice(["a", "b", "c", "d", None])
        made = [
            Message(topic="jobs", body=b"x", partition_key=key, id=self.app.ids.next())
            for _ in range(self.rng.randrange(1, 5))
        ]
        self.app.queue.send_many(made)  # producers' faults are the outbox's tests
        self.sent |= {m.id: m.partition_key for m in made}

    def receive(self, queue: Queue, timeout: float) -> None:
        for received in queue.receive("jobs", self.rng.randrange(1, 8), timeout):
            message_id = received.message.id
            assert message_id not in self.acked
            earlier = self.held.pop(message_id, None)
            if earlier is not None:
                with pytest.raises(StaleReceipt):
                    self.app.queue.extend(earlier.receipt, 60)
            self.held[message_id] = received
            if (key := self.sent[message_id]) is not None:
                self.order[key].append(message_id)

    def finish(self, queue: Queue) -> None:
        chosen = self.rng.sample(sorted(self.held), min(len(self.held), self.rng.randrange(1, 5)))
        held = [self.held.pop(message_id) for message_id in chosen]
        if self.rng.random() < 0.2:
            for received in held:
                with suppress(StaleReceipt):  # lost to a process that died of it, or dead
                    queue.nack(received.receipt, self.rng.choice([0, 4]), "why")
            return
        self.unknown |= set(chosen)
        try:
            queue.ack(r.receipt for r in held)
            stale: set[str] = set()
        except StaleReceipt as error:
            stale = set(error.receipts)
        for received in held:
            self.unknown.discard(received.message.id)
            if received.receipt not in stale:
                self.acked.append(received.message.id)

    def drain(self) -> list[str]:
        """Without faults, receive and acknowledge all that is left."""
        left = []
        for _ in range(300):
            for received in self.app.queue.receive("jobs", 100, 600):
                left.append(received.message.id)
                self.app.queue.ack(received.receipt)
            self.app.clock.advance(1)
        return left


class KeyWorld(World):
    """Consumers that hold several messages of a key, of keys of which many wait."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "key", shards=1)
        self.keys = [f"k{n}" for n in range(150)]
        self.done: set[str] = set()  # acknowledged, or perhaps
        self.aside = 0

    def send(self) -> None:
        for _ in range(9):
            key = self.rng.choice(self.keys)
            made = [
                Message(topic="jobs", body=b"x", partition_key=key, id=self.app.ids.next())
                for _ in range(self.rng.randrange(1, 6))
            ]
            self.app.queue.send_many(made)
            self.sent |= {m.id: m.partition_key for m in made}

    def receive(self, queue: Queue, timeout: float) -> None:
        per_key = self.rng.choice([1, 3, 10])
        for received in queue.receive(
            "jobs", self.rng.choice([5, 20, 60]), timeout, max_per_key=per_key
        ):
            assert received.message.id not in self.acked
            self.held[received.message.id] = received
        row = KeyClaimTable(self.app.outbox.tables.calls, OUTBOX).get(("jobs", 0, 0))
        self.aside = max(self.aside, row.aside.count)

    def finish(self, queue: Queue) -> None:
        chosen = self.rng.sample(sorted(self.held), min(len(self.held), self.rng.randrange(1, 60)))
        action = self.rng.random()
        if action < 0.5:
            for message_id in chosen:
                with suppress(StaleReceipt):
                    queue.nack(
                        self.held.pop(message_id).receipt, self.rng.choice([0, 25, 90]), "why"
                    )
            return
        held = [self.held.pop(message_id) for message_id in chosen]
        if action < 0.6:
            with suppress(StaleReceipt):
                queue.release(r.receipt for r in held)
            return
        if action < 0.7:
            for received in held:
                with suppress(StaleReceipt):
                    queue.extend(received.receipt, self.rng.choice([1, 20]))
            return
        before = set(self.unknown)
        self.unknown |= set(chosen)
        try:
            queue.ack(r.receipt for r in held)
            stale: set[str] = set()
        except StaleReceipt as error:
            stale = set(error.receipts)
        self.unknown = before
        for received in held:
            if received.receipt not in stale:
                self.done.add(received.message.id)
                self.acked.append(received.message.id)
        self.check_order()

    def check_order(self) -> None:
        """Nothing is done before what came before it in its key."""
        over = self.done | self.unknown
        left: set[str | None] = set()
        for message_id, key in sorted(self.sent.items()):
            if message_id not in over:
                left.add(key)
            else:
                assert key not in left or message_id not in self.done, "out of order"


@pytest.mark.guarantee("one-holder-of-a-key")
@pytest.mark.parametrize("seed", seeds(60, 80))
def test_several_messages_of_a_key_are_done_in_order_whatever_fails(seed: int) -> None:
    world = KeyWorld(seed)
    for _ in range(250):
        world.step()
    left = world.drain()
    assert len(left) == len(set(left))
    assert not set(left) & set(world.acked)
    assert set(left) | set(world.acked) | world.unknown == world.sent.keys()
    assert list(world.app.outbox.outstanding("jobs")) == []
    assert len(world.acked) > 40
    assert world.aside > 0, "keys waited beside the row"
    order: dict[str | None, list[str]] = defaultdict(list)
    for message_id in left:
        order[world.sent[message_id]].append(message_id)
    assert all(found == sorted(found) for found in order.values())


@pytest.mark.guarantee("pulled-accounted")
@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize("seed", seeds(6))
def test_every_message_is_acknowledged_once_or_still_there(seed: int, ordering: str) -> None:
    world = World(seed, ordering)
    for _ in range(250):
        world.step()
    left = world.drain()
    assert len(left) == len(set(left))
    assert len(world.acked) == len(set(world.acked))
    assert not set(left) & set(world.acked)
    assert set(left) | set(world.acked) | world.unknown == world.sent.keys()
    assert list(world.app.outbox.dead("jobs")) == []
    assert list(world.app.outbox.outstanding("jobs")) == []
    assert len(world.acked) > 20


@pytest.mark.guarantee("pulled-accounted")
@pytest.mark.parametrize("seed", seeds(20, 24))
def test_with_few_attempts_every_message_is_acknowledged_or_dead(seed: int) -> None:
    world = World(seed, random.Random(seed).choice(["none", "key"]), attempts=2)
    for _ in range(250):
        world.step()
    left = world.drain()
    dead = {letter.id for letter in world.app.outbox.dead("jobs")}
    assert not dead & (set(left) | set(world.acked))
    assert set(left) | set(world.acked) | world.unknown | dead == world.sent.keys()
    assert dead
    for letter in world.app.outbox.dead("jobs"):
        assert letter.reason in {"why", "not acknowledged in time"}


@pytest.mark.guarantee("one-holder-of-a-key")
@pytest.mark.parametrize("seed", seeds(40, 46))
def test_a_key_is_received_in_the_order_of_its_ids_under_faults(seed: int) -> None:
    world = World(seed, "key")
    for _ in range(250):
        world.step()
    world.drain()
    for ids in world.order.values():
        firsts = list(dict.fromkeys(ids))
        assert firsts == sorted(firsts)
        for earlier, later in pairwise(ids):
            # back to an earlier message never: its successor came after it was done with
            assert later >= earlier
    assert sum(map(len, world.order.values())) > 20
