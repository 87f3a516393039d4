"""Resizing topics while messages flow, over both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox import InvalidInput, Message, MessageRef, Queue, ResizeUnderway, UnknownTopic
from fairbox.dispatch.maintenance.epoch_retirement import RetireReport, Retiring
from fairbox.model.epochs import Epoch, shard_number

from tests.support.outbox_fixture import Setup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox import Outbox


class ResizeRig(Setup):
    """A setup with a pulled topic `orders` of four shards."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.topic()
        self.queue = Queue.over(self.another(self.clock))

    @property
    def now(self) -> int:
        return int(self.clock.now() * 1000)

    def resize(self, shards: int, topic: str = "orders") -> Epoch:
        """Resize, and let the cut pass."""
        epoch = self.outbox.resize(topic, shards).epoch
        self.clock.advance(61)
        return epoch

    def retire(self) -> RetireReport:
        """Take what is empty off the lists, as repair does."""
        return Retiring(self.outbox.tables, self.clock).run(deadline=self.clock.now() + 600)

    def epochs(self) -> list[int]:
        return [epoch.number for epoch in self.outbox.topic("orders").epochs]

    def received(self, topic: str = "orders") -> list[str]:
        """Receive and acknowledge until nothing comes; return the ids."""
        found: list[str] = []
        for _ in range(40):
            messages = self.queue.receive(topic, 10)
            found += [received.message.id for received in messages]
            if messages:
                self.queue.ack(received.receipt for received in messages)
        return found

    def die(self, ref: MessageRef) -> None:
        """Let the message of a pulled topic die."""
        for _ in range(60):
            for received in self.queue.receive(ref.topic, 10):
                if received.message.id == ref.id:
                    self.queue.bury(received.receipt, "no good")
                    return
                self.queue.release(received.receipt)
        raise AssertionError("it was not received")


@pytest.fixture
def setup(client: Any) -> ResizeRig:
    return ResizeRig(client)


def spread(setup: ResizeRig, count: int = 12, outbox: Outbox | None = None) -> list[MessageRef]:
    messages = [setup.message(partition_key=f"k{n}") for n in range(count)]
    return (outbox or setup.outbox).add_many(messages)


class TestAnnouncing:
    def test_the_new_width_holds_from_a_minute_on(self, setup: ResizeRig) -> None:
        now = setup.now
        result = setup.outbox.resize("orders", 8)
        assert (result.topic, result.before, result.changed) == ("orders", 4, True)
        assert result.epoch == Epoch(1, 8, now + 60_000)
        assert {ref.epoch for ref in spread(setup)} == {0}
        setup.clock.advance(59)
        assert {ref.epoch for ref in spread(setup)} == {0}
        setup.clock.advance(1)
        refs = spread(setup, 40)
        assert {ref.epoch for ref in refs} == {1}
        assert {ref.shard for ref in refs} == set(range(8))
        assert [ref.shard for ref in refs] == [shard_number(f"k{n}", 8) for n in range(40)]
        assert setup.outbox.topic("orders").topic.shards == 8

    def test_the_same_width_changes_nothing_and_may_be_asked_for_again(
        self, setup: ResizeRig
    ) -> None:
        assert setup.outbox.resize("orders", 4).changed is False
        first = setup.outbox.resize("orders", 2)
        again = setup.outbox.resize("orders", 2)
        assert (again.epoch, again.before, again.changed) == (first.epoch, 4, False)
        assert setup.epochs() == [0, 1]

    def test_another_width_is_refused_until_the_announced_one_has_begun(
        self, setup: ResizeRig
    ) -> None:
        first = setup.outbox.resize("orders", 8)
        with pytest.raises(ResizeUnderway) as refused:
            setup.outbox.resize("orders", 16)
        assert (refused.value.topic, refused.value.since) == ("orders", first.epoch.since)
        setup.clock.advance(60)
        assert setup.outbox.resize("orders", 16).epoch.number == 2

    @pytest.mark.parametrize("shards", [0, -1, 1001, True, 2.0, "8", None])
    def test_a_width_that_is_none_is_refused(self, setup: ResizeRig, shards: Any) -> None:
        with pytest.raises(InvalidInput, match="shards: expected a whole number from 1 to 1000"):
            setup.outbox.resize("orders", shards)
        assert setup.epochs() == [0]

    def test_a_topic_that_is_not_there_cannot_be_resized(self, setup: ResizeRig) -> None:
        with pytest.raises(UnknownTopic):
            setup.outbox.resize("nothing", 8)

    def test_settings_may_change_during_a_resize_and_keep_the_epochs(
        self, setup: ResizeRig
    ) -> None:
        setup.resize(8)
        setup.topic(shards=8, retention=3600)
        setup.outbox.pause_topic("orders")
        state = setup.outbox.topic("orders")
        assert (setup.epochs(), state.topic.retention, state.paused) == ([0, 1], 3600, True)


