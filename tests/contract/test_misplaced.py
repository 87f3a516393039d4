"""Misplaced messages are found and put right, over both engines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import InvalidInput, MessageRef, Misplaced, Queue, Subscription, UnknownTopic
from fairbox.model.clock import milliseconds
from fairbox.model.epochs import shard_number
from fairbox.tables.keys import message_key
from fairbox.tables.message_edits import Edits

from tests.support.outbox_fixture import Setup

if TYPE_CHECKING:
    from fairbox import Message


class PlacingRig(Setup):
    """A setup that puts messages where they do not belong."""

    def put(self, message: Message, epoch: int, shard: int) -> MessageRef:
        """Publish a message, and let its item lie in another shard."""
        right = self.outbox.add(message)
        ref = replace(right, epoch=epoch, shard=shard)
        item = self.outbox.tables.lanes.get(right)
        assert item is not None
        self.engine.put_item(TableName=self.table, Item=item | message_key(ref))
        self.engine.delete_item(TableName=self.table, Key=message_key(right))
        return ref

    def where(self, message: Message) -> MessageRef:
        """Return where a message lies: in one place."""
        (ref,) = [
            s.ref
            for lane in ("ready", "later")
            for s in self.outbox.stored(lane, message.topic)
            if s.ref.id == message.id
        ]
        return ref


@pytest.fixture
def setup(client: Any) -> PlacingRig:
    setup = PlacingRig(client)
    setup.topic()
    return setup


def wrong(message: Message, shards: int = 4) -> int:
    return (shard_number(message.shard_key, shards) + 1) % shards


def test_what_lies_rightly_is_not_found(setup: PlacingRig) -> None:
    setup.outbox.add_many([setup.message(partition_key=f"k{n}") for n in range(10)])
    setup.outbox.add(setup.message(delay=60))
    late = setup.message()
    setup.outbox.resize("orders", 8)
    setup.clock.advance(61)
    setup.outbox.add(late)
    setup.outbox.add_many([setup.message() for _ in range(10)])
    assert list(setup.outbox.misplaced()) == []
    assert setup.outbox.repair_misplaced().moved == ()


@pytest.mark.parametrize("delay", [0, 60])
def test_a_message_of_another_shard_is_found_and_moved(setup: PlacingRig, delay: int) -> None:
    message = setup.message(body=b"x" * 3000, partition_key="k", delay=delay)
    ref = setup.put(message, 0, wrong(message))
    right = replace(ref, shard=shard_number("k", 4))
    assert list(setup.outbox.misplaced("orders")) == [Misplaced(ref, right)]
    dry = setup.outbox.repair_misplaced("orders", dry_run=True)
    assert (dry.moved, dry.dry_run, setup.where(message)) == ((Misplaced(ref, right),), True, ref)
    done = setup.outbox.repair_misplaced()
    assert (done.moved, done.left) == ((Misplaced(ref, right),), ())
    assert setup.where(message) == right
    assert setup.outbox.get(right) == message
    assert list(setup.outbox.misplaced()) == []


def test_a_message_of_a_later_epoch_s_time_is_moved_into_it(setup: PlacingRig) -> None:
    setup.outbox.resize("orders", 8)
    setup.clock.advance(61)
    message = setup.message(partition_key="k")
    setup.put(message, 0, shard_number("k", 4))
    setup.outbox.repair_misplaced()
    ref = setup.where(message)
    assert (ref.epoch, ref.shard) == (1, shard_number("k", 8))


def test_a_message_of_an_epoch_that_nobody_lists_is_moved(setup: PlacingRig) -> None:
    setup.outbox.resize("orders", 8)
    setup.clock.advance(61)
    message = setup.message()
    setup.put(message, 7, 3)
    assert setup.outbox.outstanding_count("orders") == 0
    (found,) = setup.outbox.repair_misplaced().moved
    assert found.ref.epoch == 7
    assert setup.where(message) == found.belongs


def test_what_is_held_stays_and_is_told(setup: PlacingRig) -> None:
    queue = Queue.over(setup.outbox)
    setup.topic("ordered", shards=4, ordering="key")
    refs = []
    for topic in ("orders", "ordered"):
        message = setup.message(topic, partition_key="k")
        refs.append(setup.put(message, 0, wrong(message)))
    setup.clock.advance(3)
    held = [r for _ in range(4) for t in ("orders", "ordered") for r in queue.receive(t, 1, 60)]
    assert len(held) == 2
    result = setup.outbox.repair_misplaced()
    assert (result.moved, set(result.left)) == ((), set(refs))
    queue.ack(r.receipt for r in held)
    assert setup.items() == [] or all(i["sk"]["S"] == "!" for i in setup.items())


def test_the_misplaced_of_a_key_move_in_their_order(setup: PlacingRig) -> None:
    setup.topic("ordered", shards=4, ordering="key")
    messages = [setup.message("ordered", partition_key="k") for _ in range(5)]
    for message in messages:
        setup.put(message, 0, wrong(message))
    moved = [found.belongs.id for found in setup.outbox.repair_misplaced().moved]
    assert moved == [m.id for m in messages]


def test_a_move_is_one_transaction_and_refused_where_the_message_changed(setup: PlacingRig) -> None:
    message = setup.message(partition_key="k")
    ref = setup.put(message, 0, wrong(message))
    setup.outbox.add_subscription(Subscription("orders", "billing", "sqs:http://q/billing"))
    (found,) = setup.outbox.misplaced()
    edits, now = Edits(setup.outbox.tables), milliseconds(setup.clock)
    setup.outbox.cancel([ref])
    assert not edits.relocate(found.ref, found.belongs, now, ordered=False)
    assert setup.outbox.get(found.belongs) is None


def test_other_topics_are_left_alone_and_unknown_ones_refused(setup: PlacingRig) -> None:
    setup.topic("other")
    message = setup.message("other", partition_key="k")
    setup.put(message, 0, wrong(message))
    assert list(setup.outbox.misplaced("orders")) == []
    assert len(list(setup.outbox.misplaced("other"))) == 1
    with pytest.raises(UnknownTopic):
        setup.outbox.repair_misplaced("nothing")
    with pytest.raises(InvalidInput, match="units_a_second"):
        setup.outbox.repair_misplaced(units_a_second=0)


def test_the_scan_keeps_to_its_rate(setup: PlacingRig) -> None:
    setup.outbox.add_many([setup.message(body=setup.rng.randbytes(800)) for _ in range(2500)])
    before = setup.clock.now()
    seen: list[int] = []
    setup.outbox.repair_misplaced(units_a_second=10, progress=seen.append)
    assert seen == sorted(seen)
    assert len(seen) >= 3
    assert setup.clock.now() - before >= 15  # two pages of 900 KB at 8 KB a unit
