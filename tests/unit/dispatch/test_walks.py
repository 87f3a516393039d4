"""Walks at depth: what waits for one subscription hides nothing from another, and is not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fairbox import RetryPolicy, Subscription
from fairbox.dispatch.ports import TAKEN, Doorbell, Outcome
from fairbox.tables.walk_positions import Places, audience_text
from fairbox.testing import Fault

from tests.support.application import App

if TYPE_CHECKING:
    from fairbox.model.messages import MessageRef

HOUR = 3600
WEEK = 7 * 24 * HOUR
SHARD = ("orders", 0, 0)
PATIENT = RetryPolicy(max_attempts=100, cap=30)


def put_position(app: App, shared: Places, of_a: Places | None = None) -> None:
    """Write a position, whatever is there."""
    audience = audience_text(app.outbox.topic("orders").subscription_names)
    there = app.tables.walks.read(SHARD)
    app.tables.walks.move(SHARD, there, shared=(shared, audience), apart={"a": of_a})


def paused_beside_healthy(waiting: int) -> App:
    """Return a world whose one shard holds messages that only a paused subscription lacks."""
    app = App("healthy", "paused")
    app.outbox.pause_subscription("orders", "paused")
    add_and_relay(app, waiting)
    return app


def add_and_relay(app: App, count: int) -> list[MessageRef]:
    refs: list[MessageRef] = []
    while len(refs) < count:
        refs += app.add(min(500, count - len(refs)))
        app.relay()
        app.clock.advance(1)
    return refs


def minutes(app: App, count: int) -> None:
    """Let sweeps, visits and relay work for some minutes."""
    for _ in range(count * 6):
        app.clock.advance(10)
        app.relay()
        app.visit()
        if app.clock.now() % 60 < 10:
            app.sweep()
            app.visit()


def taken(app: App, name: str) -> set[str]:
    return set(app.at(name).ids)


@pytest.mark.extended  # size
def test_a_healthy_subscription_gets_its_backlog_behind_what_waits_for_a_paused_one() -> None:
    app = paused_beside_healthy(1500)
    lost = app.add(100)
    app.mark()  # the relay never saw these
    minutes(app, 3)
    assert {r.id for r in lost} <= taken(app, "healthy")


@pytest.mark.extended  # size
def test_delayed_messages_behind_those_of_a_paused_one_come_when_they_are_due() -> None:
    app = App("healthy", "paused")
    app.outbox.pause_subscription("orders", "paused")
    refs = [r for n in range(335) for r in app.add(5, delay=HOUR + 10 * n)]
    app.relay()
    app.mark()
    late: list[float] = []
    seen: set[str] = set()
    begin = app.clock.now()
    due = {r.id: (r.due or 0) / 1000 for r in refs}
    while app.clock.now() < begin + HOUR + 3400:
        app.clock.advance(1)
        app.mark()
        if round(app.clock.now()) % 60 == 0:
            app.sweep()
        app.visit()
        late += [app.clock.now() - due[i] for i in taken(app, "healthy") - seen]
        seen = taken(app, "healthy")
    assert len(seen) == len(refs) == 1675
    assert max(late) <= 5


@pytest.mark.extended  # size
def test_after_a_short_outage_everything_is_taken_among_what_waits_for_a_paused_one() -> None:
    app = paused_beside_healthy(3000)
    app.at("healthy").answer = lambda _: Outcome("unreachable", "away")
    missed = add_and_relay(app, 1000)
    assert not {r.id for r in missed} & taken(app, "healthy")
    app.at("healthy").answer = lambda _: TAKEN
    app.meter.reset()
    minutes(app, 20)
    assert {r.id for r in missed} <= taken(app, "healthy")
    assert app.meter.reading().rru / 1000 <= 2


@pytest.mark.guarantee("subscriptions-apart")
def test_a_paused_week_costs_the_others_little_and_all_is_sent_when_it_ends() -> None:
    app = App("healthy", "paused")
    app.outbox.pause_subscription("orders", "paused")
    app.meter.reset()
    refs = []
    for _ in range(100):
        refs += app.add(25)
        minutes(app, 1)
        app.mark()
    assert taken(app, "healthy") == {r.id for r in refs}
    assert app.meter.reading().rru / len(refs) <= 2
    app.clock.advance(WEEK)
    for _ in range(3):
        app.sweep()
        minutes(app, 1)
    app.meter.reset()
    app.outbox.resume_subscription("orders", "paused")
    minutes(app, 2)
    app.mark()
    assert taken(app, "paused") == {r.id for r in refs}
    assert app.meter.reading().rru / len(refs) <= 2
    assert not app.lying()


@pytest.mark.parametrize("out", [["a"], ["a", "b"], ["b", "d", "e"], ["a", "b", "c", "d"]])
def test_whatever_set_of_subscriptions_is_paused_the_others_get_what_was_missed(
    out: list[str],
) -> None:
    app = App("a", "b", "c", "d", "e")
    for name in out:
        app.outbox.pause_subscription("orders", name)
    refs = app.add(30)
    app.mark()
    minutes(app, 4)
    for name in "abcde":
        assert taken(app, name) == (set() if name in out else {r.id for r in refs})
    more = app.add(20)
    app.mark()
    minutes(app, 12)
    for name in out:
        app.outbox.resume_subscription("orders", name)
    minutes(app, 3)
    app.mark()
    for name in "abcde":
        assert taken(app, name) == {r.id for r in refs + more}
    assert not app.lying()


@pytest.mark.guarantee("subscriptions-apart")
def test_a_walk_that_stops_at_young_messages_passes_none_of_their_page() -> None:
    app = App("healthy", "paused")
    app.outbox.pause_subscription("orders", "paused")
    app.add(delay=20)
    young = add_and_relay(app, 150)
    app.clock.advance(30)
    app.answer(Doorbell(*SHARD))
    position = app.tables.walks.read(SHARD)
    names = app.outbox.topic("orders").subscription_names
    assert not [r for r in young if position.hides("ready", r.id, "paused", names)]
    app.outbox.resume_subscription("orders", "paused")
    minutes(app, 2)
    assert {r.id for r in young} <= taken(app, "paused")


def test_a_walk_that_sends_behind_what_is_still_the_relays_does_not_pass_it() -> None:
    app = App("quick", "slow", "paused")
    app.at("slow").quick = app.at("paused").quick = False
    app.outbox.pause_subscription("orders", "paused")
    (first,) = app.add()
    second = app.add(3)
    app.answer(Doorbell(*SHARD, tuple(second)))  # `quick` has taken these, the relay is behind
    app.clock.advance(10)
    app.answer(Doorbell(*SHARD, before=int(app.clock.now() * 1000)))
    position = app.tables.walks.read(SHARD)
    names = app.outbox.topic("orders").subscription_names
    assert not position.hides("ready", first.id, "quick", names)
    app.mark()
    minutes(app, 2)
    assert first.id in taken(app, "quick") & taken(app, "slow")


def test_a_walk_sends_what_another_process_handed_over_as_slow() -> None:
    app = App("a")
    refs = app.add(3)
    app.clock.advance(5)
    now = int(app.clock.now() * 1000)
    app.answer(Doorbell(*SHARD, tuple(refs), 0, before=now, subscription="a"))
    assert len(taken(app, "a")) == 3  # here the destination is quick: the relay might send them


def test_visits_before_messages_are_overdue_do_not_keep_the_sweep_from_them() -> None:
    app = App("a")
    first = app.add()
    app.mark()
    app.clock.advance(70)
    lost = app.add(5)  # the relay never saw these
    app.mark()
    app.clock.advance(20)
    for _ in range(6):  # as after sweeps that wait behind each other, marking being behind
        app.answer(Doorbell(*SHARD))
    assert taken(app, "a") == {r.id for r in first}
    app.mark()
    for _ in range(2):
        app.clock.advance(60)
        app.sweep()
        app.visit()
    assert taken(app, "a") == {r.id for r in first + lost}


def under_retry(*subscriptions: str) -> tuple[App, list[MessageRef]]:
    """Return a world with messages that `a` has refused for three minutes."""
    app = App("a", *subscriptions, retry=PATIENT)
    app.at("a").answer = lambda _: Outcome("refused", "HTTP 400", fault="message")
    refs = app.add(4, delay=5)
    app.relay()
    seconds(app, 180)
    return app, refs


def seconds(app: App, count: int) -> None:
    """Let doorbells work: no sweep, no repair."""
    for _ in range(count):
        app.clock.advance(1)
        app.visit()


def test_messages_under_retry_that_cannot_be_reached_keep_their_doorbell() -> None:
    app, refs = under_retry()
    app.at("a").answer = lambda _: Outcome("unreachable", "away")
    calls = app.at("a").calls
    while app.at("a").calls == calls:
        seconds(app, 1)
    app.at("a").answer = lambda _: TAKEN
    seconds(app, 100)
    assert taken(app, "a") == {r.id for r in refs}
    assert not app.lying()


def test_messages_under_retry_that_cannot_be_deleted_keep_their_doorbell() -> None:
    app, refs = under_retry()
    app.at("a").answer = lambda _: TAKEN
    app.faulty.next("batch_write_item", *[Fault.THROTTLED] * 40)
    seconds(app, 200)
    assert taken(app, "a") == {r.id for r in refs}
    assert not app.lying()


def test_messages_under_retry_whose_outcome_cannot_be_written_keep_their_doorbell() -> None:
    app, refs = under_retry("b")
    app.outbox.pause_subscription("orders", "b")
    app.at("a").answer = lambda _: TAKEN
    app.faulty.next("update_item", *[Fault.THROTTLED] * 40)
    seconds(app, 200)
    assert taken(app, "a") == {r.id for r in refs}
    assert all(item["p"] == {"SS": ["b"]} for item in app.lying())


def test_messages_under_retry_are_sent_when_a_probe_among_them_closes_the_circuit() -> None:
    app = App("a", retry=PATIENT)
    app.at("a").answer = lambda _: Outcome("refused", "HTTP 500", fault="destination")
    refs = app.add(5, delay=30)
    app.relay()
    for _ in range(60):  # five failures open the circuit; each message is under retry
        app.clock.advance(1)
        app.visit()
    app.at("a").answer = lambda _: TAKEN
    for _ in range(120):  # by their doorbells alone: no sweep, no repair
        app.clock.advance(1)
        app.visit()
    assert taken(app, "a") == {r.id for r in refs}


def test_repair_finds_messages_under_retry_whose_probe_was_lost() -> None:
    app = App("a", retry=PATIENT)
    app.at("a").answer = lambda _: Outcome("refused", "HTTP 500", fault="destination")
    refs = app.add(5, delay=30)
    app.relay()
    for _ in range(40):
        app.clock.advance(1)
        app.visit()
    app.doorbells.now.clear()
    app.doorbells.later.clear()
    app.at("a").answer = lambda _: TAKEN
    app.clock.advance(HOUR)
    assert app.repair().rung == len(refs)
    for _ in range(60):
        app.clock.advance(1)
        app.visit()
    assert taken(app, "a") == {r.id for r in refs}


def test_messages_under_retry_that_find_no_tokens_keep_their_doorbell() -> None:
    app = App(retry=PATIENT)
    app.outbox.add_subscription(Subscription("orders", "a", "sqs:http://q/orders-a", rate=1.0))
    app.at("a").answer = lambda _: Outcome("refused", "HTTP 400", fault="message")
    refs = app.add(12)
    app.relay()
    for _ in range(14):
        app.clock.advance(1)
        app.visit()
    app.at("a").answer = lambda _: TAKEN
    for _ in range(90):
        app.clock.advance(1)
        app.visit()
    assert taken(app, "a") == {r.id for r in refs}


def test_a_receiver_that_wants_no_more_hides_nothing_from_others() -> None:
    app = App("a", "b")
    app.at("a").answer = lambda _: Outcome("gone", "HTTP 410")
    add_and_relay(app, 50)
    lost = app.add(50)
    app.mark()
    minutes(app, 4)
    assert {r.id for r in lost} <= taken(app, "b")


def test_messages_of_a_removed_subscription_leave_within_minutes() -> None:
    app = paused_beside_healthy(200)
    app.mark()
    minutes(app, 15)
    assert len(app.lying()) == 200
    app.outbox.remove_subscription("orders", "paused")
    minutes(app, 2)
    assert not app.lying()


def test_a_new_subscription_gets_what_nobody_has_taken() -> None:
    app = App("a")
    app.outbox.pause_subscription("orders", "a")
    refs = app.add(40)
    app.mark()
    minutes(app, 15)
    app.outbox.add_subscription(Subscription("orders", "b", "sqs:http://q/orders-b"))
    minutes(app, 2)
    assert taken(app, "b") == {r.id for r in refs}


@pytest.mark.parametrize("ready", ["~", "0000", ""])
def test_repair_sends_what_a_wrong_position_hides(ready: str) -> None:
    app = App("a", "b")
    app.outbox.pause_subscription("orders", "b")
    add_and_relay(app, 50)
    lost = app.add(20)
    app.mark()
    put_position(app, Places(ready, ready), Places("~", "~"))
    app.clock.advance(HOUR)
    app.repair()
    minutes(app, 1)
    assert {r.id for r in lost} <= taken(app, "a")


def test_a_sweep_by_hand_sends_what_a_wrong_position_hides() -> None:
    app = App("a", "b")
    app.outbox.pause_subscription("orders", "b")
    refs = app.add(50)
    app.mark()
    put_position(app, Places("~", "~"))
    app.clock.advance(HOUR)
    app.outbox.sweep()
    app.visit()
    assert taken(app, "a") == {r.id for r in refs}


def test_a_message_under_retry_is_sent_when_a_long_outage_ends() -> None:
    app = App("a", "b", retry=RetryPolicy(max_attempts=20))
    app.outbox.pause_subscription("orders", "b")
    app.at("a").answer = lambda _: Outcome("refused", "HTTP 500", fault="destination")
    refs = app.add(12)
    app.mark()
    minutes(app, 60)
    assert not taken(app, "a")
    app.at("a").answer = lambda _: TAKEN
    minutes(app, 35)
    assert taken(app, "a") == {r.id for r in refs}


def test_walks_that_meet_their_deadline_go_on_and_do_not_multiply() -> None:
    app = App("a", "b")
    app.outbox.pause_subscription("orders", "b")
    refs = app.add(900)
    app.mark()
    app.clock.advance(100)
    app.sweep()
    sent = app.at("a")

    def slow(_: object) -> Outcome:
        app.clock.advance(0.5)
        return TAKEN

    sent.answer = slow
    for _ in range(200):
        app.clock.advance(1)
        app.visit(1)
        assert len(app.doorbells.now) + len(app.doorbells.later) <= 3
    assert taken(app, "a") == {r.id for r in refs}