class TestProducers:
    def test_a_producer_with_an_old_view_writes_where_all_others_look(
        self, setup: ResizeRig
    ) -> None:
        late = setup.another(setup.clock)
        old = spread(setup, outbox=late)
        setup.outbox.resize("orders", 16)
        setup.clock.advance(29)
        old += spread(setup, outbox=late)  # its copy knows nothing of the resize
        setup.clock.advance(31)
        new = spread(setup, outbox=late)
        assert ({r.epoch for r in old}, {r.epoch for r in new}) == ({0}, {1})
        found = [m.id for m in setup.outbox.outstanding("orders")]
        assert found == [r.id for r in old + new]

    def test_a_message_made_before_the_cut_and_added_behind_it_goes_to_the_old_epoch(
        self, setup: ResizeRig
    ) -> None:
        message = setup.message(partition_key="k")
        added = setup.message(partition_key="k")
        first = setup.outbox.add(added)
        setup.resize(8)
        ref = setup.outbox.add(message)
        assert (ref.epoch, ref.shard) == (0, shard_number("k", 4))
        assert setup.outbox.add(added) == first  # again: it is found, and there is one
        assert setup.outbox.outstanding_count("orders") == 2

    def test_an_id_behind_another_goes_to_the_epoch_of_its_own_time(self, setup: ResizeRig) -> None:
        early = setup.message()
        setup.resize(8)
        now = setup.message()
        assert (
            setup.outbox.add(Message(topic="orders", body=b"", id=setup.ids.next(now.id))).epoch
            == 1
        )
        last = Message(topic="orders", body=b"", id=setup.ids.next(after=early.id))
        assert setup.outbox.add(last).epoch == 1
        assert [m.id for m in setup.outbox.outstanding("orders")] == [
            r.id for r in sorted_refs(setup.outbox)
        ]


def sorted_refs(outbox: Outbox) -> Sequence[MessageRef]:
    return sorted((s.ref for s in outbox.stored("ready", "orders")), key=lambda ref: ref.id)


@pytest.mark.parametrize("width", [2, 8])
class TestReading:
    def test_every_reader_goes_through_all_epochs(self, setup: ResizeRig, width: int) -> None:
        refs = spread(setup)
        waiting = setup.outbox.add(setup.message(delay=3600))
        setup.resize(width)
        refs += spread(setup)
        waiting_too = setup.outbox.add(setup.message(delay=3600))
        outbox = setup.another(setup.clock)
        assert [m.id for m in outbox.outstanding("orders")] == [r.id for r in refs]
        assert [m.id for m in outbox.waiting("orders")] == [waiting.id, waiting_too.id]
        assert outbox.outstanding_count("orders") == len(refs) + 2
        assert {m.id for m in outbox.scan_outstanding()} == {
            r.id for r in (*refs, waiting, waiting_too)
        }
        assert [m.id for m in outbox.get_many(refs)] == [r.id for r in refs]

    def test_consumers_receive_from_all_epochs(self, setup: ResizeRig, width: int) -> None:
        refs = spread(setup, 20)
        setup.resize(width)
        refs += spread(setup, 20)
        setup.clock.advance(3)
        assert sorted(setup.received()) == [r.id for r in refs]
        assert setup.outbox.outstanding_count("orders") == 0

    def test_a_purge_empties_all_epochs(self, setup: ResizeRig, width: int) -> None:
        spread(setup)
        setup.resize(width)
        spread(setup)
        setup.clock.advance(1)
        assert setup.queue.purge("orders") == 24
        assert setup.outbox.outstanding_count("orders") == 0

    def test_dead_letters_of_every_epoch_are_listed_and_redriven_into_their_own(
        self, setup: ResizeRig, width: int
    ) -> None:
        old = setup.outbox.add(setup.message(partition_key="old"))
        setup.die(old)
        setup.resize(width)
        new = setup.outbox.add(setup.message(partition_key="new"))
        setup.clock.advance(1)
        setup.die(new)
        assert [letter.id for letter in setup.outbox.dead("orders")] == [old.id, new.id]
        assert setup.outbox.redrive("orders", [old.id]).refs == (old,)  # by its id alone
        assert setup.outbox.redrive("orders").refs == (new,)
        assert {s.ref for s in setup.outbox.stored("ready", "orders")} == {old, new}


