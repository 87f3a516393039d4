"""Bounds of walks and their doorbells, and what hides a message for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fairbox import Message, RetryPolicy, Subscription
from fairbox.dispatch.ports import TAKEN, Doorbell, Outcome
from fairbox.tables.walk_positions import Places, audience_text

from tests.support.application import App

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage

HOUR = 3600
SHARD = ("orders", 0, 0)
AWAY = Outcome("unreachable", "away")
FAULTY = Outcome("refused", "HTTP 500", fault="destination")


def minutes(app: App, count: int, *, step: int = 10) -> None:
    """Let sweeps, visits, relay and marking work for some minutes."""
    for _ in range(count * 60 // step):
        app.clock.advance(step)
        app.relay()
        app.mark()
        app.visit()
        if app.clock.now() % 60 < step:
            app.sweep()
            app.visit()


def waiting(app: App) -> int:
    """Return how many doorbells lie in the queues."""
    return len(app.doorbells.now) + len(app.doorbells.later)


def put_position(app: App, places: Places) -> None:
    """Write a position, whatever is there."""
    audience = audience_text(app.outbox.topic("orders").subscription_names)
    there = app.tables.walks.read(SHARD)
    assert app.tables.walks.move(SHARD, there, shared=(places, audience)) is None


def limited(app: App, *names: str, limit: int = 5) -> None:
    for name in names:
        app.outbox.add_subscription(
            Subscription("orders", name, f"sqs:http://q/orders-{name}", max_in_flight=limit)
        )


def test_doorbells_of_a_paused_subscription_with_a_limit_do_not_pile_up() -> None:
    app = App()
    limited(app, "healthy", "paused")
    app.outbox.pause_subscription("orders", "paused")
    most = 0
    for _ in range(600):
        app.add(1)
        app.relay()
        app.clock.advance(1)
        app.visit()
        most = max(most, waiting(app))
    assert len(app.at("healthy").ids) == 600
    assert most <= 20


@pytest.mark.extended  # hours of a dead webhook
def test_doorbells_of_a_dead_webhook_do_not_pile_up() -> None:
    app = App("hook")
    app.at("hook").quick = False
    app.at("hook").answer = lambda _: AWAY
    counts = []
    for second in range(4 * HOUR):
        if second % 4 == 0:
            app.add(1)
        app.clock.advance(1)
        for _ in range(2):
            app.relay(1)
        app.visit()
        if second % HOUR == HOUR - 1:
            counts.append(waiting(app))
    assert max(counts[1:]) <= max(20, counts[0] + 10), counts


def test_messages_under_retry_are_not_read_while_their_subscription_is_paused() -> None:
    app = App("a", "b", retry=RetryPolicy(max_attempts=20))
    app.at("b").answer = lambda _: Outcome("refused", "no", fault="message")
    refs = app.add(8)
    app.relay()
    app.mark()
    app.outbox.pause_subscription("orders", "b")
    minutes(app, 30)
    app.meter.reset()
    for _ in range(8):
        app.clock.advance(900)
        app.visit()
    assert app.meter.reading().rru <= 8 * (8 + 2)  # no more than the topics' version, and its like
    app.at("b").answer = lambda _: TAKEN
    app.outbox.resume_subscription("orders", "b")
    minutes(app, 20)
    assert set(app.at("b").ids) == {r.id for r in refs}


def test_a_redriven_message_whose_subscription_is_paused_is_sent_when_it_is_resumed() -> None:
    app = App("a", "b", retry=RetryPolicy(max_attempts=1))
    app.at("b").answer = lambda _: Outcome("refused", "no", fault="message")
    (ref,) = app.add()
    app.run(5)
    app.at("b").answer = lambda _: TAKEN
    app.outbox.pause_subscription("orders", "b")
    minutes(app, 5)
    app.add(3)  # which a walk passes
    minutes(app, 5)
    app.outbox.redrive("orders")
    minutes(app, 5)
    app.outbox.resume_subscription("orders", "b")
    minutes(app, 17)
    assert ref.id in app.at("b").ids


def test_a_subscription_added_during_a_walk_gets_what_the_walk_passed() -> None:
    app = App("a", "paused")
    app.outbox.pause_subscription("orders", "paused")
    refs = app.add(150)
    app.mark()
    app.clock.advance(100)

    def adding(_: StoredMessage) -> Outcome:
        if "b" not in app.outbox.topic("orders").subscription_names:
            app.outbox.add_subscription(Subscription("orders", "b", "sqs:http://q/orders-b"))
        return Outcome("refused", "no", retry_after=HOUR, fault="message")  # the walk passes it

    app.at("a").answer = adding
    app.answer(Doorbell(*SHARD))
    minutes(app, 4)
    assert set(app.at("b").ids) == {r.id for r in refs}


def test_a_position_ahead_of_the_time_hides_nothing_new() -> None:
    app = App("a", "paused")
    app.outbox.pause_subscription("orders", "paused")
    put_position(app, Places("~", "~"))
    refs = app.add(20)
    app.mark()
    minutes(app, 4)
    assert set(app.at("a").ids) == {r.id for r in refs}


def test_many_short_delays_hide_no_long_one_and_cost_little() -> None:
    app = App("a")
    longs = app.add(30, delay=HOUR)
    app.relay()
    app.mark()
    app.clock.advance(HOUR - 200)
    for n in range(12):
        app.add(50, delay=199 - n)
    app.relay()
    app.mark()
    app.meter.reset()
    begin = app.clock.now()
    late: list[float] = []
    due = (longs[0].due or 0) / 1000
    while app.clock.now() < begin + 280:
        app.clock.advance(1)
        if round(app.clock.now()) % 60 == 0:
            app.sweep()
        app.visit()
        app.mark()
        if len(app.at("a").ids) == 630:
            break
        if {r.id for r in longs} <= set(app.at("a").ids) and not late:
            late.append(app.clock.now() - due)
    late.append(app.clock.now() - due)
    assert late[0] <= 5
    assert app.meter.reading().rru / 630 <= 2


def test_repair_names_what_is_hidden_and_nothing_that_a_walk_will_find() -> None:
    app = App("a", "paused")
    app.outbox.pause_subscription("orders", "paused")
    refs = app.add(350)
    app.mark()
    app.clock.advance(HOUR)
    assert app.repair().rung == 0  # no walk has passed them: the sweep sees to them
    last = max(refs).id
    put_position(app, Places(last, ""))
    app.doorbells.now.clear()
    app.meter.reset()
    assert app.repair().rung == 350
    app.visit()
    assert set(app.at("a").ids) == {r.id for r in refs}
    assert app.meter.reading().rru <= 2 * 350


def test_repair_finds_a_late_message_that_visits_of_an_ordered_shard_begin_behind() -> None:
    app = App("a", "paused", ordering="key")
    app.outbox.pause_subscription("orders", "paused")
    late = Message(topic="orders", body=b"late", partition_key="late", id=app.ids.next())
    app.clock.advance(5)
    for n in range(60):
        app.add(1, partition_key=f"k{n % 7}")
        app.clock.advance(1)
        app.relay()
        app.mark()
        app.visit()
    assert len(app.at("a").ids) == 60
    app.outbox.add(late)
    app._relayed = app.records()[-1]["dynamodb"]["SequenceNumber"]  # the relay lost it
    app.mark()
    app.clock.advance(360)
    app.visit()
    assert late.id not in app.at("a").ids
    app.repair()
    app.visit()
    assert app.at("a").ids[60:] == [late.id]
