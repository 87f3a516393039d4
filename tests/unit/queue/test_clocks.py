"""Clocks that jump, and that differ between processes: whose a message is, they never decide."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, Queue, Received, RetryPolicy, StaleReceipt, Topic
from fairbox.client.outbox import Outbox
from fairbox.model.epochs import shard_number
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication

from tests.support.seeds import seeds

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.testing import ManualClock

HOUR = 3600.0
DAY = 24 * HOUR
JUMPS = (-DAY, -HOUR, -30.0, -1.0, 0.0, 1.0, 30.0, HOUR, DAY)
ORDERINGS = pytest.mark.parametrize("ordering", ["none", "key"])


class Off:
    """A process's clock: so many seconds off the true time."""

    def __init__(self, true: ManualClock) -> None:
        self._true = true
        self.off = 0.0

    def now(self) -> float:
        return self._true.now() + self.off

    def sleep(self, seconds: float) -> None:
        self._true.sleep(seconds)


class Processes:
    """Three processes over one topic, each with a clock of its own."""

    def __init__(self, ordering: Any, seed: int = 0, *, attempts: int = 1000) -> None:
        self.rng = random.Random(seed)
        self.app = MemoryApplication(rng=random.Random(seed + 1))
        retry = RetryPolicy(max_attempts=attempts)
        self.app.outbox.create_topic(Topic("jobs", shards=2, ordering=ordering, retry=retry))
        self.clocks = [Off(self.app.clock) for _ in range(3)]
        self.queues = [self._queue(clock) for clock in self.clocks]
        self.sent: dict[str, str | None] = {}
        self.newest: dict[str, Received] = {}
        self.acked: set[str] = set()
        self.order: dict[str, list[str]] = defaultdict(list)

    def _queue(self, clock: Off) -> Queue:
        outbox = Outbox(
            self.app.client,
            table=OUTBOX,
            deliveries_table=DELIVERIES,
            clock=clock,
            rng=self.app.rng,
        )
        return Queue.over(outbox)

    def send(self, count: int = 1, key: str | None = None) -> list[str]:
        ids = [self.app.ids.next() for _ in range(count)]
        self.app.queue.send_many(
            Message(topic="jobs", body=b"x", partition_key=key, id=one) for one in ids
        )
        self.sent |= dict.fromkeys(ids, key)
        return ids

    def receive(self, which: int, wanted: int = 10, timeout: float = 30) -> list[Received]:
        """Receive; nothing that was acknowledged comes, and who held it before holds it no more."""
        found = self.queues[which].receive("jobs", wanted, timeout)
        for received in found:
            one = received.message.id
            assert one not in self.acked
            earlier = self.newest.get(one)
            if earlier is not None:
                for queue in self.queues:
                    with pytest.raises(StaleReceipt):
                        queue.extend(earlier.receipt, 60)
            self.newest[one] = received
            if (key := self.sent[one]) is not None:
                self.order[key].append(one)
        return found

    def step(self) -> None:
        which = self.rng.randrange(3)
        match self.rng.randrange(6):
            case 0:
                self.send(self.rng.randrange(1, 5), self.rng.choice(["a", "b", None]))
            case 1 | 2:
                self.receive(which, self.rng.randrange(1, 8), self.rng.choice([1.0, 30.0]))
            case 3:
                self.settle(self.queues[which])
            case 4:
                self.clocks[which].off = self.rng.choice(JUMPS)
            case _:
                self.app.clock.advance(self.rng.choice([0.4, 3.0, 20.0]))

    def settle(self, queue: Queue) -> None:
        for one in self.rng.sample(sorted(self.newest), min(len(self.newest), 3)):
            receipt = self.newest[one].receipt
            with suppress(StaleReceipt):  # it was given back before
                match self.rng.randrange(6):
                    case 0:
                        queue.nack(receipt, self.rng.choice([0, 4]), "why")
                    case 1:
                        queue.extend(receipt, 30)
                    case 2:
                        queue.release(receipt)
                    case _:
                        queue.ack(receipt)
                        self.acked.add(one)
                        del self.newest[one]

    def drain(self, seconds: float) -> None:
        """Set every clock right; receive and acknowledge all that is left, for so long."""
        for clock in self.clocks:
            clock.off = 0.0
        end = self.app.clock.now() + seconds
        while self.sent.keys() - self.acked and self.app.clock.now() < end:
            for received in self.receive(0, 100, 600):
                self.queues[0].ack(received.receipt)
                self.acked.add(received.message.id)
            self.app.clock.advance(20 if self.rng.random() < 0.9 else HOUR)


