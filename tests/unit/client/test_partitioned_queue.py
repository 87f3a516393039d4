"""Partitioned queues: names, routing, registration, consumers, operations over all partitions."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import (
    InvalidInput,
    Message,
    MessageRef,
    Partition,
    PartitionedQueue,
    Queue,
    Subscription,
    Topic,
    TopicConflict,
    TopicIsPushed,
    UnknownTopic,
)
from fairbox.consumer import group
from fairbox.consumer.counts import ConsumerCounts
from fairbox.model.epochs import partition_number, shard_number
from fairbox.testing.application import MemoryApplication

from tests.support.scripted_queue import Lines, ScriptedQueue

if TYPE_CHECKING:
    from collections.abc import Callable

EMAILS = PartitionedQueue("email", partitions=4)
ABC = ["a", "c", "b"]
NAMED = PartitionedQueue("m", partitions=ABC)


@pytest.fixture
def app() -> MemoryApplication:
    return MemoryApplication()


@pytest.fixture
def queue(app: MemoryApplication) -> Queue:
    return Queue.over(app.outbox)


def mail(app: MemoryApplication, key: str | None, body: bytes = b"x", **more: Any) -> Message:
    return Message(topic="email", body=body, partition_key=key, id=app.ids.next(), **more)


class TestNames:
    def test_partition_0_keeps_the_logical_name(self) -> None:
        assert EMAILS.names == ("email", "email__p1", "email__p2", "email__p3")

    def test_one_partition_is_a_plain_topic(self) -> None:
        assert PartitionedQueue("email").names == ("email",)
        assert PartitionedQueue("email").route_by_key("k")["topic"] == "email"

    @pytest.mark.parametrize("partitions", [0, -1, 1001, True, 2.0, "4", None])
    def test_a_number_of_partitions_that_is_none_is_refused(self, partitions: Any) -> None:
        with pytest.raises(InvalidInput) as refused:
            PartitionedQueue("email", partitions)
        assert refused.value.field == "partitions"

    @pytest.mark.parametrize("name", ["", "a b", "-x", "a" * 121, 7])
    def test_a_name_that_no_topic_may_have_is_refused(self, name: Any) -> None:
        with pytest.raises(InvalidInput):
            PartitionedQueue(name, 4)

    def test_a_name_leaves_room_for_the_last_partition_s_suffix(self) -> None:
        assert len(PartitionedQueue("a" * 114, 1000).names[-1]) == 120
        with pytest.raises(InvalidInput, match="name: expected at most 114 characters with 1000"):
            PartitionedQueue("a" * 115, 1000)
        assert PartitionedQueue("a" * 120, 1).names == ("a" * 120,)

    def test_a_queue_is_a_set_of_names_that_can_be_compared(self, app: MemoryApplication) -> None:
        EMAILS.create(app.outbox)
        found = [PartitionedQueue.registered(app.outbox, "email") for _ in range(2)]
        alike = [[EMAILS, PartitionedQueue("email", 4)], found, [NAMED, PartitionedQueue("m", ABC)]]
        others = [
            *(one for one, _ in alike),
            PartitionedQueue("email", 3),
            PartitionedQueue("m", 3),
        ]
        assert all(one == two and hash(one) == hash(two) for one, two in alike)
        assert len(set(others)) == len(others)
        assert EMAILS != "email"
        assert (len(NAMED), list(NAMED)) == (3, ABC)
        assert (len(found[0]), "email__p3" in found[0], "email__p4" in found[0]) == (4, True, False)
        assert list(map(repr, [EMAILS, NAMED, found[0]])) == [
            "PartitionedQueue('email', partitions=4)",
            "PartitionedQueue('m', partitions=['a', 'c', 'b'])",
            "PartitionedQueue.registered(outbox, 'email')",
        ]

    @pytest.mark.parametrize(
        "names", [[], ["a", "a"], ["a b"], ["a", 1], {"a"}, b"ab", ["a"] * 1001]
    )
    def test_names_that_are_none_are_refused(self, names: Any) -> None:
        with pytest.raises(InvalidInput) as refused:
            PartitionedQueue("email", names)
        assert refused.value.field == "partitions"


class TestRouting:
    def test_a_key_goes_where_the_published_hash_says(self) -> None:
        for n in range(200):
            route = EMAILS.route_by_key(f"customer-{n}")
            number = partition_number(f"customer-{n}", 4)
            assert route == {"topic": EMAILS.names[number], "partition_key": f"customer-{n}"}

    def test_the_route_of_a_key_is_what_a_message_takes(self) -> None:
        message = Message(body=b"x", **EMAILS.route_by_key("customer-42"))
        assert message.topic == "email__p2"  # 2 of 4, as docs/reference/hashing.md has it
        assert message.partition_key == "customer-42"

    def test_an_index_is_taken_modulo_the_partitions(self) -> None:
        assert [EMAILS.route_by_index(n)["topic"] for n in (0, 3, 4, 7)] == [
            "email", "email__p3", "email", "email__p3",
        ]  # fmt: skip

    @pytest.mark.parametrize("index", [-1, True, 1.0, "1"])
    def test_an_index_that_is_none_is_refused(self, index: Any) -> None:
        with pytest.raises(InvalidInput, match="index"):
            EMAILS.route_by_index(index)

    @pytest.mark.parametrize("key", [None, 7, "k" * 257, "a\nb"])
    def test_a_key_that_is_none_is_refused(self, key: Any) -> None:
        with pytest.raises(InvalidInput, match="partition_key"):
            EMAILS.route_by_key(key)

    def test_the_empty_key_is_a_key(self) -> None:
        assert EMAILS.route_by_key("") == {"topic": "email__p1", "partition_key": ""}

    def test_a_message_is_routed_under_its_own_id(self) -> None:
        first = Message(topic="email", body=b"x", partition_key="k", headers={"a": "b"}, delay=5)
        routed = EMAILS.route(first)
        assert routed == Message(
            topic=EMAILS.route_by_key("k")["topic"],
            body=b"x",
            partition_key="k",
            headers={"a": "b"},
            delay=5,
            id=first.id,
        )
        after = Message(topic="email", body=b"x", partition_key="k", after=first.id)
        assert EMAILS.route(after).id == after.id

    def test_a_key_and_an_index_choose_names_in_their_order(self) -> None:
        assert [NAMED.route_by_index(n)["topic"] for n in range(4)] == ["a", "c", "b", "a"]
        for n in range(20):
            assert NAMED.route_by_key(f"k{n}")["topic"] == ABC[partition_number(f"k{n}", 3)]

    def test_messages_without_a_key_spread_by_their_ids(self) -> None:
        made = Counter(EMAILS.route(Message(topic="email", body=b"x")).topic for _ in range(2000))
        assert set(made) == set(EMAILS.names)
        assert min(made.values()) > 350

    def test_a_message_of_another_topic_is_not_routed(self) -> None:
        with pytest.raises(InvalidInput, match="topic: expected 'email'"):
            EMAILS.route(Message(topic="email__p1", body=b"x"))

    @pytest.mark.parametrize("width", [2, 4, 8])
    def test_keys_of_one_partition_use_all_shards_though_width_is_the_shard_count(
        self, width: int
    ) -> None:
        keys = [f"key-{n}" for n in range(4000)]
        wide = PartitionedQueue("q", width)
        of_first = [k for k in keys if wide.route_by_key(k)["topic"] == "q"]
        shards = Counter(shard_number(key, width) for key in of_first)
        assert len(shards) == width
        mean = len(of_first) / width
        assert all(0.6 * mean < count < 1.4 * mean for count in shards.values())


class TestRegistration:
    def test_creating_registers_every_topic_and_again_changes_settings_only(
        self, app: MemoryApplication
    ) -> None:
        EMAILS.create(app.outbox, shards=2, ordering="key")
        EMAILS.create(app.outbox, shards=2, ordering="key", retention=3600)
        states = {s.topic.name: s.topic for s in app.outbox.topics()}
        assert set(states) == set(EMAILS.names)
        for number, name in enumerate(EMAILS.names):
            assert states[name].partition == Partition("email", number, 4)
            assert (states[name].shards, states[name].ordering) == (2, "key")
            assert states[name].retention == 3600

    def test_producers_and_consumers_find_the_registered_width(
        self, app: MemoryApplication
    ) -> None:
        EMAILS.create(app.outbox)
        assert PartitionedQueue.registered(app.outbox, "email").names == EMAILS.names

    def test_a_topic_that_is_no_logical_name_is_not_found_as_one(
        self, app: MemoryApplication
    ) -> None:
        EMAILS.create(app.outbox)
        app.outbox.create_topic(Topic("plain__p1"))
        for name in ("email__p1", "plain__p1"):
            with pytest.raises(TopicConflict, match="not the logical name"):
                PartitionedQueue.registered(app.outbox, name)
        with pytest.raises(UnknownTopic):
            PartitionedQueue.registered(app.outbox, "nothing")

    @pytest.mark.parametrize("partitions", [1, 2, 3, 5])
    def test_another_width_is_refused_and_creates_nothing(
        self, app: MemoryApplication, partitions: int
    ) -> None:
        EMAILS.create(app.outbox)
        with pytest.raises(TopicConflict, match="is partition 0 of 4 of queue 'email'; resize"):
            PartitionedQueue("email", partitions).create(app.outbox)
        assert [s.topic.name for s in app.outbox.topics()] == sorted(EMAILS.names)

    def test_a_queue_cut_off_while_it_was_created_is_completed(
        self, app: MemoryApplication
    ) -> None:
        app.outbox.create_topic(Topic("email", partition=Partition("email", 0, 4)))
        EMAILS.create(app.outbox)
        assert len(app.outbox.topics()) == 4

    def test_a_plain_topic_becomes_partition_0_unless_its_order_would_break(
        self, app: MemoryApplication
    ) -> None:
        app.outbox.create_topic(Topic("email"))
        app.outbox.create_topic(Topic("sms", ordering="key"))
        EMAILS.create(app.outbox)
        assert app.outbox.topic("email").topic.partition == Partition("email", 0, 4)
        with pytest.raises(TopicConflict, match="would break its order"):
            PartitionedQueue("sms", 2).create(app.outbox, ordering="key")
        PartitionedQueue("sms", 1).create(app.outbox, ordering="key")

    def test_creating_a_partition_as_a_plain_topic_keeps_it_a_partition(
        self, app: MemoryApplication
    ) -> None:
        EMAILS.create(app.outbox)
        app.outbox.create_topic(Topic("email__p2", retention=3600))
        topic = app.outbox.topic("email__p2").topic
        assert topic.partition == Partition("email", 2, 4)
        assert topic.retention == 3600

    @pytest.mark.parametrize(
        "part", [("email", 4, 4), ("email", -1, 4), ("email", 0, 0), ("a b", 0, 1), ("e", 0, 1001)]
    )
    def test_a_partition_that_cannot_be_is_refused(self, part: Any) -> None:
        with pytest.raises(InvalidInput):
            Partition(*part)

    def test_topics_of_given_names_are_plain_topics_and_all_else_works(
        self, app: MemoryApplication, queue: Queue
    ) -> None:
        states = NAMED.create(app.outbox, shards=1)
        assert [(s.topic.name, s.topic.partition) for s in states] == [(n, None) for n in ABC]
        messages = [Message(topic="m", body=b"x", id=app.ids.next()) for _ in range(12)]
        refs = NAMED.send_many(queue, messages)
        assert [ref.topic for ref in refs] == [NAMED.route(message).topic for message in messages]
        app.clock.advance(1)
        made = NAMED.consumers(queue, lambda _: None)
        assert sum(one.run_until_empty().acked for one in made) == 12
        assert list(NAMED.stats(queue).check()) == ABC
        with pytest.raises(TopicConflict, match="its partitions are given by name"):
            NAMED.resize(app.outbox, 4)
        EMAILS.create(app.outbox)
        with pytest.raises(TopicConflict, match="is partition 0 of 4 of queue 'email'"):
            PartitionedQueue("email", ["email", "email__p1"]).create(app.outbox)


class TestSending:
    def test_a_bulk_send_routes_each_message_by_its_own_key(
        self, app: MemoryApplication, queue: Queue
    ) -> None:
        EMAILS.create(app.outbox)
        messages = [mail(app, f"k{n}") for n in range(60)]
        refs = EMAILS.send_many(queue, messages)
        assert [ref.id for ref in refs] == [message.id for message in messages]
        assert [ref.topic for ref in refs] == [
            EMAILS.names[partition_number(f"k{n}", 4)] for n in range(60)
        ]
        assert sum(app.outbox.outstanding_count(name) for name in EMAILS.names) == 60

    def test_a_transaction_routes_each_message_by_its_own_key(self, app: MemoryApplication) -> None:
        EMAILS.create(app.outbox)
        messages = [mail(app, f"k{n}") for n in range(10)]
        app.client.transact_write_items(TransactItems=EMAILS.transact_items(app.outbox, *messages))
        for message in messages:
            (found,) = [
                m for m in app.outbox.outstanding(EMAILS.route(message).topic) if m.id == message.id
            ]
            assert found.partition_key == message.partition_key


class TestConsumers:
    def test_every_message_of_every_partition_is_consumed(
        self, app: MemoryApplication, queue: Queue
    ) -> None:
        EMAILS.create(app.outbox)
        messages = [mail(app, f"k{n}", b"%d" % n) for n in range(40)]
        EMAILS.send_many(queue, messages)
        app.clock.advance(1)
        seen: list[bytes] = []
        for consumer in EMAILS.consumers(queue, lambda r: seen.append(r.message.body)):
            consumer.run_until_empty()
        assert sorted(seen) == sorted(message.body for message in messages)

    def test_what_is_sent_to_the_logical_name_by_hand_is_consumed(
        self, app: MemoryApplication, queue: Queue
    ) -> None:
        EMAILS.create(app.outbox)
        queue.send(mail(app, "stray"))
        app.clock.advance(1)
        seen: list[str | None] = []
        consumers = EMAILS.consumers(
            queue, lambda r: seen.append(r.message.partition_key), partitions=[0]
        )
        consumers[0].run_until_empty()
        assert seen == ["stray"]

    def test_each_partition_has_workers_of_its_own(self) -> None:
        queue = ScriptedQueue(time.monotonic)
        made = EMAILS.consumers(queue, print, concurrency_per_partition=3, max_attempts=5)
        assert [one.topic for one in made] == list(EMAILS.names)
        assert {one.limits.concurrency for one in made} == {3}
        assert {one.limits.max_attempts for one in made} == {5}
        assert [one.labels for one in made] == [
            {"queue": "email", "partition": str(n)} for n in range(4)
        ]

    def test_chosen_partitions_only(self) -> None:
        queue = ScriptedQueue(time.monotonic)
        made = EMAILS.consumers(queue, print, partitions=[3, 1, 3])
        assert [one.topic for one in made[:]] == ["email__p1", "email__p3"]

    @pytest.mark.parametrize("partitions", [[4], [-1], [True], [1.5], []])
    def test_partitions_that_are_not_there_are_refused(self, partitions: Any) -> None:
        with pytest.raises(InvalidInput, match="partitions"):
            EMAILS.consumers(ScriptedQueue(time.monotonic), print, partitions=partitions)

    def test_they_run_together_under_one_cap_and_say_who_they_are(self) -> None:
        queue = ScriptedQueue(time.monotonic)
        for name in EMAILS.names:
            queue.send(*(b"%s %d" % (name.encode(), n) for n in range(10)), topic=name)
        lock, now, most = threading.Lock(), 0, 0
        two = threading.Event()

        def handler(_received: object) -> None:
            nonlocal now, most
            with lock:
                now, most = now + 1, max(most, now + 1)
            if most == 2:
                two.set()
            assert two.wait(60)
            with lock:
                now -= 1

        log = Lines()
        consumers = EMAILS.consumers(
            queue, handler, concurrency_per_partition=3, concurrency_cap=2, log=log
        )
        counts = run_until(consumers, lambda: len(queue.acked) == 40)
        assert counts == ConsumerCounts(received=40, acked=40)
        assert most == 2
        assert {t: c.acked for t, c in consumers.counts_by_topic.items()} == dict.fromkeys(
            EMAILS.names, 10
        )
        told = log.told("A consumer stopped.")
        assert sorted((line["queue"], line["partition"], line["topic"]) for line in told) == [
            ("email", str(n), name) for n, name in enumerate(EMAILS.names)
        ]

    def test_one_that_cannot_receive_stops_the_others_and_its_error_is_raised(self) -> None:
        queue = ScriptedQueue(time.monotonic)
        queue.faults["receive"] += [TopicIsPushed("email__p2")]
        with pytest.raises(TopicIsPushed):
            EMAILS.consumers(queue, print).run(signals=False)

    def test_new_partitions_get_consumers_while_those_of_the_old_ones_run(
        self, app: MemoryApplication, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group, "FURTHER_SECONDS", 0.01)
        EMAILS.create(app.outbox)
        queue = ScriptedQueue(time.monotonic)
        emails = PartitionedQueue.registered(app.outbox, "email")
        consumers = emails.consumers(queue, lambda _: None)
        assert [one.topic for one in consumers] == list(EMAILS.names)
        queue.send(b"late", topic="email__p5")
        emails.resize(app.outbox, 6)
        counts = run_until(consumers, lambda: len(queue.acked) == 1)
        assert counts.acked == 1
        assert [one.topic for one in consumers] == list(emails.names)
        assert len(consumers) == 6

    def test_chosen_partitions_stay_those(
        self, app: MemoryApplication, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group, "FURTHER_SECONDS", 0.01)
        EMAILS.create(app.outbox)
        queue = ScriptedQueue(time.monotonic)
        emails = PartitionedQueue.registered(app.outbox, "email")
        consumers = emails.consumers(queue, lambda _: None, partitions=[0, 1])
        emails.resize(app.outbox, 6)
        queue.send(b"x", topic="email")
        run_until(consumers, lambda: len(queue.acked) == 1)
        assert [one.topic for one in consumers] == ["email", "email__p1"]

    @pytest.mark.parametrize("cap", [0, True, 1.5])
    def test_a_cap_that_is_none_is_refused(self, cap: Any) -> None:
        with pytest.raises(InvalidInput, match="concurrency_cap"):
            EMAILS.consumers(ScriptedQueue(time.monotonic), print, concurrency_cap=cap)


def run_until(consumers: Any, holds: Callable[[], bool]) -> ConsumerCounts:
    def watch() -> None:
        deadline = time.monotonic() + 60
        while not holds() and time.monotonic() < deadline:
            time.sleep(0.005)
        consumers.stop()

    threading.Thread(target=watch, daemon=True).start()
    counts: ConsumerCounts = consumers.run()
    return counts


class TestWholeSet:
    def test_figures_are_given_by_partition_and_an_error_stops_no_other(
        self, app: MemoryApplication, queue: Queue
    ) -> None:
        for name in ("email", "email__p1", "email__p3"):
            app.outbox.create_topic(Topic(name))
        queue.send(mail(app, "k"))
        app.mark()
        found = EMAILS.stats(queue)
        assert {name: s.ready for name, s in found.results.items()} == {
            "email": 1, "email__p1": 0, "email__p3": 0,
        }  # fmt: skip
        assert list(found.errors) == ["email__p2"]
        with pytest.raises(UnknownTopic):
            found.check()
        assert list(EMAILS.stats(queue, partitions=[1]).check()) == ["email__p1"]

    def test_a_paused_queue_gives_nothing_until_it_is_resumed(
        self, app: MemoryApplication, queue: Queue
    ) -> None:
        EMAILS.create(app.outbox, shards=1)
        EMAILS.send_many(queue, [mail(app, f"k{n}") for n in range(20)])
        app.clock.advance(1)
        held = {name: queue.receive(name, 1) for name in EMAILS.names}
        before = app.clock.now()
        EMAILS.pause(app.outbox).check()
        assert app.clock.now() - before == 2  # once for all, not once for each
        assert [queue.receive(name) for name in EMAILS.names] == [[], [], [], []]
        for received in held.values():  # what is held may be settled
            queue.ack(received[0].receipt)
        EMAILS.resume(app.outbox, partitions=[1]).check()
        app.clock.advance(2)
        assert queue.receive("email__p1")
        assert queue.receive("email__p2") == []

    def test_pausing_is_idempotent_and_survives_a_change_of_settings(
        self, app: MemoryApplication
    ) -> None:
        app.outbox.create_topic(Topic("jobs"))
        app.outbox.pause_topic("jobs")
        version = app.outbox.topic("jobs").version
        app.outbox.pause_topic("jobs")
        assert app.outbox.topic("jobs").version == version
        app.outbox.create_topic(Topic("jobs", retention=3600))
        assert app.outbox.topic("jobs").paused

    def test_a_pushed_topic_or_none_cannot_be_paused(self, app: MemoryApplication) -> None:
        app.outbox.create_topic(Topic("pushed"))
        app.outbox.add_subscription(Subscription("pushed", "billing", "sqs:http://q/billing"))
        with pytest.raises(TopicIsPushed):
            app.outbox.pause_topic("pushed")
        for operation in (app.outbox.pause_topic, app.outbox.resume_topic):
            with pytest.raises(UnknownTopic):
                operation("nothing")

    def test_a_purge_empties_all_partitions_and_tells_how_far_it_is(
        self, app: MemoryApplication, queue: Queue
    ) -> None:
        for name in ("email", "email__p1", "email__p3"):
            app.outbox.create_topic(Topic(name, shards=1))
            queue.send_many([Message(topic=name, body=b"x", id=app.ids.next()) for _ in range(7)])
        told: Counter[str] = Counter()
        done = EMAILS.purge(queue, progress=lambda name, count: told.update({name: count}))
        assert done.results == {"email": 7, "email__p1": 7, "email__p3": 7}
        assert list(done.errors) == ["email__p2"]
        assert set(told) == {"email", "email__p1", "email__p3"}
        assert app.outbox.outstanding_count() == 0

    def test_a_redrive_by_refs_asks_each_partition_for_its_own(self) -> None:
        asked: list[tuple[str, Any, Any, Any]] = []

        class Redriver:
            def redrive(
                self,
                topic: str,
                ids: Any = None,
                *,
                where: Any = None,
                limit: int | None = None,
                dry_run: bool = False,
            ) -> int:
                asked.append((topic, ids, limit, dry_run))
                return 1

        redriver: Any = Redriver()
        rng = random.Random(3)
        refs = [
            MessageRef(EMAILS.names[n % 2], 0, rng.randrange(8), Message(topic="e", body=b"").id)
            for n in range(4)
        ]
        done: Any = EMAILS.redrive(redriver, [str(refs[0]), *refs[1:]], dry_run=True)
        assert asked == [
            ("email", [refs[0], refs[2]], None, True),
            ("email__p1", [refs[1], refs[3]], None, True),
        ]
        assert done.check() == {"email": 1, "email__p1": 1}
        asked.clear()
        EMAILS.redrive(redriver, limit_per_partition=5, partitions=[2, 3])
        assert asked == [("email__p2", None, 5, False), ("email__p3", None, 5, False)]
        asked.clear()
        assert EMAILS.redrive(redriver, refs, partitions=[3]).results == {}
        assert EMAILS.redrive(redriver, []).results == {}
        other = MessageRef("sms", 0, 0, refs[0].id)
        with pytest.raises(InvalidInput, match="refs: expected refs of queue 'email'"):
            EMAILS.redrive(redriver, [refs[0], other])
        assert asked == []

    def test_dead_letters_of_all_partitions_are_put_back_and_received_again(
        self, app: MemoryApplication, queue: Queue
    ) -> None:
        EMAILS.create(app.outbox, shards=1)
        EMAILS.send_many(queue, [mail(app, f"k{n}") for n in range(12)])
        app.clock.advance(1)
        dead: Counter[str] = Counter()
        for name in EMAILS.names:
            for received in queue.receive(name, 12):
                queue.bury(received.receipt, "no")
                dead[name] += 1
        assert sum(dead.values()) == 12
        tried = EMAILS.redrive(app.outbox, dry_run=True).check()
        assert {name: result.count for name, result in tried.items()} == dead
        done = EMAILS.redrive(app.outbox).check()
        assert {name: result.count for name, result in done.items()} == dead
        app.clock.advance(61)
        assert {name: len(queue.receive(name, 12)) for name in EMAILS.names} == dead
