"""Relay and visits send through the fair core: direct first, tenants in turn, only who is ready."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from fairbox import Message, MessageRef, Subscription, Topic
from fairbox.dispatch.delivery import Job
from fairbox.dispatch.dispatcher import Dispatcher, run_sequentially
from fairbox.dispatch.fair import Pending
from fairbox.dispatch.ports import Limits
from fairbox.dispatch.sending.lines import rounds, work
from fairbox.tables.stored_messages import StoredMessage, read_message

from tests.support.application import App

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dispatch.ports import Outcome

TEN = Limits(10, 1 << 20)


def job(
    number: int, topic: Topic, subscription: Subscription | None = None, **message: object
) -> Job:
    made = Message(
        **{
            "topic": topic.name,
            "body": b"x" * 1024,
            "id": f"0198f3c2-7d7e-7abc-8def-{number:012x}",
            **message,
        }  # type: ignore[arg-type]  # fields of a message
    )
    stored = StoredMessage(made, MessageRef(topic.name, 0, 0, made.id), "ready", 1024)
    there = subscription or Subscription(topic.name, "a", "sqs:http://q/x")
    return Job(there, stored, in_order=topic.ordering == "key", topic=topic)


def first_call(jobs: Sequence[Job], limits: Limits = TEN) -> list[Job]:
    pending: Pending[Job] = Pending()
    for one in rounds(jobs):
        pending.add(work(one))
    return pending.next_call(limits)


def topics_of(jobs: Sequence[Job]) -> str:
    return "".join(one.stored.ref.topic for one in jobs)


def test_weights_of_topics_count_and_a_subscriptions_own_goes_before() -> None:
    heavy, light = Topic("h", weight=4), Topic("l")
    jobs = [job(n, topic) for n in range(20) for topic in (heavy, light)]
    assert topics_of(first_call(jobs)).count("h") == 8
    own = Subscription("l", "a", "sqs:http://q/x", weight=4)
    jobs = [job(n, heavy) for n in range(20)] + [job(n, light, own) for n in range(20)]
    assert topics_of(first_call(jobs)).count("h") == 5


def test_tenants_take_turns_by_their_weights_and_messages_without_a_key_are_one() -> None:
    topic = Topic("t", tenant_weights={"acme": 2})
    jobs = [job(n, topic, fairness_key=key) for n in range(40) for key in ("acme", "b", None)]
    keys = [one.stored.message.fairness_key for one in first_call(jobs, Limits(20, 1 << 20))]
    assert [keys.count(key) for key in ("acme", "b", None)] == [10, 5, 5]


def test_on_ordered_topics_a_keys_messages_keep_their_order_whatever_they_say() -> None:
    topic = Topic("o", ordering="key")
    jobs = [
        job(n, topic, partition_key="k", fairness_key=f"t{-n}", direct=n == 2) for n in range(3)
    ]
    pending: Pending[Job] = Pending()
    for one in rounds(jobs):
        pending.add(work(one))
    calls = [pending.next_call(TEN) for _ in jobs]
    assert [[one.stored.ref.id for one in call] for call in calls] == [
        [one.stored.ref.id] for one in jobs
    ]


def test_an_ordered_backlog_of_many_keys_fills_its_calls() -> None:
    topic = Topic("o", ordering="key")
    jobs = [job(n, topic, partition_key=f"k{n // 4}") for n in range(20)]
    pending: Pending[Job] = Pending()
    for one in rounds(jobs):
        pending.add(work(one))
    assert [len(pending.next_call(Limits(5, 1 << 20))) for _ in range(4)] == [5, 5, 5, 5]


def test_fairboxs_own_notices_and_direct_messages_go_before_a_backlog() -> None:
    app = App("a")
    app.add_topic("fairbox.batches.completed")
    app.outbox.add_subscription(
        Subscription("fairbox.batches.completed", "x", "sqs:http://q/orders-a")
    )
    backlog = app.add(30)
    (reply,) = app.add(1, direct=True)
    (notice,) = app.add(1, topic="fairbox.batches.completed")
    app.relay()
    assert app.at("a").ids[:2] == [reply.id, notice.id]
    assert sorted(app.at("a").ids[2:]) == sorted(ref.id for ref in backlog)


def test_tenants_of_a_visit_take_turns() -> None:
    app = App("a")
    busy = app.add(60, fairness_key="busy")
    quiet = app.add(3, fairness_key="quiet")
    app.clock.advance(100)  # the relay leaves them to a visit
    app.relay()
    app.visit()
    places = [app.at("a").ids.index(ref.id) for ref in quiet]
    assert max(places) < 6
    assert len(app.at("a").ids) == len(busy) + len(quiet)


class _Gate:
    """Lets only some subscriptions through, so many messages at a time, and keeps what it hears."""

    def __init__(self, closed: set[str], limit: int | None = None) -> None:
        self.closed = closed
        self.limit = limit
        self.heard: list[tuple[str, list[str]]] = []

    def ready(self, subscription: Subscription) -> bool:
        return subscription.name not in self.closed

    def in_flight_limit(self, subscription: Subscription, *, ordered: bool) -> int | None:
        return self.limit

    def answered(
        self, subscription: Subscription, answers: Sequence[tuple[StoredMessage, Outcome]]
    ) -> None:
        self.heard.append((subscription.name, [outcome.verdict for _, outcome in answers]))
        if len(self.heard) == 3:
            self.closed.add(subscription.name)


def gated(app: App, gate: _Gate) -> Dispatcher:
    return Dispatcher(
        app.tables,
        app.destinations,
        app.doorbells,
        clock=app.clock,
        rng=random.Random(1),
        fan_out=run_sequentially,
        readiness=gate,
    )


def test_who_is_not_ready_is_not_called_and_others_go_on() -> None:
    app = App("a", "b")
    app.add(5)
    gate = _Gate({"a"})
    messages = [read_message(item) for item in app.lying()]
    gated(app, gate).deliver(messages, deadline=app.deadline)
    assert (app.at("a").calls, app.at("b").calls) == (0, 1)
    assert gate.heard == [("b", ["taken"] * 5)]
    assert all(read_message(item).pending == frozenset({"a"}) for item in app.lying())


def test_a_limit_in_flight_bounds_the_calls_and_who_closes_between_them_is_left_alone() -> None:
    app = App("a")
    app.add(9)
    gate = _Gate(set(), limit=2)
    messages = [read_message(item) for item in app.lying()]
    report = gated(app, gate).deliver(messages, deadline=app.deadline)
    assert gate.heard == [("a", ["taken", "taken"])] * 3
    assert (report.metrics.sent["orders", "a"], report.removed, len(app.lying())) == (6, 6, 3)
    assert report.metrics.bytes["orders", "a"] == 6
