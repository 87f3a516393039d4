"""Copies of topics: a change drops one, every process has it in time, and reads do not add up."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, Subscription, Topic, UnknownTopic
from fairbox.model.topic_states import NEW
from fairbox.tables import topic_cache
from fairbox.tables.keys import version_key
from fairbox.tables.topic_cache import (
    ANNOUNCED,
    CHANGE_NUMBER,
    CHANGED_TOPIC,
    CONFIG_VERSION,
    MAX_BUSIEST,
    MAX_TOPICS,
    SLOTS,
    TROUBLED,
    BusiestTopics,
    ProducerTopics,
    TopicChanges,
    change_update,
    read_changes,
)
from fairbox.tables.topic_rows import NEAR_ROWS
from fairbox.testing.application import OUTBOX
from fairbox.testing.units import item_size
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.application import App

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.tables.tables import Tables

TOPICS = 60


def application(topics: int = TOPICS) -> App:
    """An application of many topics with one subscription each, nobody's copy of which is used."""
    app = App()
    for n in range(topics):
        app.outbox.create_topic(Topic(f"t{n:03d}"))
        app.outbox.add_subscription(Subscription(f"t{n:03d}", "a", f"sqs:http://q/{n}"))
    return app


def reading(app: App, tables: Tables, topics: int = TOPICS) -> float:
    """The units that a process reads which meets a message of every topic, 1.1 s later."""
    app.clock.advance(1.1)
    app.meter.reset()
    tables.topic_cache.refresh()
    for n in range(topics):
        assert tables.topic_cache.get(f"t{n:03d}") is not None
    return app.meter.reading().rru


def old_change(app: App, counter: str = CONFIG_VERSION) -> None:
    """Count a change as a release does that names no topic."""
    app.engine.update_item(
        TableName=OUTBOX,
        Key=version_key(),
        UpdateExpression="ADD #n :one",
        ExpressionAttributeNames={"#n": counter},
        ExpressionAttributeValues={":one": {"N": "1"}},
    )


