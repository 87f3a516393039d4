"""Deleting topics: what is in the way, what producers see meanwhile, and what is left."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import (
    InvalidInput,
    Message,
    PartitionedQueue,
    Subscription,
    Topic,
    TopicConflict,
    UnknownTopic,
)
from fairbox.client.outbox import Outbox
from fairbox.destinations.topic import add_to_topic
from fairbox.tables.message_inserts import NewMessage
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import OUTBOX

from tests.support.application import App
from tests.support.dead_letters import killed

if TYPE_CHECKING:
    from collections.abc import Callable

EMAILS = PartitionedQueue("email", 3)


def message(app: App, topic: str = "orders", **more: Any) -> Message:
    return Message(topic=topic, body=b"x", id=app.ids.next(), **more)


def other(app: App) -> Outbox:
    """Return an outbox with copies of topics of its own."""
    return Outbox.over(app.outbox.tables)


def meanwhile(app: App, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen half way through the next long wait."""
    sleep = app.clock.sleep

    def sleeping(seconds: float) -> None:
        if seconds > 10:
            monkeypatch.setattr(app.clock, "sleep", sleep)
            sleep(seconds / 2)
            happens()
            seconds /= 2
        sleep(seconds)

    monkeypatch.setattr(app.clock, "sleep", sleeping)


def test_a_topic_that_was_used_up_goes_with_everything_beside_it() -> None:
    app = App(shards=40)
    for _ in range(3):
        app.add(30)
        app.run(1)
        emptied(app)
    app.run(120)
    started = app.clock.now()
    assert app.outbox.delete_topic("orders") == 0
    assert app.clock.now() - started == pytest.approx(60, abs=1)
    with pytest.raises(UnknownTopic):
        app.outbox.topic("orders")
    with pytest.raises(UnknownTopic):
        app.outbox.add(message(app))
    assert not [i for i in app.engine.items(OUTBOX) if "orders" in i["pk"]["S"] + i["sk"]["S"]]


def test_without_waiting_it_says_when_to_call_again_and_goes_then() -> None:
    app = App()
    assert app.outbox.delete_topic("orders", wait=False) == 60
    app.clock.advance(45)
    assert app.outbox.delete_topic("orders", wait=False) == 15
    assert app.outbox.topic("orders").deleting is not None
    app.clock.advance(15)
    assert app.outbox.delete_topic("orders", wait=False) == 0
    with pytest.raises(UnknownTopic):
        app.outbox.delete_topic("orders")


def emptied(app: App) -> int:
    """Receive and acknowledge everything; return how many messages it was."""
    count = 0
    while app.outbox.outstanding_count("orders"):
        app.clock.advance(2)
        received = app.queue.receive("orders")
        app.queue.ack([one.receipt for one in received])
        count += len(received)
    return count


def outstanding(app: App) -> None:
    app.add(1)


def waiting(app: App) -> None:
    app.add(1, delay=3600)


def dead(app: App) -> None:
    app.add(1)
    (held,) = app.queue.receive("orders")
    app.queue.bury(held.receipt)


def held(app: App) -> None:
    app.add(1)
    assert app.queue.receive("orders")


def subscribed(app: App) -> None:
    app.outbox.add_subscription(Subscription("orders", "a", "sqs:http://q/a"))


def fed(app: App) -> None:
    app.add_topic("source")
    app.outbox.add_subscription(Subscription("source", "feed", "topic:orders"))


@pytest.mark.parametrize("happens", [outstanding, waiting, dead, held, subscribed, fed])
def test_what_is_in_the_way_refuses_it_and_nothing_changes(happens: Callable[[App], None]) -> None:
    app = App(shards=3)
    happens(app)
    before = app.engine.items(OUTBOX)
    for wait in (True, False):
        with pytest.raises(TopicConflict):
            app.outbox.delete_topic("orders", wait=wait)
    assert app.engine.items(OUTBOX) == before


def test_dead_letters_of_a_pushed_topic_are_in_the_way_when_its_subscriptions_are_gone() -> None:
    app = App("a")
    killed(app)
    app.outbox.remove_subscription("orders", "a")
    with pytest.raises(TopicConflict, match="dead letters"):
        app.outbox.delete_topic("orders")
    app.outbox.purge_dead("orders")
    assert app.outbox.delete_topic("orders") == 0


