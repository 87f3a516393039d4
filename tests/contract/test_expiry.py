"""Expiry over both engines: marks and deletes under the conditions that DynamoDB checks."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox import Queue, Received, RetryPolicy, StaleReceipt
from fairbox.dispatch.maintenance.expiry import Expiry
from fairbox.model.topics import EXPIRY_MARGIN_MS
from fairbox.tables.message_edits import Expiries
from fairbox.tables.shard_rows import ShardRow

from tests.support.outbox_fixture import Setup

KEPT = 600
PAST = KEPT + EXPIRY_MARGIN_MS // 1000 + 1
TOPICS = pytest.mark.parametrize("topic", ["none", "key"])


class Rig(Setup):
    """A setup with topics `none` and `key` of that ordering, whose messages expire."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queue = Queue.over(self.outbox)
        retry = RetryPolicy(max_attempts=9, base=300, cap=300)
        for ordering in ("none", "key"):
            more: Any = {"ordering": ordering, "retry": retry, "message_retention": KEPT}
            self.topic(ordering, shards=1, **more)
        self.expiries = Expiries(self.outbox.tables)

    def send(self, topic: str, count: int = 1, **more: Any) -> list[str]:
        """Send messages of one key, and return their ids."""
        made = [self.message(topic, partition_key="k", **more) for _ in range(count)]
        return [ref.id for ref in self.queue.send_many(made)]

    def receive(self, topic: str, timeout: float = 30) -> Received:
        """Receive one message."""
        found: list[Received] = []
        for _ in range(4):
            found = found or self.queue.receive(topic, 1, timeout)
        return found[0]

    def expire(self, topic: str, seconds: float = 0) -> int:
        """Let time pass, let messages expire, and return how many did."""
        self.clock.advance(seconds)
        tables = self.outbox.tables
        tables.topic_cache.refresh()
        rows = [ShardRow(topic, 0, 0, ready=1, later=1, next_check=1)]
        expiry = Expiry(tables, self.clock)
        expired, _ = expiry.run(rows, deadline=self.clock.now() + 25)
        return expired.get(topic, 0)

    def lying(self) -> list[str]:
        """Return the ids of the messages in the outbox."""
        keys = [i["sk"]["S"] for i in self.items()]
        return sorted(k.rpartition("#")[2] for k in keys if k != "!")


@pytest.fixture
def setup(client: Any) -> Rig:
    return Rig(client)


@TOPICS
def test_what_is_older_than_its_retention_leaves(setup: Rig, topic: str) -> None:
    setup.send(topic, 120)
    setup.clock.advance(PAST)
    young = setup.send(topic, 2)
    assert setup.expire(topic) == 120
    assert setup.lying() == young
    assert setup.receive(topic).message.id == young[0]


def test_delayed_messages_leave_by_their_due_time(setup: Rig) -> None:
    setup.send("none", 3, delay=100)
    (late,) = setup.send("none", delay=1000)
    assert setup.expire("none", PAST) == 0
    assert setup.expire("none", 100) == 3
    assert setup.lying() == [late]


@TOPICS
def test_a_held_message_stays_until_it_comes_back(setup: Rig, topic: str) -> None:
    (held_id,) = setup.send(topic)
    held = setup.receive(topic, timeout=2 * PAST)
    assert setup.expire(topic, PAST) == 0
    assert setup.lying() == [held_id]
    setup.queue.nack(held.receipt, delay=600)
    assert setup.expire(topic) == 1
    with pytest.raises(StaleReceipt):
        setup.queue.extend(held.receipt, 30)


def test_the_key_of_an_expired_message_is_free(setup: Rig) -> None:
    setup.send("key")
    setup.queue.nack(setup.receive("key").receipt, delay=7200)
    setup.clock.advance(PAST)
    (second,) = setup.send("key")
    assert setup.queue.receive("key") == []
    assert setup.expire("key") == 1
    setup.clock.advance(2.1)  # a process remembers the shard's row for 2 s
    assert setup.receive("key").message.id == second


@TOPICS
def test_a_message_that_changed_since_it_was_read_is_not_marked(setup: Rig, topic: str) -> None:
    (first,) = setup.send(topic)
    shard = (topic, 0, 0)
    now = round(setup.clock.now() * 1000)
    page = setup.expiries.page("ready", shard, until=now, limit=9, after=None)
    row = setup.outbox.tables.key_claims.get(shard)
    held = setup.receive(topic)
    if topic == "key":
        assert not setup.expiries.mark_in_row(page.messages, shard, row)
    else:
        assert setup.expiries.mark(page.messages) == []
    setup.queue.ack([held.receipt])
    assert first not in setup.lying()


@TOPICS
def test_only_what_is_marked_is_deleted(setup: Rig, topic: str) -> None:
    (sent,) = setup.send(topic)
    now = round(setup.clock.now() * 1000)
    page = setup.expiries.page("ready", (topic, 0, 0), until=now, limit=9, after=None)
    assert setup.expiries.delete(page.messages) == 0
    assert setup.lying() == [sent]