@ORDERINGS
@pytest.mark.parametrize("seed", seeds(6))
def test_no_message_is_lost_or_held_twice_whatever_the_clocks_do(seed: int, ordering: str) -> None:
    world = Processes(ordering, seed)
    for _ in range(250):
        world.step()
    world.drain(3 * DAY)
    assert world.acked == world.sent.keys()
    assert list(world.app.outbox.outstanding("jobs")) == []
    assert list(world.app.outbox.dead("jobs")) == []
    assert len(world.sent) > 50
    if ordering == "key":
        for ids in world.order.values():
            assert all(later >= earlier for earlier, later in pairwise(dict.fromkeys(ids)))


@ORDERINGS
def test_a_clock_that_jumps_forward_gives_the_message_early_and_takes_it_from_its_holder(
    ordering: str,
) -> None:
    world = Processes(ordering)
    (sent,) = world.send()
    world.app.clock.advance(3)
    (first,) = world.receive(0) or world.receive(0)
    world.clocks[1].off = HOUR
    (second,) = world.receive(1) or world.receive(1)
    assert (second.message.id, second.receive_count) == (sent, 2)
    with pytest.raises(StaleReceipt):
        world.queues[0].nack(first.receipt)
    world.queues[1].ack(second.receipt)
    assert list(world.app.outbox.outstanding("jobs")) == []


@ORDERINGS
def test_a_clock_that_jumps_back_keeps_what_it_holds(ordering: str) -> None:
    world = Processes(ordering)
    world.send()
    world.app.clock.advance(3)
    (held,) = world.receive(0) or world.receive(0)
    world.clocks[0].off = -DAY
    assert world.receive(0) == world.receive(0) == []
    world.queues[0].extend(held.receipt, 60)  # by its own clock: others may have it at once
    world.queues[0].ack(held.receipt)
    assert list(world.app.outbox.outstanding("jobs")) == []


def test_a_look_that_a_process_far_ahead_put_off_is_made_all_the_same() -> None:
    world = Processes("none")
    world.clocks[1].off = DAY
    for _ in range(2):  # nobody shall look for a day and a minute, its hints say
        assert world.receive(1) == []
    world.clocks[1].off = 0.0
    sent = Message(topic="jobs", body=b"x", delay=100, id=world.app.ids.next())
    world.app.queue.send(sent)
    world.sent[sent.id] = None
    world.app.clock.advance(101)
    found = world.receive(0) or world.receive(0)
    assert [received.message.id for received in found] == [sent.id]


def test_where_a_process_far_ahead_let_receives_begin_is_not_believed_for_long() -> None:
    world = Processes("key")
    late = world.app.ids.next()
    world.send(120, "stuck")
    world.app.clock.advance(3)
    assert [r for _ in range(2) for r in world.receive(0, timeout=12 * HOUR)]
    world.clocks[1].off = 10 * HOUR
    assert [r for _ in range(4) for r in world.receive(1)] == []  # they pass the followers
    world.clocks[1].off = 0.0
    keys = (f"k{n}" for n in range(100))
    key = next(k for k in keys if shard_number(k, 2) == shard_number("stuck", 2))
    world.app.queue.send(Message(topic="jobs", body=b"x", partition_key=key, id=late))
    world.sent[late] = key
    world.app.clock.advance(601)
    found = [r for _ in range(4) for r in world.receive(2)]
    assert [received.message.id for received in found] == [late]


class Stalling:
    """A client whose next update waits until something else has happened."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.meanwhile: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def update_item(self, **request: Any) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self._client.update_item(**request)


def test_an_ordered_ack_that_stands_still_over_its_time_out_is_stale_when_others_are_done() -> None:
    app = MemoryApplication(wrap=Stalling)
    app.outbox.create_topic(Topic("jobs", shards=1, ordering="key"))
    app.queue.send(Message(topic="jobs", body=b"", partition_key="k", id=app.ids.next()))
    (mine,) = app.queue.receive("jobs", visibility_timeout=30)

    def others() -> None:
        app.clock.advance(31)
        other = Queue.over(app.outbox)
        (theirs,) = other.receive("jobs")
        other.ack(theirs.receipt)

    app.client.meanwhile = others
    with pytest.raises(StaleReceipt):
        app.queue.ack(mine.receipt)
