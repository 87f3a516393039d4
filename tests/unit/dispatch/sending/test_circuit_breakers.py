"""Circuits: what opens them, what goes while they are open, what closes them, what it costs."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from fairbox import RetryPolicy, Subscription
from fairbox.dispatch.dispatcher import Dispatcher
from fairbox.dispatch.ports import TAKEN, Limits, Outcome
from fairbox.dispatch.record_relay import Relay
from fairbox.model.topic_states import FAILURES_TO_OPEN, NEW
from fairbox.tables.circuits import STANDING, STANDING_VERSION
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import OUTBOX

from tests.support.application import App

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage

BROKEN = Outcome("refused", "HTTP 500", fault="destination")
BAD = Outcome("refused", "HTTP 400")
LATE = Outcome("throttled", "slow down", retry_after=120)


@dataclass(frozen=True)
class Spent:
    """The cost of a period: units in all, and the messages that were published in it."""

    wru: float
    rru: float
    messages: int


def outage(app: App, seconds: int, outcome: Outcome, each: int = 3) -> Spent:
    """Let a destination fail for so long under so many messages a second, as functions run."""
    app.at("a").answer = lambda _: outcome
    app.meter.reset()
    for second in range(1, seconds + 1):
        app.add(each)
        app.clock.advance(1)
        app.relay()
        if second % 20 == 0:
            app.mark()
        if second % 60 == 0:
            app.sweep()
        app.visit()
    reading = app.meter.reading()
    return Spent(reading.wru, reading.rru, each * seconds)


def opened(app: App, outcome: Outcome = BROKEN) -> None:
    """Let a destination fail until its circuit opens."""
    app.at("a").answer = lambda _: outcome
    for _ in range(FAILURES_TO_OPEN):
        app.add()
        app.relay()
    assert app.outbox.topic("orders").status("a").circuit == "open"


def patient(*subscriptions: str) -> App:
    return App(*subscriptions, retry=RetryPolicy(max_attempts=1000))


def test_five_failures_in_a_row_open_a_circuit_and_four_do_not() -> None:
    app = patient("a")
    app.at("a").answer = lambda _: BROKEN
    for n in range(1, 6):
        app.add()
        app.relay()
        circuit = app.outbox.topic("orders").status("a").circuit
        assert circuit == ("closed" if n < FAILURES_TO_OPEN else "open")
    status = app.outbox.topic("orders").status("a")
    assert status.reason == "HTTP 500"
    assert 1000 <= status.until - app.clock.now() * 1000 <= 2000


def test_a_message_taken_in_between_begins_the_count_anew() -> None:
    app = patient("a")
    for outcome in [BROKEN] * 4 + [TAKEN] + [BROKEN] * 4:
        app.at("a").answer = lambda _, o=outcome: o  # type: ignore[misc]  # bound here
        app.add()
        app.relay()
    assert app.outbox.topic("orders").status("a") == NEW


@pytest.mark.guarantee("poisoned-message")
def test_one_poisoned_message_opens_nothing_however_often_it_is_refused() -> None:
    app = patient("a")
    app.at("a").answer = lambda _: BAD
    app.add()
    app.run(600)
    (stored,) = map(read_message, app.lying())
    assert stored.state("a").attempts >= 2 * FAILURES_TO_OPEN
    assert app.outbox.topic("orders").status("a") == NEW


def test_five_messages_refused_at_their_first_attempt_open_it() -> None:
    app = patient("a")
    opened(app, BAD)


def test_a_call_that_failed_as_a_whole_counts_once() -> None:
    app = patient("a")
    app.at("a").answer = lambda _: BROKEN
    app.add(4 * 10)
    app.relay()
    assert app.at("a").calls == 4
    assert app.outbox.topic("orders").status("a") == NEW


@pytest.mark.guarantee("outage-cost")
def test_while_it_is_open_nothing_is_sent_written_read_or_rung_for() -> None:
    app = patient("a")
    opened(app)
    app.clock.advance(0.01)
    app.relay()
    calls, rung = app.at("a").calls, len(app.doorbells.now) + len(app.doorbells.later)
    app.add(100)
    app.meter.reset()
    app.relay()
    assert app.at("a").calls == calls
    assert app.meter.reading().calls == {}
    assert len(app.doorbells.now) + len(app.doorbells.later) == rung


def test_the_others_go_on_and_pending_is_written_once() -> None:
    app = patient("a", "b")
    opened(app)
    app.add(20)
    app.meter.reset()
    app.relay()
    assert app.writes() == {"update_item": 20}
    assert len(app.at("b").ids) == FAILURES_TO_OPEN + 20
    app.run(600)
    assert len(app.at("b").ids) == FAILURES_TO_OPEN + 20
    assert all(read_message(i).pending == frozenset({"a"}) for i in app.lying())


def test_probes_go_one_at_a_time_ever_later_and_the_first_that_is_taken_closes_it() -> None:
    app = patient("a")
    opened(app)
    app.add(50)
    calls = app.at("a").calls
    quiet = []
    for _ in range(12):
        until = app.outbox.topic("orders").status("a").until
        quiet.append(until / 1000 - app.clock.now())
        app.clock.advance(quiet[-1] + 0.01)
        app.add(3)
        app.relay()
    assert app.at("a").calls == calls + 12
    assert all(1 <= one <= 901 for one in quiet)
    assert max(quiet[8:]) > 60
    app.at("a").answer = lambda _: TAKEN
    app.run(2000)
    assert app.outbox.topic("orders").status("a").ready
    assert app.lying() == []
    assert len(app.at("a").ids) == len(set(app.at("a").ids)) == FAILURES_TO_OPEN + 50 + 36


def test_each_probe_takes_a_message_that_was_tried_least() -> None:
    app = patient("a")
    opened(app)
    app.add(30)
    app.clock.advance(30)
    for _ in range(20):
        app.clock.advance(901)
        app.sweep()
        app.visit()
    attempts = [read_message(i).state("a").attempts for i in app.lying()]
    assert sum(attempts) >= FAILURES_TO_OPEN + 20
    assert max(attempts) <= 2
    assert attempts.count(2) <= 5  # a message's own doorbell may bring it, where no other came


@pytest.mark.parametrize(
    ("ordering", "shards", "every"), [("none", 8, 0), ("key", 8, 0), ("key", 1, 5)]
)
def test_no_message_is_the_probe_again_and_again_beside_a_paused_sibling(
    ordering: str, shards: int, every: int
) -> None:
    """Twenty messages in all shards at once, or one in a few seconds in one."""
    app = App("a", "b", shards=shards, ordering=ordering, retry=RetryPolicy(max_attempts=10))
    app.outbox.pause_subscription("orders", "b")

    keys = itertools.cycle(f"key {n}" for n in range(50))

    def add(count: int) -> None:
        for _ in range(count):
            app.add(partition_key=next(keys) if ordering == "key" else None)

    add(1200)
    app.run(120)
    tried: Counter[str] = Counter()

    def broken(message: StoredMessage) -> Outcome:
        tried[message.ref.id] += 1
        return BROKEN

    app.at("a").limits = Limits(1, 1 << 20)
    app.at("a").answer = broken
    for _ in range(3600 // every if every else 1):
        add(1 if every else 20)
        app.run(every or 3600)
    assert len(app.at("a").received) == 1200
    assert sum(tried.values()) > FAILURES_TO_OPEN + 10
    assert max(tried.values()) <= 5
    assert app.dead() == []


def test_all_that_waited_is_sent_within_half_a_minute_of_the_closing() -> None:
    app = patient("a")
    opened(app)
    app.add(120)
    app.run(300)
    app.at("a").answer = lambda _: TAKEN
    while not app.outbox.topic("orders").status("a").ready:
        app.run(1)
    app.run(32)
    assert app.lying() == []


def test_a_wait_that_the_destination_asks_for_is_everybodys() -> None:
    app = patient("a")
    app.at("a").answer = lambda _: LATE
    app.add()
    app.relay()
    status = app.outbox.topic("orders").status("a")
    assert (status.circuit, status.until) == ("open", app.clock.now() * 1000 + 120_000)
    app.add(10)
    app.run(119)
    assert app.at("a").calls == 1
    assert all(read_message(i).states == {} for i in app.lying())


def test_a_receiver_that_wants_no_more_is_paused_and_burns_no_attempt() -> None:
    app = patient("a", "b")
    app.at("a").answer = lambda _: Outcome("gone", "HTTP 410")
    app.add(30)
    app.run(400)
    status = app.outbox.topic("orders").status("a")
    assert (status.paused, status.pause_reason) == (True, "HTTP 410")
    assert app.at("a").calls == 1
    assert len(app.at("b").ids) == 30
    assert {read_message(i).state("a").attempts for i in app.lying()} == {0}


def test_a_receiver_that_wants_no_more_leaves_no_doorbell() -> None:
    app = patient("a")
    app.at("a").answer = lambda _: Outcome("gone", "HTTP 410")
    app.add(30)
    app.relay()
    assert not app.doorbells.now
    assert not app.doorbells.later


def test_another_process_learns_of_it_from_the_row_that_it_reads_anyway() -> None:
    app = patient("a")
    other = Relay(
        Dispatcher(
            app.tables_of(app.clock), app.destinations, app.doorbells, clock=app.clock, rng=app.rng
        )
    )
    app.add()
    other.handle(app.records(), deadline=app.deadline)
    opened(app, LATE)
    app.clock.advance(1.1)
    app.at("a").answer = lambda _: TAKEN
    calls = app.at("a").calls
    app.add(10)
    app.meter.reset()
    other.handle(app.records()[-10:], deadline=app.deadline)
    assert app.at("a").calls == calls
    assert app.meter.reading().rru == 2  # the row of versions, and that of the subscription


def test_replacing_a_subscription_closes_its_circuit() -> None:
    app = patient("a")
    opened(app)
    app.outbox.add_subscription(Subscription("orders", "a", "sqs:http://q/elsewhere"))
    assert app.outbox.topic("orders").status("a").ready
    app.run(100)
    assert len(app.destinations["sqs:http://q/elsewhere"].received) == FAILURES_TO_OPEN


def test_a_row_of_a_release_before_stands_as_new() -> None:
    app = patient("a")
    (row,) = (i for i in app.engine.items(OUTBOX) if i["sk"]["S"] == "topic#orders#sub#a")
    assert not {STANDING, STANDING_VERSION} & set(row)
    assert app.outbox.topic("orders").status("a") == NEW


@pytest.mark.guarantee("outage-cost")
@pytest.mark.parametrize(
    ("subscriptions", "seconds", "seed"),
    [pytest.param(("a",), 3600, 1, marks=pytest.mark.extended), (("a", "b"), 600, 2)],
    ids=str,
)
def test_an_outage_costs_next_to_nothing_and_one_dead_letter_in_ten_probes_at_most(
    subscriptions: tuple[str, ...], seconds: int, seed: int
) -> None:
    app = App(*subscriptions, retry=RetryPolicy(max_attempts=10))
    app.rng.seed(seed)
    cost = outage(app, seconds, BROKEN)
    probes = app.at("a").calls
    assert len(app.dead()) <= probes / 10
    assert probes <= 60
    # of each message: its put, and where another subscription took it, `pending` once
    expected = len(subscriptions)
    assert (cost.wru - expected * cost.messages) / seconds <= 0.5
    assert cost.rru / seconds <= 3
    app.at("a").answer = lambda _: TAKEN
    app.run(1500)
    assert app.lying() == []
    assert len(set(app.at("a").ids)) + len(app.dead()) == cost.messages
