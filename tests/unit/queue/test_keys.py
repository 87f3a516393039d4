"""Ordered topics: waiting keys beside the row, several messages of a key, many keys in flight."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import (
    InvalidInput,
    Message,
    MessagesClaimed,
    Queue,
    Received,
    RetryPolicy,
    StaleReceipt,
    Topic,
)
from fairbox.tables.key_claims import MAX_ENTRIES, KeyClaims, KeyClaimTable
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairbox import MessageRef

BODY = random.Random(7).randbytes(800)  # does not compress: an item of nearly 1 KB


class Shop(MemoryApplication):
    """An application with an ordered topic."""

    def __init__(self, shards: int = 1, *, attempts: int = 1_000, **given: Any) -> None:
        super().__init__(**given)
        retry = RetryPolicy(max_attempts=attempts)
        self.outbox.create_topic(Topic("jobs", shards=shards, ordering="key", retry=retry))

    def send(self, *keys: str) -> list[MessageRef]:
        """Send a message of each key; return their refs once receives may pass them."""
        made = [
            Message(topic="jobs", body=BODY, partition_key=key, id=self.ids.next()) for key in keys
        ]
        refs = self.queue.send_many(made)
        self.clock.advance(3)
        return refs

    def receive(self, wanted: int = 10, timeout: float = 30, **more: Any) -> list[Received]:
        return self.queue.receive("jobs", wanted, timeout, **more)

    def several(self, wanted: int = 10, **more: Any) -> list[Received]:
        """Receive several messages of a key."""
        return self.receive(wanted, max_per_key=wanted, **more)

    def done(self, received: Iterable[Received]) -> None:
        self.queue.ack([r.receipt for r in received])

    def fail(self, keys: int, delay: float = 3_600) -> list[MessageRef]:
        """Let so many keys wait."""
        refs = self.send(*(f"failing-{n}" for n in range(keys)))
        left = keys
        while left:
            received = self.receive(100)
            for one in received:
                self.queue.nack(one.receipt, delay, "why")
            left -= len(received)
        return refs

    def drain(self) -> list[str]:
        """Receive and acknowledge all that comes until a lane is read from its head again."""
        found: list[str] = []
        self.clock.advance(600)
        while received := self.receive():
            self.done(received)
            found += ids(received)
        return found

    def row(self, shard: int = 0) -> KeyClaims:
        return KeyClaimTable(self.outbox.tables.calls, "outbox").get(("jobs", 0, shard))

    def another(self) -> Queue:
        """Return the queue of another process."""
        return Queue.over(type(self.outbox)(
            self.client, table="outbox", deliveries_table="deliveries",
            clock=self.clock, rng=self.rng,
        ))  # fmt: skip


def ids(received: Iterable[Received]) -> list[str]:
    return [r.message.id for r in received]


class TestPutBack:
    """A message that left is received when it is put back, whatever the row says of it."""

    def test_a_buried_one_behind_whose_key_a_receive_looked(self) -> None:
        shop = Shop()
        dead = shop.send(*["a", "b"] * 20)[:2]
        shop.send("c")
        held = shop.receive(10, 3_600)
        for one in held[:2]:
            shop.queue.bury(one.receipt, "of no use")
        shop.done(shop.receive(1))  # of one of both keys: that of the other is looked for later
        shop.clock.advance(3)
        shop.outbox.redrive("jobs")
        assert set(shop.drain()) >= {ref.id for ref in dead}

    @pytest.mark.parametrize("behind", [0, 1], ids=["last of its key", "behind one that is held"])
    def test_an_acknowledged_one_that_is_replayed(self, behind: int) -> None:
        shop = Shop()
        ref, *_ = shop.send(*["a"] * (1 + behind))
        held = shop.several()
        shop.done(held[:1])
        shop.clock.advance(60)
        shop.outbox.replay([held[0].message], cursor="r", position=0, to=1)
        assert ref.id in shop.drain()

    def test_a_replayed_one_whose_mark_another_process_remembers(self) -> None:
        shop = Shop()
        shop.send("a", "b")
        held = shop.receive(10, 3_600)
        shop.done(held[:1])
        shop.clock.advance(60)
        other = shop.another()
        assert other.receive("jobs") == []
        shop.outbox.replay([held[0].message], cursor="r", position=0, to=1)
        found = other.receive("jobs", 10, 30)
        assert held[0].message.id in [*ids(found), *shop.drain()]

    def test_an_acknowledged_one_that_is_added_again_an_hour_later(self) -> None:
        shop = Shop()
        shop.send("a")
        (held,) = shop.receive()
        shop.done([held])
        shop.clock.advance(3_600)
        shop.queue.send(held.message)
        assert shop.drain() == [held.message.id]


class TestWaitingKeys:
    @pytest.mark.guarantee("one-holder-of-a-key")
    @pytest.mark.parametrize("waiting", [70, 300])
    def test_no_number_of_them_stops_a_healthy_key(self, waiting: int) -> None:
        shop = Shop()
        failed = shop.fail(waiting)
        for _ in range(3):
            healthy = shop.send(*(f"healthy-{n}" for n in range(10)))
            received = shop.receive()
            assert ids(received) == [ref.id for ref in healthy]
            shop.done(received)
        assert len(shop.row().entries) <= 16 + 10
        shop.clock.advance(3_600)
        back: list[Received] = []
        while more := shop.receive(100):
            back += more
        assert sorted(ids(back)) == [ref.id for ref in failed]
        assert {r.receive_count for r in back} == {2}
        assert shop.row().aside.count == 0
        assert not [i for i in shop.engine.items("deliveries") if i["pk"]["S"].startswith("waits#")]

    @pytest.mark.extended  # size
    def test_more_than_a_row_holds_may_wait(self) -> None:
        shop = Shop()
        shop.fail(MAX_ENTRIES + 20)
        (ref,) = shop.send("healthy")
        assert ids(shop.receive()) == [ref.id]

    def test_their_followers_wait_for_them_and_come_in_order(self) -> None:
        shop = Shop()
        refs = shop.fail(40, 60)
        assert shop.receive() == []
        in_row = {entry.id for entry in shop.row().entries}
        keys = [f"failing-{n}" for n, ref in enumerate(refs) if ref.id not in in_row]
        first = [ref for ref in refs if ref.id not in in_row]
        assert len(keys) == 32
        second = shop.send(*keys)
        third = shop.send(*keys, "healthy")
        received: list[Received] = []
        while not received:  # receives pass the followers
            received = shop.receive()
        assert ids(received) == [third[-1].id]
        shop.done(received)
        shop.clock.advance(60)
        fourth = shop.send(*keys)
        seen: list[str] = []
        for _ in range(60):
            received = shop.receive(5)
            seen += ids(received)
            shop.done(received)
        assert len(seen) == len(set(seen)) == 40 + 3 * 32
        for several in zip(first, second, third, fourth, strict=False):
            places = [seen.index(ref.id) for ref in several]
            assert places == sorted(places)

    def test_another_process_knows_of_them(self) -> None:
        shop = Shop()
        shop.fail(40)
        assert shop.receive() == []
        shop.send(*(f"failing-{n}" for n in range(40)))
        other = shop.another()
        assert [m for _ in range(9) for m in other.receive("jobs", 10)] == []
        shop.clock.advance(3_600)
        assert [r.receive_count for r in other.receive("jobs", 40)] == [2] * 40

    def test_they_are_shown_rescheduled_and_cancelled(self) -> None:
        shop = Shop()
        refs = shop.fail(40)
        assert shop.receive() == []
        assert shop.row().aside.count >= 24
        shown = [shop.outbox.receives().of(m) for m in shop.outbox.stored("ready", "jobs")]
        assert [(one.count, one.held_until) for one in shown] == [(1, None)] * 40
        waiting = {e.id for e in shop.row().entries}
        beside = [ref for ref in refs if ref.id not in waiting]
        shop.queue.reschedule(beside[0])
        (received,) = shop.receive()
        assert (received.message.id, received.receive_count) == (beside[0].id, 2)
        shop.queue.edit(beside[1], body=b"edited")
        shop.queue.cancel([beside[2]])
        shop.done([received])
        shop.clock.advance(3_600)
        back = shop.receive(100)
        assert set(ids(back)) == {ref.id for ref in refs} - {beside[0].id, beside[2].id}
        assert b"edited" in [r.message.body for r in back]

    def test_a_purge_forgets_them(self) -> None:
        shop = Shop()
        shop.fail(40)
        assert shop.receive() == []
        assert shop.queue.purge("jobs") == 40
        again = shop.fail(40)  # the items of the first lie there, and mean nothing
        assert shop.receive() == []
        shop.clock.advance(3_600)
        assert sorted(ids(shop.receive(100))) == sorted(ref.id for ref in again)

    def test_a_wider_topic_waits_for_them(self) -> None:
        shop = Shop()
        refs = shop.fail(130)  # more than the page that shows all keys of an older shard
        assert shop.receive() == []
        shop.outbox.resize("jobs", 2)
        shop.clock.advance(70)
        later = shop.send(*(f"failing-{n}" for n in range(130)))
        assert [m for _ in range(9) for m in shop.receive(100)] == []
        shop.clock.advance(3_600)
        seen: list[str] = []
        for _ in range(30):
            received = shop.receive(100)
            seen += ids(received)
            shop.done(received)
            shop.clock.advance(60)
        assert len(seen) == 260
        for first, second in zip(refs, later, strict=True):
            assert seen.index(first.id) < seen.index(second.id)

    def test_at_most_half_of_a_receive_is_for_those_that_are_back(self) -> None:
        shop = Shop()
        shop.fail(30, delay=0)
        shop.send(*(f"healthy-{n}" for n in range(30)))
        counts = [r.receive_count for r in shop.receive(10)]
        assert counts.count(1) == 5

    def test_beside_them_a_message_costs_as_many_write_units(self) -> None:
        shop = Shop(wrap=CostMeter)
        shop.fail(200)
        for _ in range(2):
            shop.send(*(f"healthy-{n}" for n in range(10)))
            shop.done(shop.receive())
        shop.client.reset()
        for _ in range(5):
            shop.send(*(f"healthy-{n}" for n in range(10)))
            shop.done(shop.receive())
        reading = shop.client.reading()
        assert reading.wru / 50 <= 2.25
        assert reading.rru / 50 <= 0.7  # that these keys do not wait was read before

    def test_a_key_moves_beside_the_row_and_back_for_eight_write_units(self) -> None:
        shop = Shop(wrap=CostMeter)
        shop.fail(56)
        shop.client.reset()
        assert shop.receive() == []
        assert shop.row().aside.count == 48
        assert shop.client.reading().wru / 48 <= 4.1
        shop.clock.advance(3_600)
        shop.client.reset()
        assert len(shop.receive()) == 10
        assert shop.client.reading().wru / 48 <= 4.3


class TestRuns:
    def test_a_receive_holds_ten_messages_of_a_key_in_order(self) -> None:
        shop = Shop()
        refs = shop.send(*["hot"] * 25)
        for start in (0, 10, 20):
            received = shop.several()
            assert ids(received) == [ref.id for ref in refs[start : start + 10]]
            assert shop.queue.stats("jobs").in_flight == len(received)
            assert shop.several() == []
            shop.done(reversed(received))
        assert shop.several() == []

    def test_one_is_the_default_and_keys_come_before_more_of_a_key(self) -> None:
        shop = Shop()
        refs = shop.send("hot", "hot", "hot", "a", "hot", "b")
        received = shop.receive()
        assert ids(received) == [refs[0].id, refs[3].id, refs[5].id]
        shop.queue.release([r.receipt for r in received])
        shop.clock.advance(3)
        received = shop.receive(5, max_per_key=3)
        assert ids(received) == [refs[n].id for n in (0, 1, 2, 3, 5)]

    @pytest.mark.parametrize("value", [0, 101, True, 1.5, "2"])
    def test_a_number_that_is_none_is_refused(self, value: Any) -> None:
        with pytest.raises(InvalidInput) as refused:
            Shop().receive(max_per_key=value)
        assert refused.value.field == "max_per_key"

    @pytest.mark.guarantee("one-holder-of-a-key")
    def test_none_is_acknowledged_before_those_that_came_before_it(self) -> None:
        shop = Shop()
        shop.send(*["hot"] * 4)
        one, two, three, four = shop.several()
        with pytest.raises(StaleReceipt) as refused:
            shop.done([two, three])
        assert set(refused.value.receipts) == {two.receipt, three.receipt}
        with pytest.raises(StaleReceipt) as refused:
            shop.done([three, one])
        assert refused.value.receipts == (three.receipt,)
        shop.done([three, two])
        shop.done([four])
        assert list(shop.outbox.outstanding("jobs")) == []

    @pytest.mark.parametrize("how", ["nack", "release", "time-out", "bury"])
    @pytest.mark.parametrize("place", [0, 1])
    def test_a_failure_returns_those_behind_it(self, how: str, place: int) -> None:
        shop = Shop()
        shop.send("hot", "hot", "hot", "hot")
        received = shop.several()
        shop.done(received[:place])
        failed = received[place]
        if how == "nack":
            shop.queue.nack(failed.receipt, 2)
        elif how == "release":
            shop.queue.release(failed.receipt)
        elif how == "bury":
            shop.queue.bury(failed.receipt)
        else:
            shop.clock.advance(30)
            assert ids(shop.several()) == [failed.message.id]
        with pytest.raises(StaleReceipt):
            shop.done(received[place + 1 :])
        assert list(shop.outbox.outstanding("jobs"))[-1].id == received[-1].message.id
        shop.clock.advance(40)
        seen: list[tuple[str, int]] = []
        while again := shop.several():
            seen += [(r.message.id, r.receive_count) for r in again]
            shop.done(again)
        rest = [(r.message.id, 1) for r in received[place + 1 :]]
        count = {"nack": [2], "release": [1], "time-out": [3], "bury": []}[how]
        assert seen == [*((failed.message.id, one) for one in count), *rest]

    def test_one_that_failed_behind_others_waits_once_they_are_done(self) -> None:
        shop = Shop()
        shop.send(*["hot"] * 4)
        one, two, three, four = shop.several()
        shop.queue.nack(three.receipt, 100, "why")
        with pytest.raises(StaleReceipt):
            shop.done([three, four])
        shop.done([one, two])
        shop.clock.advance(99)
        assert shop.several() == []
        shop.clock.advance(1)
        (again,) = shop.several()  # what failed comes alone
        assert (again.message.id, again.receive_count) == (three.message.id, 2)
        shop.done([again])
        assert ids(shop.several()) == [four.message.id]

    def test_one_that_failed_behind_another_that_fails_comes_after_it(self) -> None:
        shop = Shop()
        shop.send(*["hot"] * 3)
        received = shop.several()
        shop.queue.nack(received[1].receipt)
        shop.queue.nack(received[0].receipt)
        seen: list[str] = []
        while again := shop.several():
            seen += ids(again)
            shop.done(again)
        assert seen == ids(received)

    def test_what_a_crash_left_of_them_is_deleted_and_not_received(self) -> None:
        shop = Shop()
        shop.send(*["hot"] * 4)
        received = shop.several()
        shop.client.__dict__["batch_write_item"] = _killed
        with pytest.raises(KeyboardInterrupt):
            shop.done(received[:2])
        del shop.client.__dict__["batch_write_item"]
        shop.done(received[2:3])
        shop.clock.advance(31)
        (last,) = shop.another().receive("jobs", max_per_key=10)
        assert last.message.id == received[3].message.id
        assert [m.id for m in shop.outbox.outstanding("jobs")] == [last.message.id]

    def test_one_that_comes_again_brings_none_that_lie_behind_others(self) -> None:
        shop = Shop()
        shop.send("held")
        assert len(shop.receive(timeout=3_600)) == 1
        refs = shop.send(*["hot"] * 4)
        received = shop.several(3)
        assert shop.several() == []  # passes the fourth
        later = shop.send("hot", "hot")
        shop.queue.release(received[0].receipt)
        expected = [ref.id for ref in (*refs, *later)]
        seen: list[str] = []
        while again := shop.several():
            seen += ids(again)
            shop.done(again)
        assert seen == expected

    def test_a_longer_time_is_that_of_the_whole_run(self) -> None:
        shop = Shop()
        shop.send("hot", "hot")
        received = shop.several(timeout=30)
        shop.queue.extend(received[1].receipt, 100)
        shop.queue.extend(received[0].receipt, 5)
        shop.clock.advance(99)
        assert shop.several() == []
        shop.done(received)

    def test_a_held_one_is_neither_edited_nor_unseen(self) -> None:
        shop = Shop()
        refs = shop.send("hot", "hot", "hot")
        received = shop.several()
        shop.done(received[:1])
        shown = [shop.outbox.receives().of(m) for m in shop.outbox.stored("ready", "jobs")]
        assert [(one.count, one.held_until) for one in shown] == [(1, received[0].visible_at)] * 2
        with pytest.raises(MessagesClaimed):
            shop.queue.edit(refs[2], body=b"x")

    def test_a_hot_key_does_not_hold_up_those_behind_its_messages(self) -> None:
        shop = Shop()
        shop.send(*["hot"] * 600)
        (last,) = shop.send("healthy")
        seen: list[str] = []
        for _ in range(15):
            received = shop.several()
            seen += ids(received)
            shop.done(received)
        assert last.id in seen


def _killed(**_: Any) -> Any:
    raise KeyboardInterrupt


class TestManyInFlight:
    @pytest.mark.parametrize("shards", [1, 8])
    @pytest.mark.parametrize("seconds", [0.1, 1])
    def test_one_receive_finds_what_is_ready_beside_three_hundred(
        self, shards: int, seconds: float
    ) -> None:
        shop = Shop(shards, wrap=CostMeter)
        shop.send(*(f"held-{n}" for n in range(300)))
        held = 0
        while held < 300:
            held += len(shop.receive(timeout=3_600))
        shop.outbox.add(Message(topic="jobs", body=BODY, partition_key="x", id=shop.ids.next()))
        shop.clock.advance(seconds)
        shop.client.reset()
        assert len(shop.receive()) == 1
        assert shop.client.reading().rru <= 5

    def test_a_message_that_another_process_gives_back_is_found_in_two_seconds(self) -> None:
        shop = Shop()
        other = shop.another()
        shop.send(*(f"k{n}" for n in range(30)))
        held = shop.receive(30, timeout=3_600)
        for number, received in enumerate(held[:5]):
            shop.done(held[10 + number : 11 + number])
            for _ in range(10):
                assert other.receive("jobs") == []
                shop.clock.advance(0.3)
            shop.queue.release(received.receipt)
            found: list[Received] = []
            for _ in range(8):
                found += other.receive("jobs", visibility_timeout=3_600)
                shop.clock.advance(0.3)
            assert ids(found) == [received.message.id]

    @pytest.mark.parametrize(("held", "most"), [(10, 2.25), (64, 2.6), (300, 3.6), (990, 7)])
    def test_a_message_costs_as_the_row_is_large(self, held: int, most: float) -> None:
        shop = Shop(wrap=CostMeter)
        shop.send(*(f"held-{n}" for n in range(held)))
        while held > 0:
            held -= len(shop.receive(timeout=3_600))
        shop.client.reset()
        for _ in range(5):
            shop.send(*(f"k{n}" for n in range(10)))
            shop.done(shop.receive())
        assert shop.client.reading().wru / 50 <= most
