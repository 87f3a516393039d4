"""Epochs: whatever is resized when, and however old a producer's copy is, everybody agrees."""

from __future__ import annotations

import random
from contextlib import suppress

import hypothesis.strategies as st
from fairbox import Message, MessageRef, Outbox, PartitionedQueue, ResizeUnderway, Topic
from fairbox.dispatch.maintenance.epoch_retirement import Retiring
from fairbox.model.epochs import (
    Epoch,
    announced,
    closed,
    epoch_at,
    partition_number,
    shard_number,
    sharing,
    without,
)
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication
from hypothesis import given, settings

VIEWS = 3
REPEATED_MS = 600_000  # how long a transaction may be repeated under its token

resizes = st.tuples(st.just("resize"), st.integers(1, 12))
waits = st.tuples(st.just("wait"), st.sampled_from((1, 9, 29, 31, 62, 400)))
sends = st.tuples(st.just("send"), st.integers(0, VIEWS - 1))
keeps = st.tuples(st.just("keep"), st.integers(0, VIEWS - 1))  # made now, added later
retires = st.tuples(st.just("retire"), st.just(0))
steps = st.lists(st.one_of(resizes, waits, sends, sends, keeps, retires), min_size=5, max_size=30)


class World:
    """An operator and producers with copies of their own, over one table."""

    def __init__(self) -> None:
        self.app = MemoryApplication()
        self.views = [self.another() for _ in range(VIEWS)]
        self.operator = self.another()
        self.refs: list[tuple[Message, MessageRef]] = []

    def another(self) -> Outbox:
        app = self.app
        return Outbox(
            app.client, table=OUTBOX, deliveries_table=DELIVERIES, clock=app.clock, rng=app.rng
        )

    @property
    def now(self) -> int:
        return int(self.app.clock.now() * 1000)

    def message(self, topic: str) -> Message:
        key = f"k{len(self.refs) % 7}"
        return Message(topic=topic, body=b"x", partition_key=key, id=self.app.ids.next())


class TestTopics:
    @settings(max_examples=20, deadline=None)
    @given(steps)
    def test_every_reader_finds_every_message_and_adding_one_again_finds_it(
        self, steps: list[tuple[str, int]]
    ) -> None:
        world = World()
        world.operator.create_topic(Topic("orders", shards=4))
        kept: list[Message] = []
        for step, number in steps:
            if step == "resize":
                with suppress(ResizeUnderway):
                    world.operator.resize("orders", number)
            elif step == "wait":
                world.app.clock.advance(number)
            elif step == "retire":
                retiring = Retiring(world.operator.tables, world.app.clock)
                retiring.run(deadline=world.app.clock.now() + 600)
            elif step == "keep":
                kept.append(world.message("orders"))
            else:
                for message in [world.message("orders"), *kept[:1]]:
                    world.refs.append((message, world.views[number].add(message)))
                kept = kept[1:]
        self.check(world)

    def check(self, world: World) -> None:
        found = {message.id for message in world.another().outstanding("orders")}
        assert found == {message.id for message, _ in world.refs}
        assert world.another().outstanding_count("orders") == len(world.refs)
        for message, ref in world.refs:
            assert world.another().get(ref) == message
            if world.now - message.time.timestamp() * 1000 < REPEATED_MS:
                assert {view.add(message) for view in world.views} == {ref}
        received: set[str] = set()
        for _ in range(60):
            received |= {one.message.id for one in world.app.queue.receive("orders", 100, 3600)}
        assert received == found


class TestPartitions:
    @settings(max_examples=40, deadline=None)
    @given(steps)
    def test_producers_with_copies_of_any_age_send_a_message_to_one_partition(
        self, steps: list[tuple[str, int]]
    ) -> None:
        world = World()
        PartitionedQueue("email", 4).create(world.operator, shards=1, ordering="key")
        queues = [PartitionedQueue.registered(view, "email") for view in world.views]
        made: list[Message] = []
        for step, number in steps:
            if step == "resize":
                with suppress(ResizeUnderway):
                    world.operator.resize_queue("email", number)
            elif step == "wait":
                world.app.clock.advance(number)
            elif step in ("send", "keep"):
                message = world.message("email")
                made.append(message)
                topics = {queue.route(message).topic for queue in queues}
                known = queues[number].route_by_key(message.partition_key or "")["topic"]
                assert topics == {known}
        widths = world.operator.topic("email").width_at
        for message in made:
            recent = world.now - message.time.timestamp() * 1000 < REPEATED_MS
            topics = {queue.route(message).topic for queue in queues}
            assert len(topics) == 1
            count = widths(int(message.time.timestamp() * 1000)).shards
            name = queues[0].names[partition_number(message.partition_key or "", count)]
            assert not recent or topics == {name}
            assert topics <= set(queues[0].names)


epoch_lists = st.lists(
    st.tuples(st.integers(1, 50), st.integers(1, 100_000)), min_size=0, max_size=8
)


class TestArithmetic:
    @given(epoch_lists, st.integers(0, 1_000_000), st.data())
    def test_removing_a_closed_epoch_changes_no_id_s_epoch(
        self, steps: list[tuple[int, int]], ms: int, data: st.DataObject
    ) -> None:
        epochs: tuple[Epoch, ...] = (Epoch(0, 4, 0),)
        for shards, later in steps:
            epochs = announced(epochs, shards, epochs[-1].since + later)
        numbers = [epoch.number for epoch in epochs[:-1]]
        if not numbers:
            return
        gone = data.draw(st.sampled_from(numbers))
        shut = closed(epochs, gone, 1)
        assert epoch_at(shut, ms) == epoch_at(without(epochs, gone), ms)

        if epoch_at(epochs, ms).number != gone:
            assert epoch_at(shut, ms) == epoch_at(epochs, ms)

    @given(st.integers(1, 64), st.integers(1, 64), st.text(max_size=20))
    def test_a_key_s_old_shard_is_among_those_that_its_new_one_looks_into(
        self, before: int, after: int, key: str
    ) -> None:
        assert shard_number(key, before) in sharing(shard_number(key, after), after, before)
        assert partition_number(key, before) in sharing(partition_number(key, after), after, before)

    def test_a_new_shard_looks_into_no_more_than_it_must(self) -> None:
        rng = random.Random(1)
        for before, after in ((8, 32), (32, 8), (6, 4), (5, 7)):
            looked = {
                (shard_number(key, after), shard_number(key, before))
                for key in (str(rng.random()) for _ in range(5000))
            }
            wanted = {(n, old) for n in range(after) for old in sharing(n, after, before)}
            assert looked == wanted
