"""Pulled topics beside the stream: late commits, delays, the archive, counts, repair."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, MessageRef, Queue, RetryPolicy, Topic
from fairbox.model.ids import IdGenerator
from fairbox.model.topics import PULL

from tests.support.application import App

if TYPE_CHECKING:
    from fairbox import Received

TOPICS = pytest.mark.parametrize("topic", ["none", "key"])


class Pulled(App):
    """The application with pulled topics `none` and `key` of one shard."""

    def __init__(self) -> None:
        super().__init__("billing")
        for ordering in ("none", "key"):
            self.add_topic(ordering, ordering=ordering, retry=RetryPolicy(max_attempts=2))

    def send(self, topic: str, count: int = 1, **more: Any) -> list[MessageRef]:
        """Send messages, and let the stream be read three seconds later."""
        refs = self.add(count, topic, **more)
        self.clock.advance(3)
        self.relay()
        self.mark()
        return refs

    def receive(self, topic: str, timeout: float = 3000) -> list[Received]:
        """Receive until nothing comes."""
        found: list[Received] = []
        while batch := self.queue.receive(topic, 10, timeout):
            found += batch
        return found

    def late(self, topic: str, seconds: float) -> Message:
        """Return a message whose transaction takes so many seconds to commit."""
        ids = IdGenerator(self.clock, random.Random(7).getrandbits)
        message = Message(topic=topic, body=b"late", id=ids.next(), partition_key="late")
        self.clock.advance(seconds)
        return message


@TOPICS
def test_what_commits_behind_younger_messages_is_received_when_the_relay_saw_it(
    topic: str,
) -> None:
    app = Pulled()
    late = app.late(topic, 0)
    app.clock.advance(1)
    app.send(topic, 20)
    assert len(app.receive(topic)) == 20
    assert app.receive(topic) == []
    app.outbox.add(late)
    assert app.receive(topic) == []  # its place was passed
    app.relay()
    app.clock.advance(2.1)  # a process remembers the row of an ordered shard for 2 s
    assert [r.message.id for r in app.receive(topic)] == [late.id]


@TOPICS
def test_what_commits_a_moment_after_its_id_is_never_passed(topic: str) -> None:
    app = Pulled()
    app.clock.advance(1)
    late = app.late(topic, 0.2)
    app.add(20, topic)
    app.clock.advance(0.2)
    assert len(app.receive(topic)) == 20
    app.outbox.add(late)
    app.clock.advance(2.1)  # a process remembers the row of an ordered shard for 2 s
    assert [r.message.id for r in app.receive(topic)] == [late.id]


def test_without_the_relay_it_is_received_within_a_minute() -> None:
    app = Pulled()
    late = app.late("none", 0)
    app.clock.advance(1)
    app.send("none", 20)
    app.receive("none")
    app.outbox.add(late)
    app.clock.advance(60)
    assert [r.message.id for r in app.receive("none")] == [late.id]


def test_a_delayed_message_that_no_queue_sent_is_received_when_it_is_due() -> None:
    app = Pulled()
    app.receive("none")
    message = Message(topic="none", body=b"", delay=20, id=app.ids.next())
    app.outbox.add(message)
    app.relay()
    app.clock.advance(20)
    assert [r.message.id for r in app.receive("none")] == [message.id]


def test_the_relay_reads_nothing_for_messages_that_came_in_time() -> None:
    app = Pulled()
    app.clock.set(1_760_000_000.2)
    app.add(50, "none")
    app.clock.advance(0.5)
    app.tables.topic_cache.refresh()
    app.tables.topic_cache.get("none")
    app.relay()
    app.meter.reset()
    app.add(50, "none")
    app.meter.reset()
    app.relay()
    assert app.meter.reading().wru == 0
    assert app.meter.reading().rru <= 1  # the version of the topics


def test_the_relay_costs_a_unit_where_a_message_came_late() -> None:
    app = Pulled()
    app.clock.set(1_760_000_000.2)
    app.receive("none")
    late = app.late("none", 2)
    app.relay()
    app.outbox.add(late)
    app.tables.topic_cache.refresh()
    app.meter.reset()
    app.relay()
    assert app.meter.reading().wru == 0
    assert app.meter.reading().rru == 1.5  # hint row, and the version of the topics


@TOPICS
def test_the_archive_tells_of_delivery_failure_and_death(topic: str) -> None:
    app = Pulled()
    good, bad = app.send(topic, 2)
    first = {r.message.id: r.receipt for r in app.receive(topic)}
    app.queue.ack(first[good.id])
    app.queue.nack(first[bad.id], 0, "why")
    (again,) = app.receive(topic)
    app.queue.nack(again.receipt, 0, "why again")
    app.mark()
    (delivered,) = app.events("delivered")
    assert (delivered["id"], delivered["subscription"], delivered["attempt"]) == (good.id, PULL, 1)
    assert [(e["attempt"], e["reason"]) for e in app.events("failed")] == [
        (1, "why"),
        (2, "why again"),
    ]
    (dead,) = app.events("dead")
    assert (dead["id"], dead["subscription"]) == (bad.id, PULL)
    assert "why again" in dead["reason"]
    assert {e["id"] for e in app.events("added")} == {good.id, bad.id}
    (ledger,) = app.outbox.delivered(topic)
    assert (ledger.id, ledger.subscription, ledger.attempts) == (good.id, PULL, 1)


def test_the_attempt_of_a_delivery_is_how_often_it_was_received() -> None:
    app = Pulled()
    app.send("none")
    app.receive("none", timeout=10)
    app.clock.advance(60)
    (again,) = app.receive("none")
    app.queue.ack(again.receipt)
    app.mark()
    assert [e["attempt"] for e in app.events("delivered")] == [2]
    assert [(e["attempt"], e["reason"]) for e in app.events("failed")] == [
        (1, "not acknowledged in time")
    ]


@TOPICS
def test_a_purge_is_told_as_such_and_counted(topic: str) -> None:
    app = Pulled()
    app.send(topic, 5)
    assert app.queue.stats(topic).ready == 5
    app.queue.purge(topic, reason="tests")
    app.mark()
    assert {e["reason"] for e in app.events("purged")} == {"tests"}
    assert len(app.events("purged")) == 5
    assert app.events("delivered") == []
    assert app.queue.stats(topic).ready == 0


def test_a_message_that_was_moved_is_added_once() -> None:
    app = Pulled()
    (ref,) = app.send("none", delay=5000)
    assert app.queue.stats("none").later == 1
    app.queue.reschedule(ref)
    app.mark()
    stats = app.queue.stats("none")
    assert (stats.ready, stats.later, stats.outstanding) == (1, 0, 1)
    assert len(app.events("added")) == 1
    (received,) = app.receive("none")
    app.queue.ack(received.receipt)
    app.mark()
    assert [e["id"] for e in app.events("delivered")] == [ref.id]


def test_a_delayed_message_of_a_pushed_topic_may_be_sent_now() -> None:
    app = Pulled()
    (ref,) = app.send("orders", delay=5000)
    app.queue.reschedule(ref)
    app.run()
    assert app.at("billing").ids == [ref.id]


@TOPICS
def test_what_was_marked_as_dead_and_not_buried_is_finished_by_a_receive(topic: str) -> None:
    app = Pulled()
    (ref,) = app.send(topic)
    app.queue.nack(app.receive(topic)[0].receipt)
    (last,) = app.receive(topic)
    delete = app.engine.delete_item
    app.engine.__dict__["delete_item"] = lambda **_: {}
    app.queue.nack(last.receipt, 0, "why")
    app.engine.__dict__["delete_item"] = delete
    assert len(app.lying()) == 1
    app.clock.advance(70)
    assert app.receive(topic) == []
    assert app.lying() == []
    assert [letter.id for letter in app.outbox.dead(topic)] == [ref.id]


def test_an_acknowledgement_that_a_crash_cut_off_is_finished_by_the_next_receive() -> None:
    app = Pulled()
    refs = app.send("key", 2, partition_key="k")
    (first,) = app.receive("key")
    delete = app.engine.batch_write_item
    app.engine.__dict__["batch_write_item"] = lambda **_: {"UnprocessedItems": {}}
    app.queue.ack(first.receipt)
    app.engine.__dict__["batch_write_item"] = delete
    app.queue = Queue.over(app.outbox)  # another process
    assert len(app.lying()) == 2
    assert app.receive("key") == []  # whoever acknowledged may be deleting it
    app.clock.advance(2)
    assert [r.message.id for r in app.receive("key")] == [refs[1].id]
    assert len(app.lying()) == 1


@TOPICS
def test_counting_and_repair_leave_claims_alone(topic: str) -> None:
    app = Pulled()
    app.send(topic, 4)
    held = app.receive(topic)
    for _ in range(3):
        app.run(3600)
        app.repair()
    app.queue.ack(r.receipt for r in held)
    app.mark()
    assert app.lying() == []
    row = app.row(topic)
    assert (row.ready, row.dead, row.next_check) == (0, 0, None)


def test_a_topic_of_many_hint_rows_is_received_whole() -> None:
    app = Pulled()
    app.outbox.create_topic(Topic("wide", shards=40))
    app.send("wide", 100)
    seen = set()
    for _ in range(200):
        seen |= {r.message.id for r in app.queue.receive("wide", 10, 3000)}
    assert len(seen) == 100
