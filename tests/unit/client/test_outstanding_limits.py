"""A topic with a `max_outstanding` takes no more messages than that, by the copy of its count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, Subscription, TopicFull

from tests.support.application import App

if TYPE_CHECKING:
    from collections.abc import Callable

LATER = 40  # seconds until the counts and what was read of them have changed


def full() -> App:
    """Return an application whose topic holds its four messages, as everybody knows."""
    app = App(max_outstanding=4, shards=2)
    app.add(3)
    app.queue.send(message(app, delay=3600))
    app.mark()
    app.clock.advance(LATER)
    return app


def message(app: App, topic: str = "orders", **more: Any) -> Message:
    return Message(**{"topic": topic, "body": b"x", "id": app.ids.next()} | more)


@pytest.mark.parametrize(
    "deposit",
    [
        lambda app, m: app.outbox.add(m),
        lambda app, m: app.outbox.add_many([m]),
        lambda app, m: app.outbox.add_many([message(app, "free"), m], new=True),
        lambda app, m: app.outbox.transact_items(m),
        lambda app, m: app.outbox.transact([], message(app, "free"), m),
        lambda app, m: app.outbox.replay([m], cursor="c", position=0, to=1),
        lambda app, m: app.queue.send(m),
        lambda app, m: app.queue.send_many([m]),
    ],
    ids=["add", "add_many", "new", "items", "transact", "replay", "send", "send_many"],
)
def test_a_full_topic_refuses_a_deposit_of_every_kind_before_anything_is_written(
    deposit: Callable[[App, Message], object],
) -> None:
    app = full()
    app.add_topic("free")
    app.meter.reset()
    with pytest.raises(TopicFull, match="later") as refused:
        deposit(app, message(app))
    assert (refused.value.topic, refused.value.count, refused.value.limit) == ("orders", 4, 4)
    assert app.writes() == {}


def test_a_process_counts_what_it_lets_through_until_it_reads_again() -> None:
    app = App(max_outstanding=4)
    app.add(3)
    with pytest.raises(TopicFull):
        app.add(2)
    app.add(1)
    with pytest.raises(TopicFull):
        app.add(1)


def test_a_refused_call_counts_nothing_and_a_repeated_message_counts_once() -> None:
    app = App(max_outstanding=2)
    app.add_topic("small", max_outstanding=1)
    one = message(app)
    with pytest.raises(TopicFull, match="small"):
        app.outbox.add_many([one, message(app, "small"), message(app, "small")])
    app.outbox.add_many([one, one])
    app.add(1)


def test_a_limit_costs_a_read_in_five_seconds_and_no_limit_costs_none() -> None:
    app = App(max_outstanding=1000, shards=2)
    app.add_topic("free")
    for wait, read in ((0, 1), (4, 0), (1, 1)):
        app.clock.advance(wait)
        app.meter.reset()
        for topic in ("free", "orders", "free", "orders"):
            app.add(topic=topic)
        assert app.meter.reading().calls.get("batch_get_item", 0) == read


def test_a_hop_to_a_full_topic_waits_without_an_attempt() -> None:
    app = full()
    outbox = app.outbox
    app.add_topic("source", shards=1)
    outbox.add_subscription(Subscription("source", "hop", "topic:orders"))
    app.add(topic="source")
    app.run()
    assert outbox.outstanding_count("orders") == 4
    app.queue.purge("orders")
    app.run(120)
    assert outbox.outstanding_count("orders") == 1
    assert app.dead() == []


def test_the_message_of_a_batch_and_a_redrive_come_into_a_full_topic() -> None:
    app = full()
    batch = app.batches.open(on_complete="orders").id
    (received, *_) = app.queue.receive("orders", 1)
    app.queue.bury(received.receipt, "never")
    app.batches.seal(batch)
    assert app.outbox.redrive("orders").count == 1
    app.run()
    assert app.outbox.outstanding_count("orders") == 5
