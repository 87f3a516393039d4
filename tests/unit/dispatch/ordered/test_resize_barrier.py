"""Ordered topics across a resize: a key goes on in its new shard where its older one is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, RetryPolicy
from fairbox.dispatch.ordered.barriers import ResizeBarrier
from fairbox.dispatch.ports import TAKEN
from fairbox.model.epochs import shard_number

from tests.support.application import REFUSED, App

if TYPE_CHECKING:
    from fairbox import MessageRef
    from fairbox.dispatch.ports import Outcome
    from fairbox.tables.stored_messages import StoredMessage


def message(app: App, key: str, body: bytes = b"x") -> Message:
    return Message(topic="orders", body=body, partition_key=key, id=app.ids.next())


def publish(app: App, key: str, count: int = 1, body: bytes = b"x") -> list[MessageRef]:
    return [app.outbox.add(message(app, key, body)) for _ in range(count)]


def cut(app: App, shards: int, seconds: float = 62.0) -> None:
    app.outbox.resize("orders", shards)
    app.clock.advance(seconds)


def keys_of(shard: int, shards: int, count: int = 3) -> list[str]:
    found = (f"key-{n}" for n in range(1000))
    return [key for key in found if shard_number(key, shards) == shard][:count]


class TestPushed:
    @pytest.fixture
    def app(self) -> App:
        return App("one", shards=2, ordering="key", retry=RetryPolicy(cap=20))

    def test_a_key_waits_in_its_new_shard_while_the_old_one_lists_it(self, app: App) -> None:
        app.at("one").answer = lambda _: REFUSED
        (first,) = publish(app, "stuck")
        app.run()
        cut(app, 8)
        app.at("one").answer = refuses("stuck")
        (second,) = publish(app, "stuck")
        others = publish(app, "another") + publish(app, "third")
        app.run(seconds=4)
        assert set(app.at("one").ids) == {r.id for r in others}
        app.at("one").answer = takes
        app.run(seconds=120)
        assert app.at("one").ids[len(others) :] == [first.id, second.id]
        assert app.lying() == []

    def test_all_keys_wait_until_two_seconds_behind_the_cut(self, app: App) -> None:
        now = app.clock.now()
        cut(app, 8, seconds=60.5)
        (ref,) = publish(app, "k")
        app.run()
        assert ref.epoch == 1
        assert app.at("one").ids == []
        app.run(seconds=3)
        assert app.at("one").ids == [ref.id]
        assert app.clock.now() - now < 65

    def test_what_is_added_late_to_the_old_epoch_is_sent_at_once(self, app: App) -> None:
        late = message(app, "late")
        cut(app, 8)
        publish(app, "late")
        app.run(seconds=5)
        ref = app.outbox.add(late)
        app.run()
        assert (ref.epoch, app.at("one").ids[-1]) == (0, late.id)

    def test_a_shard_that_is_settled_reads_no_older_shard_again(self, app: App) -> None:
        cut(app, 8)
        (ref,) = publish(app, "k")
        app.run(seconds=1)
        row = next(r for r in app.tables.rows.get_many([("orders", 1, ref.shard)]))
        assert row.settled
        publish(app, "k")
        app.run(seconds=1)  # its first visit and marking are done
        app.meter.reset()
        publish(app, "k")
        app.relay()
        app.visit()
        reads = dict(app.meter.reading().calls)
        assert reads.get("query") == 1
        assert len(app.at("one").ids) == 3

    def test_a_new_shard_looks_into_those_alone_that_share_its_keys(self, app: App) -> None:
        app.add_topic("wide", "one", shards=8, ordering="key")
        app.outbox.resize("wide", 32)
        app.clock.advance(62)
        asked: list[tuple[str, int, int]] = []
        read = app.tables.lanes.page

        def noting(lane: Any, *shard: Any, **more: Any) -> Any:
            asked.append(shard)
            return read(lane, *shard, **more)

        app.tables.lanes.page = noting  # type: ignore[method-assign]
        app.tables.topic_cache.refresh()
        state = app.tables.topic_cache.get("wide")
        assert state is not None
        barrier = ResizeBarrier(app.tables, app.clock)
        assert not barrier.waits(state, ("wide", 1, 13), settled=False)
        assert asked == [("wide", 0, 5)]
        assert not barrier.waits(state, ("wide", 1, 21), settled=False)
        assert asked == [("wide", 0, 5)]  # it was seen empty
        assert not barrier.waits(state, ("wide", 1, 14), settled=True)
        assert len(asked) == 1

    def test_keys_of_merged_shards_wait_for_each_of_them(self, app: App) -> None:
        app.add_topic("wide", "one", shards=4, ordering="key", retry=RetryPolicy(cap=20))
        held = [k for shard in range(4) for k in keys_of(shard, 4, 1)]
        app.at("one", "wide").answer = lambda _: REFUSED
        old = [app.outbox.add(message_of(app, "wide", key)) for key in held]
        app.run()
        app.outbox.resize("wide", 1)
        app.clock.advance(62)
        new = [app.outbox.add(message_of(app, "wide", key)) for key in held]
        free = app.outbox.add(message_of(app, "wide", "free"))
        app.at("one", "wide").answer = refuses(*held)
        app.run(seconds=3)
        assert app.at("one", "wide").ids == [free.id]
        app.at("one", "wide").answer = takes
        app.run(seconds=120)
        ids = app.at("one", "wide").ids
        assert all(ids.index(a.id) < ids.index(b.id) for a, b in zip(old, new, strict=True))
        assert len(ids) == 9

    def test_a_blocked_shard_does_not_multiply_its_doorbells(self, app: App) -> None:
        app.at("one").answer = lambda _: REFUSED
        publish(app, "stuck")
        app.run()
        cut(app, 8)
        for _ in range(20):
            publish(app, "stuck")
            app.relay()
            app.visit()
        ours = [d for d in app.doorbells.later if d.epoch == 1]
        assert len(ours) <= 2

    def test_a_key_that_died_lets_its_followers_go_on(self) -> None:
        app = App("one", shards=2, ordering="key")  # three attempts
        app.at("one").answer = refuses_body(b"poison")
        publish(app, "k", body=b"poison")
        app.run()
        cut(app, 8)
        (ref,) = publish(app, "k")
        app.run(seconds=300)
        assert app.at("one").ids == [ref.id]
        assert len(app.dead()) == 1

    def test_a_key_that_waits_for_its_dead_letter_waits_in_its_new_shard_too(self) -> None:
        app = App("one", shards=2, ordering="key", on_dead="block")  # three attempts
        app.at("one").answer = refuses_body(b"poison")
        (poison,) = publish(app, "k", body=b"poison")
        app.run(seconds=60)
        assert len(app.dead()) == 1
        cut(app, 8)
        (follower,) = publish(app, "k")
        (free,) = publish(app, "free")
        app.run(seconds=120)
        assert app.at("one").ids == [free.id]
        app.at("one").answer = takes
        app.outbox.redrive("orders")
        app.run(seconds=200)
        assert app.at("one").ids == [free.id, poison.id, follower.id]

    def test_what_waits_is_held_in_the_row_and_read_one_by_one(self, app: App) -> None:
        app.at("one").answer = lambda _: REFUSED
        publish(app, "stuck")
        app.run()
        cut(app, 8)
        app.at("one").answer = refuses("stuck")
        (waiting, *_) = publish(app, "stuck", 30)
        app.run(seconds=4)
        row, holds = app.tables.deferred_keys.get(("orders", 1, waiting.shard))
        assert row is not None
        assert not row.settled
        assert [entry.id for entry in holds.entries] == [waiting.id]


def takes(_: StoredMessage) -> Outcome:
    return TAKEN


def refuses(*keys: str) -> Any:
    return lambda m: REFUSED if m.message.partition_key in keys else takes(m)


def refuses_body(body: bytes) -> Any:
    return lambda m: REFUSED if m.message.body == body else takes(m)


def message_of(app: App, topic: str, key: str) -> Message:
    return Message(topic=topic, body=b"x", partition_key=key, id=app.ids.next())


class TestPulled:
    @pytest.fixture
    def app(self) -> App:
        return App(shards=2, ordering="key")

    def receive(self, app: App, wanted: int = 10) -> dict[str, str]:
        """Ask every shard; return receipts by id."""
        found = {}
        for _ in range(12):
            for received in app.queue.receive("orders", wanted, 300):
                found[received.message.id] = received.receipt
        return found

    def test_messages_of_a_key_in_the_old_epoch_are_received_first(self, app: App) -> None:
        old = publish(app, "k", 2)
        cut(app, 8)
        new = publish(app, "k", 2)
        (free,) = publish(app, "free")
        app.clock.advance(3)
        order = []
        first = self.receive(app)
        assert set(first) == {old[0].id, free.id}
        app.queue.ack(first.values())
        for _ in range(3):
            app.clock.advance(2)
            (found,) = self.receive(app).items()
            order.append(found[0])
            app.queue.ack([found[1]])
        assert order == [old[1].id, new[0].id, new[1].id]

    def test_all_keys_wait_until_two_seconds_behind_the_cut(self, app: App) -> None:
        cut(app, 8, seconds=60.5)
        (ref,) = publish(app, "k")
        assert self.receive(app) == {}
        app.clock.advance(3)
        assert set(self.receive(app)) == {ref.id}

    def test_one_stuck_key_stops_no_other_though_it_has_many_followers(self, app: App) -> None:
        publish(app, "stuck")
        held = self.receive(app)
        assert len(held) == 1
        cut(app, 2 * 4)
        publish(app, "stuck", 60)
        shard = shard_number("stuck", 8)
        others = [publish(app, key)[0] for key in keys_of(shard, 8, 8) if key != "stuck"]
        app.clock.advance(3)
        found: set[str] = set()
        for _ in range(10):
            found |= set(self.receive(app))
            app.clock.advance(2)
        assert found == {r.id for r in others}

    def test_an_old_backlog_of_held_keys_is_told_by_the_row_not_by_reading_it(
        self, app: App
    ) -> None:
        publish(app, "stuck", 300)
        app.clock.advance(3)
        for _ in range(12):
            self.receive(app)
            app.clock.advance(1)
        cut(app, 8)
        publish(app, "stuck")
        shard = shard_number("stuck", 8)
        (other, *_) = [publish(app, key)[0] for key in keys_of(shard, 8, 3) if key != "stuck"]
        app.clock.advance(3)
        app.meter.reset()
        assert other.id in self.receive(app)
        assert app.meter.reading().rru < 80