class TestRetiring:
    def drained(self, setup: ResizeRig) -> None:
        """Let the old epoch's time pass, and its messages be gone."""
        spread(setup)
        setup.resize(8)
        setup.received()
        setup.clock.advance(900)

    def test_an_empty_epoch_is_closed_and_then_leaves_the_list(self, setup: ResizeRig) -> None:
        self.drained(setup)
        assert setup.retire() == RetireReport(closed=1)
        assert setup.epochs() == [0, 1]
        setup.clock.advance(299)
        assert setup.retire() == RetireReport()
        setup.clock.advance(1)
        assert setup.retire() == RetireReport(retired=1)
        assert setup.epochs() == [1]
        assert setup.retire() == RetireReport()

    def test_nothing_is_left_of_its_rows(self, setup: ResizeRig) -> None:
        self.drained(setup)
        for _ in range(2):
            setup.retire()
            setup.clock.advance(300)
        keys = [
            item["pk"]["S"]
            for item in setup.engine.scan(TableName=setup.table, ConsistentRead=True)["Items"]
        ]
        assert [key for key in keys if "#orders#0" in key] == []
        assert any("#orders#1" in key for key in keys)

    def test_an_epoch_whose_time_is_just_past_still_takes_messages(self, setup: ResizeRig) -> None:
        message = setup.message()
        setup.resize(8)
        setup.clock.advance(898)
        assert setup.retire() == RetireReport()
        assert setup.outbox.add(message).epoch == 0

    @pytest.mark.parametrize("what", ["ready", "later", "dead"])
    def test_an_epoch_stays_while_any_lane_holds_a_message(
        self, setup: ResizeRig, what: str
    ) -> None:
        ref = setup.outbox.add(setup.message(delay=86400 if what == "later" else 0))
        if what == "dead":
            setup.die(ref)
        setup.resize(8)
        setup.clock.advance(3600)
        for _ in range(3):
            assert setup.retire() == RetireReport()
            setup.clock.advance(3600)
        assert setup.epochs() == [0, 1]
        assert setup.outbox.get(ref) is not None

    def test_what_an_old_view_writes_into_a_closed_epoch_keeps_it_listed(
        self, setup: ResizeRig
    ) -> None:
        message, another = setup.message(), setup.message()
        late = setup.another(setup.clock)
        self.drained(setup)
        late.outstanding_count("orders")  # its copy is of before
        assert setup.retire() == RetireReport(closed=1)
        setup.clock.advance(20)
        ref = late.add(message)
        assert ref.epoch == 0
        setup.clock.advance(10)
        assert late.add(another).epoch == 1  # as everybody who knows that it is closed
        for _ in range(3):
            setup.clock.advance(3600)
            assert setup.retire() == RetireReport()
        assert setup.epochs() == [0, 1]
        assert sorted(setup.received()) == sorted([message.id, another.id])
        assert setup.retire() == RetireReport(retired=1)

    def test_removing_a_closed_epoch_moves_no_message(self, setup: ResizeRig) -> None:
        message = setup.message(partition_key="k")
        self.drained(setup)
        setup.retire()
        setup.clock.advance(300)
        placed = setup.outbox.add(message)
        assert (placed.epoch, placed.shard) == (1, shard_number("k", 8))
        setup.retire()
        setup.clock.advance(31)
        assert setup.epochs() == [1]
        assert setup.outbox.add(message) == placed
        assert setup.outbox.outstanding_count("orders") == 1

    def test_an_epoch_in_the_middle_may_leave_before_an_older_one(self, setup: ResizeRig) -> None:
        ref = setup.outbox.add(setup.message())
        setup.die(ref)
        setup.resize(8)
        message = setup.message(partition_key="k")
        setup.resize(2)
        setup.clock.advance(3600)
        setup.retire()
        placed = setup.outbox.add(message)
        setup.clock.advance(3600)
        assert setup.retire() == RetireReport(retired=1)
        assert setup.epochs() == [0, 2]
        setup.clock.advance(60)
        assert setup.outbox.add(message) == placed
        assert setup.outbox.outstanding_count("orders") == 1

    def test_many_old_epochs_are_too_many(self, setup: ResizeRig) -> None:
        widths = [4, 5]
        for n in range(1, 32):
            setup.resize(widths[n % 2])
        with pytest.raises(Exception, match="32 epochs still hold messages"):
            setup.outbox.resize("orders", widths[0])


class TestProgress:
    def test_it_tells_where_each_epoch_stands_and_what_lies_in_it(self, setup: ResizeRig) -> None:
        refs = spread(setup)
        setup.outbox.resize("orders", 8)
        assert [s.phase for s in setup.outbox.epochs("orders")] == ["current", "announced"]
        setup.clock.advance(61)
        assert [s.phase for s in setup.outbox.epochs("orders")] == ["draining", "current"]
        setup.deliver(*refs)
        setup.clock.advance(900)
        setup.retire()
        statuses = setup.outbox.epochs("orders")
        assert [s.phase for s in statuses] == ["closed", "current"]
        assert [s.empty for s in statuses] == [True, True]
