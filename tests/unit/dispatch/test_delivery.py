"""Delivery: what comes of messages that are taken, refused, put off, dead or fought over."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fairbox import Message
from fairbox.dispatch.dispatcher import Dispatcher, run_sequentially
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import OUTBOX

from tests.support.application import REFUSED, THROTTLED, App

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage


def test_on_the_happy_path_a_message_costs_one_delete_and_no_other_write() -> None:
    app = App("a", "b")
    app.add(50)
    app.meter.reset()
    app.relay()
    assert app.writes() == {"batch_write_item": 2}
    assert app.lying() == []
    assert len(set(app.at("a").ids) & set(app.at("b").ids)) == 50


def test_the_failure_of_one_subscription_delays_only_it() -> None:
    app = App("a", "b", "c")
    app.at("b").answer = lambda _: REFUSED
    (ref,) = app.add()
    app.meter.reset()
    app.relay()
    assert app.writes() == {"update_item": 1}
    (stored,) = map(read_message, app.lying())
    assert stored.pending == frozenset(["b"])
    assert (stored.state("b").attempts, stored.state("b").history[0].error) == (1, "no")
    app.at("b").answer = lambda _: TAKEN
    app.run(30)
    assert [app.at(name).ids for name in "abc"] == [[ref.id]] * 3
    assert app.lying() == []


def test_what_is_refused_comes_again_when_its_doorbell_is_due_and_not_before() -> None:
    app = App("a")
    app.at("a").answer = lambda _: REFUSED
    app.add()
    app.relay()
    (doorbell,) = app.doorbells.later
    assert app.clock.now() * 1000 + 1000 <= doorbell.not_before <= app.clock.now() * 1000 + 3000
    calls = app.at("a").calls
    app.visit()
    assert app.at("a").calls == calls
    app.clock.advance(3)
    app.visit()
    assert app.at("a").calls == calls + 1


@pytest.mark.parametrize("verdict", ["throttled", "unreachable"])
def test_throttling_counts_no_attempt_and_writes_no_message(verdict: str) -> None:
    app = App("a")
    app.at("a").answer = lambda _: Outcome(verdict, "later")  # type: ignore[arg-type]  # one of both
    app.add(15)
    lying = app.lying()
    for _ in range(3):
        app.relay()
        app.clock.advance(11)
        app.visit()
    assert app.lying() == lying
    app.at("a").answer = lambda _: TAKEN
    app.run(60)
    assert sorted(app.at("a").ids) == sorted(set(app.at("a").ids))
    assert len(app.at("a").ids) == 15


def test_a_throttled_destination_is_left_alone_for_the_rest_of_the_invocation() -> None:
    app = App("a", "b")
    app.at("a").answer = lambda _: THROTTLED
    app.add(40)
    app.relay()
    assert app.at("a").calls == 1
    assert len(app.at("b").ids) == 40


def test_a_wait_that_the_destination_asks_for_is_kept() -> None:
    app = App("a")
    app.at("a").answer = lambda _: Outcome("refused", "busy", retry_after=120)
    app.add()
    app.relay()
    (stored,) = map(read_message, app.lying())
    assert stored.due("a") == app.clock.now() * 1000 + 120_000


def test_after_max_attempts_a_message_is_dead_with_reason_and_history() -> None:
    app = App("a")
    app.at("a").answer = lambda _: REFUSED
    (ref,) = app.add()
    app.run(300)
    (dead,) = map(read_message, app.dead())
    assert app.lying() == []
    assert [f.attempt for f in dead.state("a").history] == [1, 2, 3]
    assert (dead.pending, dead.state("a").dead, dead.reason) == (frozenset(["a"]), True, "no")
    assert [e["attempt"] for e in app.events("failed")] == [1, 2, 3]
    ((event),) = app.events("dead")
    assert (event["id"], event["subscription"]) == (ref.id, "a")
    assert (app.row().ready, app.row().dead) == (0, 1)
    assert app.events("delivered") == []
    assert app.outbox.get(ref) is not None


def test_who_dies_for_one_is_still_delivered_to_the_rest() -> None:
    app = App("a", "b")
    app.at("a").answer = lambda _: REFUSED
    app.at("b").answer = lambda _: THROTTLED
    (ref,) = app.add()
    app.run(100)
    (dead,) = map(read_message, app.dead())
    assert dead.pending == frozenset(["a"])
    (left,) = map(read_message, app.lying())
    assert left.pending == frozenset(["b"])
    app.at("b").answer = lambda _: TAKEN
    app.run(1200, step=5)
    assert app.at("b").ids == [ref.id]
    assert app.lying() == []
    assert [e["subscription"] for e in app.events("delivered")] == ["b"]
    assert len(app.dead()) == 1
    assert (app.row().ready, app.row().dead) == (0, 1)


def test_two_that_die_at_different_times_share_one_dead_letter() -> None:
    app = App("a", "b")
    app.at("a").answer = lambda _: REFUSED
    app.at("b").answer = lambda _: THROTTLED
    app.add()
    app.run(100)
    app.at("b").answer = lambda _: REFUSED
    app.run(3600, step=10)
    (dead,) = map(read_message, app.dead())
    assert dead.pending == frozenset(["a", "b"])
    assert app.lying() == []
    assert app.row().dead == 1


def test_what_only_removed_subscriptions_lacked_is_purged() -> None:
    app = App("a", "b")
    app.at("b").answer = lambda _: REFUSED
    (ref,) = app.add()
    app.relay()
    app.outbox.remove_subscription("orders", "b")
    app.run(120)
    assert app.lying() == []
    assert [e["id"] for e in app.events("purged")] == [ref.id]
    assert [e["subscription"] for e in app.events("delivered")] == ["a"]


def test_a_lost_race_is_taken_up_from_what_the_winner_wrote() -> None:
    app = App("a", "b", "c")
    (ref,) = app.add()
    stored = app.tables.lanes.read([ref])[0][0]
    app.at("b").answer = lambda _: REFUSED
    app.at("c").answer = lambda _: REFUSED
    winner = replace(stored, pending=frozenset({"b", "c"}))
    assert app.tables.lanes.save_state(winner, stored) == "saved"
    app.relay()  # still has the image in which nobody had it
    (after,) = map(read_message, app.lying())
    assert after.pending == frozenset(["b", "c"])
    assert {name: s.attempts for name, s in after.states.items()} == {"b": 1, "c": 1}


def test_a_message_that_left_meanwhile_is_not_brought_back() -> None:
    app = App("a")
    app.at("a").answer = lambda _: REFUSED
    (ref,) = app.add()
    app.outbox.mark_delivered([ref])
    app.relay()
    assert app.lying() == []
    assert app.dead() == []


def test_a_cancelled_message_is_not_sent_by_a_visit() -> None:
    app = App("a")
    app.at("a").answer = lambda _: REFUSED
    (ref,) = app.add()
    app.relay()
    app.at("a").answer = lambda _: TAKEN
    app.outbox.tables.lanes.mark_gone(ref, "cancelled", "changed")  # and the delete was lost
    app.run(30)
    assert app.at("a").ids == []
    assert app.lying() == []
    assert [e["reason"] for e in app.events("cancelled")] == ["changed"]


def test_deletes_left_unprocessed_are_reported_and_repeat_the_message() -> None:
    app = App("a")
    app.add(3)
    dispatcher = Dispatcher(
        app.tables, app.destinations, app.doorbells, clock=app.clock, rng=random.Random(1),
        fan_out=run_sequentially,
    )  # fmt: skip
    messages = [read_message(i) for i in app.lying()]
    lanes = app.tables.lanes
    lanes.calls.client = _Unprocessing(app.client)
    report = dispatcher.deliver(messages, deadline=app.deadline)
    assert (report.removed, len(report.metrics.errors)) == (0, 1)
    lanes.calls.client = app.client
    app.run(400)
    assert app.lying() == []
    assert len(app.at("a").ids) >= 6


class _Unprocessing:
    def __init__(self, client: object) -> None:
        self._client = client

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    def batch_write_item(self, **request: object) -> dict[str, object]:
        return {"UnprocessedItems": request["RequestItems"]}


def test_a_message_added_again_while_its_first_record_waits_goes_once() -> None:
    app = App("a")
    message = Message(topic="orders", body=b"x", id=app.ids.next())
    ref = app.outbox.add(message)
    app.outbox.mark_delivered([ref])
    app.outbox.add(message)
    app.relay()
    assert app.at("a").ids == [message.id]
    assert app.lying() == []


def test_an_address_that_cannot_be_used_refuses_and_kills_after_its_attempts() -> None:
    app = App("a")
    closed = {"count": 0}

    def answer(_: StoredMessage) -> Outcome:
        closed["count"] += 1
        return Outcome("refused", "the address is none")

    app.at("a").answer = answer
    app.add()
    app.run(300)
    assert closed["count"] == 3
    assert "address" in read_message(app.dead()[0]).reason


def test_keys_of_an_ordered_topic_go_on_while_one_waits() -> None:
    app = App("a", ordering="key")
    refs = []
    for n in range(12):
        refs += app.add(1, partition_key=f"k{n % 3}")
    first = refs[0].id
    app.at("a").answer = lambda m: REFUSED if m.ref.id == first else TAKEN
    app.run(0.5)
    sent = [m.message.partition_key for m in app.at("a").received]
    assert sent == ["k1", "k2"] * 4
    app.at("a").answer = lambda _: TAKEN
    app.run(120)
    mine = [m.ref.id for m in app.at("a").received if m.message.partition_key == "k0"]
    assert mine == [r.id for r in refs[0::3]]


def test_waiting_followers_of_an_ordered_key_do_not_multiply_doorbells() -> None:
    app = App("a", ordering="key")
    app.at("a").answer = lambda _: THROTTLED
    app.add(60, partition_key="k")
    most = 0
    for _ in range(200):
        app.relay()
        app.visit()
        app.clock.advance(1)
        most = max(most, len(app.doorbells.later) + len(app.doorbells.now))
    assert most <= 2


def test_who_comes_while_an_ordered_key_waits_rings_no_doorbell_of_its_own_for_later() -> None:
    app = App("a", ordering="key")
    app.at("a").answer = lambda _: Outcome("refused", "busy", retry_after=600)
    for _ in range(30):
        app.add(1, partition_key="k")
        app.relay()
        app.visit()
        app.clock.advance(1)
    assert len(app.doorbells.later) == 1


def test_a_key_named_twice_is_deleted_once() -> None:
    app = App("a")
    refs = app.add(2)
    messages = [read_message(i) for i in app.lying()]
    app.tables.lanes.delete_messages([*messages, *messages])
    assert app.lying() == []
    assert len(refs) == 2


def test_only_the_items_of_the_outbox_that_are_messages_have_records() -> None:
    app = App("a")
    app.add(3)
    app.run(1)
    kinds = {r["eventName"] for r in app.records()}
    assert kinds == {"INSERT", "REMOVE"}
    assert len(list(app.engine.stream(OUTBOX))) > len(app.records())