class TestDispatchers:
    @pytest.mark.parametrize(
        "change",
        [
            lambda app: app.outbox.create_topic(Topic("new")),
            lambda app: app.outbox.add_subscription(Subscription("t007", "b", "sqs:http://q/b")),
            lambda app: app.outbox.remove_subscription("t007", "a"),
            lambda app: app.outbox.pause_subscription("t007", "a", reason="x"),
            lambda app: app.outbox.resize("t007", 16),
            lambda app: app.queue.outbox.tables.topics.pause("t007", paused=True),
        ],
    )
    def test_a_change_of_one_topic_costs_one_read_whatever_there_is(
        self, change: Callable[[App], object]
    ) -> None:
        app = application()
        tables = app.tables_of(app.clock)
        reading(app, tables)
        assert reading(app, tables) == 1, "the version row alone"
        change(app)
        assert reading(app, tables) <= 2
        assert tables.topic_cache.get("t007") == app.outbox.topic("t007"), "and it is in force"

    def test_of_many_changes_each_is_in_force_and_costs_its_own_topic(self) -> None:
        app = application()
        tables = app.tables_of(app.clock)
        reading(app, tables)
        for n in range(0, SLOTS, 2):
            app.outbox.add_subscription(Subscription(f"t{n:03d}", "b", "sqs:http://q/b"))
        assert reading(app, tables) <= 1 + SLOTS // 2
        for n in range(TOPICS):
            assert tables.topic_cache.get(f"t{n:03d}") == app.outbox.topic(f"t{n:03d}")

    def test_a_process_that_slept_through_many_changes_has_them_all(self) -> None:
        app = application()
        tables = app.tables_of(app.clock)
        reading(app, tables)
        for n in range(SLOTS + 1):
            app.outbox.add_subscription(Subscription(f"t{n:03d}", "b", "sqs:http://q/b"))
        reading(app, tables)
        for n in range(TOPICS):
            assert tables.topic_cache.get(f"t{n:03d}") == app.outbox.topic(f"t{n:03d}")

    def test_a_topic_that_is_deleted_and_made_again_is_another_one(self) -> None:
        app = application(3)
        tables = app.tables_of(app.clock)
        reading(app, tables, 3)
        app.outbox.remove_subscription("t001", "a")
        app.outbox.delete_topic("t001")
        app.clock.advance(2)
        tables.topic_cache.refresh()
        assert tables.topic_cache.get("t001") is None
        app.outbox.create_topic(Topic("t001", shards=3))
        app.clock.advance(2)
        tables.topic_cache.refresh()
        assert tables.topic_cache.get("t001") == app.outbox.topic("t001")

    @pytest.mark.parametrize("counter", [CONFIG_VERSION, ANNOUNCED])
    def test_a_change_without_its_topic_s_name_drops_every_copy(self, counter: str) -> None:
        app = application()
        tables = app.tables_of(app.clock)
        cold = reading(app, tables)
        before = {f"t{n:03d}": tables.topic_cache.stamp(f"t{n:03d}") for n in range(TOPICS)}
        old_change(app, counter)
        assert reading(app, tables) == cold
        assert all(tables.topic_cache.stamp(name) != mark for name, mark in before.items())
        assert reading(app, tables) == 1

    def test_a_copy_that_another_thread_is_reading_does_not_outlive_its_change(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = application(2)
        tables = app.tables_of(app.clock)
        tables.topic_cache.refresh()
        near = type(app.outbox.tables.topics).near

        def slow(self: Any, name: str) -> Any:
            found = near(self, name)
            monkeypatch.setattr(type(self), "near", near)
            app.outbox.add_subscription(Subscription("t001", "b", "sqs:http://q/b"))
            app.clock.advance(1.1)
            tables.topic_cache.refresh()  # as another invocation of the process does
            return found

        monkeypatch.setattr(type(app.outbox.tables.topics), "near", slow)
        tables.topic_cache.get("t001")
        assert tables.topic_cache.get("t001") == app.outbox.topic("t001")

    def test_an_announcement_makes_only_its_own_topic_s_circuits_be_read(self) -> None:
        app = application()
        app.add(1, "t001")
        app.add(1, "t002")
        app.relay()
        for name in ("t001", "t002"):
            app.add(1, name)
        before = app.tables.circuits.read("t001", ["a"])["a"]
        opened = before.opened(int(app.clock.now() * 1000), "no", random.Random(1))
        app.tables.circuits.write("t001", "a", opened, NEW, announce=True)
        app.clock.advance(1.1)
        app.meter.reset()
        app.relay()
        assert app.meter.reading().rru == 2, "the version row and one topic"
        assert len(app.destinations["sqs:http://q/1"].received) == 1, "its circuit is open"
        assert len(app.destinations["sqs:http://q/2"].received) == 2

    def test_a_cold_process_reads_a_dozen_topics_for_one_unit(self) -> None:
        app = application()
        rows = 2 * TOPICS
        assert reading(app, app.tables_of(app.clock)) <= 1 + rows / (NEAR_ROWS - 2) + 1

    def test_a_topic_with_many_subscriptions_is_read_whole(self) -> None:
        app = application(3)
        for n in range(2 * NEAR_ROWS + 3):
            app.outbox.add_subscription(Subscription("t001", f"s{n:02d}", "sqs:http://q/b"))
        tables = app.tables_of(app.clock)
        tables.topic_cache.refresh()
        for name in ("t000", "t001", "t002"):
            assert tables.topic_cache.get(name) == app.outbox.topic(name)
        assert tables.topic_cache.get("absent") is None

    def test_a_neighbour_that_cannot_be_read_does_no_harm(self) -> None:
        app = application(3)
        app.engine.update_item(
            TableName=OUTBOX,
            Key={"pk": {"S": "config"}, "sk": {"S": "topic#t001"}},
            UpdateExpression="SET cv = :two",
            ExpressionAttributeValues={":two": {"N": "2"}},
        )
        tables = app.tables_of(app.clock)
        assert tables.topic_cache.get("t000") == app.outbox.topic("t000")
        assert tables.topic_cache.get("t002") == app.outbox.topic("t002")

    def test_copies_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert MAX_TOPICS >= 1000
        monkeypatch.setattr(topic_cache, "MAX_TOPICS", 20)
        app = application()
        tables = app.tables_of(app.clock)
        reading(app, tables)
        assert len(tables.topic_cache._cache.by_name) <= 20
        for n in range(TOPICS):
            app.outbox.pause_subscription(f"t{n:03d}", "a")
            reading(app, tables, 1)
        assert len(tables.topic_cache._stamps) <= 21


class TestProducers:
    def topics(self, app: App) -> ProducerTopics:
        return ProducerTopics(
            app.outbox.tables.topics.changes, app.outbox.tables.topics.near, app.clock
        )

    def spent(self, app: App, topics: ProducerTopics, names: list[str]) -> float:
        app.meter.reset()
        for name in names:
            topics.get(name)
        return app.meter.reading().rru

    def test_a_producer_of_one_topic_reads_a_unit_in_thirty_seconds(self) -> None:
        app = application(1)
        topics = self.topics(app)
        spent = []
        for _ in range(5):
            spent.append(self.spent(app, topics, ["t000"] * 3))
            app.clock.advance(30)
        assert spent == [1, 2, 1, 1, 1]  # the second time, it begins to compare

    def test_a_producer_of_many_topics_reads_a_unit_in_thirty_seconds_too(self) -> None:
        app = application()
        names = [f"t{n:03d}" for n in range(TOPICS)]
        topics = self.topics(app)
        for _ in range(2):
            self.spent(app, topics, names)
            app.clock.advance(30)
        for _ in range(3):
            assert self.spent(app, topics, names) == 1
            app.clock.advance(30)
        app.outbox.create_topic(Topic("new"))
        app.outbox.add_subscription(Subscription("t005", "b", "sqs:http://q/b"))
        assert self.spent(app, topics, names) <= 2
        assert topics.get("t005") == app.outbox.topic("t005")

    @settings(max_examples=20, deadline=None)
    @given(st.integers(0, 10**6), st.booleans())
    def test_no_copy_is_used_thirty_seconds_after_its_topic_changed(
        self, seed: int, old: bool
    ) -> None:
        rng = random.Random(seed)
        app = application(4)
        topics = self.topics(app)
        changed: dict[str, float] = {}
        for _ in range(60):
            app.clock.advance(rng.choice([0.1, 1.0, 9.0, 29.0, 31.0]))
            name = f"t{rng.randrange(4):03d}"
            if rng.random() < 0.3:
                changed[name] = app.clock.now()
                app.outbox.tables.topics.add_subscription(
                    Subscription(name, f"s{rng.randrange(3)}", f"sqs:http://q/{rng.random()}")
                )
                if old and rng.random() < 0.5:
                    undo_name(app)
                continue
            got = topics.get(name)
            if got != app.outbox.topic(name):
                assert app.clock.now() - changed[name] < 30

    def test_a_topic_that_is_created_may_be_used_at_once(self) -> None:
        app = application(2)
        topics = self.topics(app)
        topics.get("t000")
        with pytest.raises(UnknownTopic):
            topics.get("new")
        app.outbox.create_topic(Topic("new"))
        assert topics.get("new") == app.outbox.topic("new")

    def test_a_deleted_topic_is_refused_after_thirty_seconds(self) -> None:
        app = application(2)
        topics = self.topics(app)
        for name in ("t000", "t001"):
            topics.get(name)
        app.clock.advance(31)
        topics.get("t000")
        app.outbox.tables.topics.mark_deleting("t001")
        app.clock.advance(30)
        assert topics.get("t001").deleting is not None

    def test_threads_share_the_copies(self) -> None:
        app = application(30)
        topics = self.topics(app)
        names = [f"t{n:03d}" for n in range(30)]
        errors: list[Exception] = []

        def work(seed: int) -> None:
            rng = random.Random(seed)
            try:
                for _ in range(200):
                    topics.get(rng.choice(names))
                    if rng.random() < 0.02:
                        topics.forget(rng.choice(names))
            except Exception as error:  # noqa: BLE001 - told below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


def undo_name(app: App) -> None:
    """Take the name of the latest change away, as another change in its slot would."""
    changes = app.outbox.tables.topics.changes.read()
    slot = (changes.total - 1) % SLOTS
    app.engine.update_item(
        TableName=OUTBOX,
        Key=version_key(),
        UpdateExpression="REMOVE #t, #u",
        ExpressionAttributeNames={
            "#t": f"{CHANGED_TOPIC}{slot}",
            "#u": f"{CHANGE_NUMBER}{slot}",
        },
    )


class TestVersionRow:
    def test_it_stays_under_four_kilobytes_with_the_longest_names(self) -> None:
        app = App()
        topics = app.outbox.tables.topics
        names = [f"{n:03d}".ljust(120, "x") for n in range(MAX_BUSIEST + TROUBLED)]
        topics.write_busiest(BusiestTopics(frozenset(names), 600_000, 10**6))
        app.engine.update_item(
            TableName=OUTBOX,
            Key=version_key(),
            UpdateExpression="SET #n = :n, #a = :n",
            ExpressionAttributeNames={"#n": CONFIG_VERSION, "#a": ANNOUNCED},
            ExpressionAttributeValues={":n": {"N": "123456"}},
        )
        for n in range(SLOTS):
            app.outbox.create_topic(Topic(f"t{n}"))
        item = app.engine.get_item(TableName=OUTBOX, Key=version_key())["Item"]
        assert len(read_changes(item).latest) == SLOTS
        assert item_size(item) <= 4096

    def test_two_writers_that_saw_the_same_count_are_found_missing(self) -> None:
        app = application(2)
        seen = app.outbox.tables.topics.changes.read()
        for name in ("t000", "t001"):
            update = change_update(OUTBOX, CONFIG_VERSION, name, seen)
            app.engine.transact_write_items(TransactItems=[{"Update": update}])
        after = app.outbox.tables.topics.changes.read()
        assert after.total == seen.total + 2
        assert after.since(seen) is None

    def test_a_table_that_was_restored_is_a_change_of_everything(self) -> None:
        assert TopicChanges(5, 0, {}).since(TopicChanges(7, 0, {})) is None
        assert TopicChanges(5, 0, {}).since(TopicChanges(5, 0, {})) == frozenset()

    def test_publishing_reads_no_topic_again_when_others_change(self) -> None:
        app = application()
        app.outbox.add(Message(topic="t001", body=b"", id=app.ids.next()))
        app.meter.reset()
        app.outbox.create_topic(Topic("new"))
        app.meter.reset()
        app.outbox.add(Message(topic="t001", body=b"", id=app.ids.next()))
        assert app.meter.reading().rru == 0