def test_a_producer_with_an_old_copy_loses_nothing_and_the_topic_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App()
    producer = other(app)
    producer.outstanding_count("orders")  # it has a copy now
    app.clock.advance(5)
    early = producer.add  # its copy is good for 25 s more
    refs = []
    sleep = app.clock.sleep

    def sleeping(seconds: float) -> None:
        sleep(20)
        refs.append(early(message(app)))
        sleep(max(0.0, seconds - 20))

    monkeypatch.setattr(app.clock, "sleep", sleeping)
    with pytest.raises(TopicConflict, match="holds messages"):
        app.outbox.delete_topic("orders")
    monkeypatch.setattr(app.clock, "sleep", sleep)
    assert [m.id for m in app.outbox.outstanding("orders")] == [refs[0].id]
    assert app.outbox.topic("orders").deleting is None
    app.clock.advance(31)
    producer.add(message(app))
    assert len(app.queue.receive("orders")) == 2


def test_while_it_is_being_deleted_nothing_is_added_by_a_new_copy() -> None:
    app = App()
    app.add_topic("source")
    app.outbox.delete_topic("orders", wait=False)
    producer = other(app)
    for publish in (
        lambda: producer.add(message(app)),
        lambda: producer.add_many([message(app)]),
        lambda: producer.transact_items(message(app)),
        lambda: producer.create_topic(Topic("orders", shards=1)),
        lambda: producer.add_subscription(Subscription("orders", "a", "sqs:http://q/a")),
        lambda: producer.add_subscription(Subscription("source", "a", "topic:orders")),
        lambda: app.batches.open(on_complete="topic:orders"),
    ):
        with pytest.raises((TopicConflict, InvalidInput), match="being deleted"):
            publish()
    assert app.lying() == []


def test_a_batch_completes_though_its_callbacks_topic_is_being_deleted() -> None:
    app = App()
    batch = app.batches.open(on_complete="topic:orders").id
    app.batches.add(batch, 1, request_id="r")
    app.batches.seal(batch)
    app.outbox.delete_topic("orders", wait=False)
    assert app.batches.ack([f"{batch}:0:0"]).completed == (batch,)
    app.clock.advance(60)
    with pytest.raises(TopicConflict, match="holds messages"):
        app.outbox.delete_topic("orders")
    assert app.outbox.topic("orders").deleting is None
    assert emptied(app) == 1


def test_a_batch_completes_when_its_callbacks_topic_was_deleted() -> None:
    app = App()
    batch = app.batches.open(on_complete="topic:orders").id
    app.batches.add(batch, 1, request_id="r")
    app.outbox.delete_topic("orders", wait=False)
    app.clock.advance(31)
    app.outbox.known_topic("orders")  # this process knows that it is being deleted
    app.clock.advance(29)
    Outbox.over(app.outbox.tables).delete_topic("orders")
    app.batches.seal(batch)
    assert app.batches.ack([f"{batch}:0:0"]).completed == (batch,)
    assert other(app).outstanding_count("orders") == 1


def test_a_second_call_that_is_refused_takes_the_mark_off() -> None:
    for happens in (outstanding, fed):
        app = App()
        producer = app.outbox
        producer.known_topic("orders")
        operator = other(app)
        operator.delete_topic("orders", wait=False)
        with suppress(TopicConflict):
            happens(app)  # with a copy of the topic as it was before
        if happens is fed:  # a process of an earlier release
            app.outbox.tables.topics.add_subscription(Subscription("source", "a", "topic:orders"))
        with pytest.raises(TopicConflict, match=r"holds messages|destination"):
            operator.delete_topic("orders")
        assert operator.topic("orders").deleting is None


def test_a_topic_that_others_change_at_the_last_moment_is_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App()
    app.outbox.delete_topic("orders", wait=False)
    app.clock.advance(60)
    walk, looks = app.outbox.tables.dead.walk, iter((False, True))

    def walked(*arguments: Any, **options: Any) -> Any:
        if next(looks):  # the last one: the topic was read
            app.outbox.tables.topics.pause("orders", paused=True)
        return walk(*arguments, **options)

    monkeypatch.setattr(app.outbox.tables.dead, "walk", walked)
    with pytest.raises(TopicConflict, match="changed by others"):
        app.outbox.delete_topic("orders")
    assert app.outbox.topic("orders").deleting is None


def test_messages_on_their_way_to_a_topic_that_is_being_deleted_wait() -> None:
    app = App()
    app.outbox.delete_topic("orders", wait=False)
    (outcome,) = add_to_topic(app.outbox, [message(app)])
    assert outcome.verdict == "throttled"


def test_a_subscription_that_races_with_the_mark_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App()
    topics = app.outbox.tables.topics
    load = topics.load

    def loaded(name: str) -> Any:
        state = load(name)
        monkeypatch.setattr(topics, "load", load)
        topics.mark_deleting(name)
        return state

    monkeypatch.setattr(topics, "load", loaded)
    with pytest.raises(TopicConflict, match="being deleted"):
        topics.add_subscription(Subscription("orders", "a", "sqs:http://q/a"))
    assert not app.outbox.topic("orders").pushed


