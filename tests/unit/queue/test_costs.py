"""Costs of the queue: exact units, from the meter over the engine in memory."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, Topic
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

if TYPE_CHECKING:
    from fairbox import Received
    from fairbox.testing import Reading


BODY = random.Random(7).randbytes(800)  # does not compress: an item of nearly 1 KB


class Shop(MemoryApplication):
    """An application with one metered topic of a shard, items of nearly 1 KB."""

    meter: CostMeter

    def __init__(self, ordering: Any = "none", shards: int = 1) -> None:
        super().__init__(wrap=CostMeter)
        self.meter = self.client
        self.outbox.create_topic(Topic("jobs", shards=shards, ordering=ordering))
        self.queue.receive("jobs")  # somebody has looked before

    def send(self, count: int, **more: Any) -> None:
        made = [Message(topic="jobs", body=BODY, id=self.ids.next(), **more) for _ in range(count)]
        for start in range(0, count, 10):
            self.queue.send_many(made[start : start + 10])

    def metered(self) -> Reading:
        reading = self.meter.reading()
        self.meter.reset()
        return reading

    def receive(self, timeout: float = 30) -> list[Received]:
        return self.queue.receive("jobs", 10, timeout)


@pytest.mark.parametrize(("ordering", "wru", "rru"), [("none", 3.2, 0.3), ("key", 2.3, 0.5)])
def test_a_message_sent_received_and_acknowledged_ten_at_a_call(
    ordering: str, wru: float, rru: float
) -> None:
    shop = Shop(ordering)
    shop.metered()
    for _ in range(20):
        shop.send(10)
        shop.clock.advance(0.7)
        received = shop.receive()
        assert len(received) == 10
        shop.queue.ack(r.receipt for r in received)
    reading = shop.metered()
    assert reading.wru / 200 <= wru
    assert reading.rru / 200 <= rru
    assert sum(reading.calls.values()) / 200 <= 0.58


@pytest.mark.parametrize(("ordering", "most"), [("none", 0.45), ("key", 0.51)])
def test_a_busy_consumer_reads_hints_and_versions_once_a_second(ordering: str, most: float) -> None:
    shop = Shop(ordering)
    shop.send(50)
    shop.clock.advance(3)
    shop.receive()
    shop.metered()
    for _ in range(40):
        shop.send(10)
        shop.clock.advance(0.1)
        received = shop.receive()
        assert len(received) == 10
        shop.queue.ack(r.receipt for r in received)
    assert sum(shop.metered().calls.values()) / 400 <= most


def test_a_call_costs_as_little_as_it_may_while_topics_are_known() -> None:
    for ordering, calls in (("none", 4), ("key", 5)):
        shop = Shop(ordering)
        shop.send(10)
        shop.clock.advance(3)
        shop.queue.ack(r.receipt for r in shop.receive())
        shop.clock.advance(0.9)
        shop.metered()
        shop.send(10)
        shop.queue.ack(r.receipt for r in shop.receive())
        reading = shop.metered()
        assert sum(reading.calls.values()) == calls


def test_three_hundred_in_flight_do_not_stand_in_the_way_of_one_that_is_ready() -> None:
    shop = Shop(shards=8)
    shop.send(300)
    shop.clock.advance(1)
    held = [m for _ in range(60) for m in shop.receive(timeout=3600)]
    assert len(held) == 300
    shop.send(1)
    shop.clock.advance(1)
    shop.metered()
    found: list[Received] = []
    while not found:
        found = shop.receive()
        assert shop.metered().rru <= 5


def test_an_empty_receive_costs_the_hint_and_half_a_unit_a_shard() -> None:
    shop = Shop(shards=8)
    shop.receive()
    shop.metered()
    assert shop.receive() == []
    reading = shop.metered()
    assert (reading.rru, reading.wru) == (4.5, 0)


def test_the_first_receive_of_a_process_sees_all_eight_shards() -> None:
    for skipped in range(30):
        application = MemoryApplication(wrap=CostMeter)
        application.outbox.create_topic(Topic("jobs", shards=8))
        for _ in range(skipped):
            application.ids.next()
        application.outbox.add(Message(topic="jobs", body=b"x", id=application.ids.next()))
        meter = application.client
        meter.reset()
        assert len(application.queue.receive("jobs")) == 1
        assert meter.reading().rru <= 10.5  # a look each, the hints, the topics and their version


def test_an_empty_receive_of_an_ordered_topic_costs_half_a_unit_a_shard() -> None:
    shop = Shop("key", shards=8)
    shop.metered()
    assert shop.receive() == []
    reading = shop.metered()
    assert (reading.rru, reading.wru) == (4, 0)


@pytest.mark.guarantee("receive-cost")
@pytest.mark.parametrize("ordering", ["none", "key"])
def test_a_receive_costs_the_same_whatever_lies_behind(ordering: str) -> None:
    costs_the_same(ordering, (20, 1_000, 20_000))


def costs_the_same(ordering: str, backlogs: tuple[int, int, int]) -> None:
    """Hold a receive to one cost behind backlogs; of the first one nothing is left to receive."""
    costs = []
    for backlog in backlogs:
        shop = Shop(ordering)
        shop.send(backlog)
        shop.clock.advance(3)
        shop.receive()
        shop.receive()
        shop.metered()
        assert len(shop.receive()) == (0 if backlog == 20 else 10)
        reading = shop.metered()
        costs.append((reading.rru, reading.wru))
    assert costs[1] == costs[2], "more behind more"
    assert costs[1][0] <= (3 if ordering == "none" else 9)


@pytest.mark.parametrize(("ordering", "wru", "calls"), [("none", 50, 2), ("key", 1, 1)])
def test_fifty_messages_are_extended_in_few_calls(ordering: str, wru: int, calls: int) -> None:
    shop = Shop(ordering)
    shop.send(50)
    shop.clock.advance(3)
    held = [one for _ in range(6) for one in shop.receive()]
    assert len(held) == 50
    shop.metered()
    shop.queue.extend_many([one.receipt for one in held], 60)
    reading = shop.metered()
    assert (reading.wru, reading.rru) == (wru, 0)
    assert sum(reading.calls.values()) == calls


@pytest.mark.guarantee("one-holder-of-a-key")
def test_a_stuck_key_with_many_followers_is_passed_once_and_then_costs_nothing() -> None:
    shop = Shop("key")
    shop.send(500, partition_key="stuck")
    shop.clock.advance(3)
    assert len(shop.receive(timeout=3600)) == 1
    for _ in range(12):
        assert shop.receive() == []  # passes its followers
    shop.send(1, partition_key="other")
    shop.clock.advance(3)
    shop.metered()
    (other,) = shop.receive()
    assert other.message.partition_key == "other"
    assert shop.metered().rru <= 3
    shop.queue.ack(other.receipt)


def test_looking_from_the_head_is_for_one_consumer_a_minute() -> None:
    shop = Shop()
    shop.send(15)
    shop.clock.advance(1)
    while shop.receive(timeout=3600):
        pass
    shop.clock.advance(61)
    shop.metered()
    assert shop.receive() == []
    assert shop.receive() == []
    first = shop.metered()
    assert shop.receive() == []
    second = shop.metered()
    assert (first.wru, second.wru) == (2, 0)
    assert second.rru <= 1 < first.rru


def test_a_look_past_much_that_is_held_goes_on_a_few_times_and_at_the_next_receives() -> None:
    shop = Shop()
    shop.send(300)
    shop.clock.advance(1)
    held = [m for _ in range(40) for m in shop.receive(timeout=3600)]
    assert len(held) == 300
    last = held[-1]
    shop.queue.extend(last.receipt, 65)  # ends long before the others'
    shop.clock.advance(66)
    shop.metered()
    found: list[Received] = []
    for _ in range(25):
        found = shop.receive()
        reading = shop.metered()
        assert reading.rru <= 42  # nine visits of the shard, and the version of the topics
        if found:
            break
    assert [r.message.id for r in found] == [last.message.id]


def test_three_hundred_in_flight_of_an_ordered_topic_are_read_once_a_receive() -> None:
    shop = Shop("key", shards=8)
    shop.send(300)
    shop.clock.advance(1)
    shop.metered()
    held = 0
    while held < 300:
        held += len(shop.receive(timeout=3600))
        assert shop.metered().rru <= 8 * 11  # every shard once at most
    for _ in range(16):
        shop.clock.advance(2)
        assert shop.receive() == []  # passes what is held
        assert shop.metered().rru <= 8 * 11 + 1  # one of them for the version of the topics
    shop.send(1)
    shop.clock.advance(2)
    assert len(shop.receive()) == 1
    assert shop.metered().rru <= 8 * 2 + 2  # row and page of each shard, two for the topic


def test_what_is_ready_does_not_wait_for_a_look_past_much_that_is_held() -> None:
    shop = Shop()
    shop.send(300)
    shop.clock.advance(1)
    while shop.receive(timeout=3600):
        pass
    shop.send(1)
    shop.clock.advance(61)
    assert len(shop.receive()) == 1  # while the look goes on


def test_three_hundred_too_young_to_be_passed_are_read_past_within_a_bound() -> None:
    shop = Shop()
    shop.send(310)
    shop.metered()
    taken = 0
    for _ in range(60):
        shop.clock.advance(0.001)  # no id becomes old enough for the hint to pass it
        taken += len(shop.receive(timeout=3600))
        # the whole shard once at most: 310 items, and a hint row for each 32 of them
        assert shop.metered().rru <= 310 / 8 + 20
    assert taken == 310


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_figures_cost_a_unit_a_shard_whatever_waits(ordering: str) -> None:
    for backlog in (0, 20, 2_000):
        shop = Shop(ordering, shards=4)
        shop.send(backlog)
        shop.mark()
        shop.metered()
        assert shop.queue.stats("jobs").ready == backlog
        reading = shop.metered()
        assert (reading.rru, reading.wru) == (4 + 1, 0)  # the topic's own row