def test_a_transaction_that_is_committed_too_late_is_named_by_repair_and_found_again() -> None:
    app = App()
    late = message(app)
    actions = app.outbox.transact_items(late)
    app.clock.advance(31)
    app.outbox.delete_topic("orders")
    app.client.transact_write_items(TransactItems=actions)
    app.run(1)
    assert app.repair().orphans == ["orders#0#0"]
    app.clock.advance(31)
    app.outbox.create_topic(Topic("orders", shards=1))
    app.clock.advance(61)
    assert [one.message.id for one in app.queue.receive("orders")] == [late.id]
    app.clock.advance(7200)
    assert app.repair().orphans == []


def test_a_created_one_of_the_same_name_begins_anew() -> None:
    app = App(shards=2)
    app.outbox.delete_topic("orders")
    app.outbox.create_topic(Topic("orders", shards=5, ordering="key"))
    app.add(3, partition_key="k")
    assert emptied(app) == 3


def test_a_call_that_was_cut_off_is_repeated_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    meanwhile(app, monkeypatch, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        app.outbox.delete_topic("orders")
    assert app.outbox.topic("orders").deleting is not None
    started = app.clock.now()
    assert app.outbox.delete_topic("orders") == 0
    assert app.clock.now() - started == pytest.approx(30, abs=1)


class TestPartitions:
    def test_one_alone_is_refused(self) -> None:
        app = App()
        EMAILS.create(app.outbox, shards=1)
        for name, whole in (("email", False), ("email__p1", False), ("email__p1", True)):
            with pytest.raises(TopicConflict, match="whole"):
                app.outbox.delete_topic(name, whole=whole)
        with pytest.raises(TopicConflict, match="not the logical name"):
            app.outbox.delete_topic("orders", whole=True)
        assert len(app.outbox.topics()) == 4

    def test_partitions_that_a_queue_has_no_more_go_with_it(self) -> None:
        app = App()
        EMAILS.create(app.outbox, shards=1)
        EMAILS.resize(app.outbox, 1)
        with pytest.raises(TopicConflict, match="deleted whole"):
            app.outbox.delete_topic("email")
        assert app.outbox.delete_topic("email", whole=True) == 0
        assert [state.topic.name for state in app.outbox.topics()] == ["orders"]

    def test_what_is_being_deleted_is_not_resized(self) -> None:
        app = App()
        EMAILS.create(app.outbox, shards=1)
        app.outbox.delete_topic("email", whole=True, wait=False)
        app.outbox.delete_topic("orders", wait=False)
        with pytest.raises(TopicConflict, match="being deleted"):
            app.outbox.resize("orders", 4)
        with pytest.raises(TopicConflict, match="being deleted"):
            EMAILS.resize(app.outbox, 8)

    def test_the_whole_queue_goes_after_one_wait(self) -> None:
        app = App()
        EMAILS.create(app.outbox, shards=1)
        started = app.clock.now()
        assert app.outbox.delete_topic("email", whole=True) == 0
        assert app.clock.now() - started == pytest.approx(60, abs=1)
        assert [state.topic.name for state in app.outbox.topics()] == ["orders"]

    def test_a_message_in_one_keeps_them_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        app = App()
        EMAILS.create(app.outbox, shards=1)
        producer = other(app)
        ref = producer.add(message(app, "email__p2"))
        with pytest.raises(TopicConflict):
            app.outbox.delete_topic("email", whole=True)
        producer.mark_delivered([ref])
        app.clock.advance(20)
        producer.outstanding_count("email__p1")
        inserts = app.outbox._context.inserts
        late = message(app, "email__p1")
        place = producer.topic("email__p1").ref(late)
        meanwhile(app, monkeypatch, lambda: inserts.add(NewMessage(late, place)))
        with pytest.raises(TopicConflict, match="email__p1"):
            app.outbox.delete_topic("email", whole=True)
        assert [state.deleting for state in app.outbox.topics()] == [None] * 4
        assert [read_message(i).ref for i in app.lying()] == [place]

    def test_a_queue_of_one_partition_is_a_plain_topic(self) -> None:
        app = App()
        PartitionedQueue("single", 1).create(app.outbox)
        assert app.outbox.delete_topic("single") == 0


def test_fairbox_s_own_topics_stay() -> None:
    app = App()
    app.add_topic("fairbox.batches.completed")
    with pytest.raises(TopicConflict, match="own"):
        app.outbox.delete_topic("fairbox.batches.completed")


def test_rows_of_a_shard_that_the_stream_still_counts_stay_for_repair() -> None:
    app = App()
    app.add(1)
    app.mark()
    (got,) = app.queue.receive("orders")
    app.queue.ack(got.receipt)
    app.outbox.delete_topic("orders")
    assert app.row().ready == 1
    app.mark()
    assert (app.row().ready, app.row().zero) == (0, True)
