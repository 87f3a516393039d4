"""A shared visit: quick lines are served, slow ones handed over, several calls in flight."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, Subscription, Topic
from fairbox.dispatch.delivery import How
from fairbox.dispatch.dispatcher import Dispatcher, run_concurrently, run_sequentially
from fairbox.dispatch.ports import TAKEN, Limits, Outcome
from fairbox.dispatch.sending import sender
from fairbox.dispatch.sending.lines import FIRST_REST_SECONDS, GRACE_SECONDS, SlowDestinations
from fairbox.dispatch.sending.sender import SLOTS
from fairbox.model.clock import SystemClock
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import MemoryDestination

from tests.support.application import App

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.dispatch.delivery import DeliveryResult
    from fairbox.dispatch.sending.sender import FanOut
    from fairbox.model.clock import Clock

ONE = Limits(1, 1 << 20)


def hooks(**seconds: float) -> App:
    """Return an application with a webhook of each name whose calls take so many seconds."""
    app = App()
    for name, duration in seconds.items():
        address = f"https://{name}.example"

        def answer(_: object, duration: float = duration) -> Outcome:
            app.clock.advance(duration)
            return TAKEN

        app.destinations.put(address, MemoryDestination(ONE, answer=answer, quick=False))
        app.outbox.add_subscription(Subscription("orders", name, address))
    return app


def at(app: App, name: str) -> MemoryDestination:
    return app.destinations[f"https://{name}.example"]


def dispatcher(
    app: App, fan_out: FanOut = run_sequentially, clock: Clock | None = None
) -> Dispatcher:
    made = clock or app.clock
    return Dispatcher(
        app.tables_of(made), app.destinations, app.doorbells, clock=made,
        rng=random.Random(1), fan_out=fan_out,
    )  # fmt: skip


def deliver(app: App, over: Dispatcher, **how: Any) -> DeliveryResult:
    messages = [read_message(item) for item in app.lying()]
    return over.deliver(messages, How(**how), deadline=over.clock.now() + 18)


class TestHandingOver:
    def test_a_slow_line_gets_no_further_call_and_is_told(self) -> None:
        app, added = hooks(fast=0.01, slow=2.0), 30
        refs = app.add(added)
        result = deliver(app, dispatcher(app), shared=True)
        assert len(at(app, "fast").received) == added
        sent = set(at(app, "slow").ids)
        assert len(sent) == 1
        assert list(result.apart) == [("orders", "slow")]
        assert {r.id for r in result.apart["orders", "slow"]} == {r.id for r in refs} - sent

    def test_a_line_known_to_be_slow_is_not_called_nor_written(self) -> None:
        app = hooks(slow=2.0)
        app.add(1)
        over = dispatcher(app)
        deliver(app, over, shared=True)
        (ref,) = app.add(1)
        app.meter.reset()
        result = deliver(app, over, shared=True)
        assert result.apart == {("orders", "slow"): [ref]}
        assert at(app, "slow").calls == 1
        assert not app.writes()
        app.clock.advance(FIRST_REST_SECONDS)
        assert deliver(app, over, shared=True).metrics.sent["orders", "slow"] == 1

    def test_a_visit_apart_sends_all_to_its_subscription_and_to_no_other(self) -> None:
        app = hooks(fast=0.01, slow=2.0)
        over = dispatcher(app)
        app.add(3)
        deliver(app, over, shared=True)
        app.add(3)
        result = deliver(app, over, subscription="slow")
        assert len(at(app, "slow").received) == 6
        assert len(at(app, "fast").received) == 3
        assert not result.apart
        assert all(read_message(i).pending == frozenset({"fast"}) for i in app.lying())

    def test_nearly_slow_calls_hold_the_others_for_half_a_second_at_most(self) -> None:
        app = hooks(fast=0.0, nearly=0.19)
        at(app, "fast").limits = Limits(100, 1 << 20)  # one call takes all
        app.add(60)
        result = deliver(app, dispatcher(app), shared=True)
        assert len(at(app, "fast").received) == 60
        sent = len(at(app, "nearly").received)
        assert 0 < sent <= GRACE_SECONDS / 0.19 + SLOTS // 2  # calls of one round come together
        assert len(result.apart["orders", "nearly"]) == 60 - sent

    def test_lines_of_one_pace_hand_nothing_over(self) -> None:
        app = hooks(a=0.02, b=0.02)
        app.add(100)
        assert not deliver(app, dispatcher(app), shared=True).apart
        assert not app.lying()

    def test_a_failing_line_ends_nobodys_time(self) -> None:
        app = hooks(dead=0.0, busy=0.1)
        at(app, "dead").answer = lambda _: Outcome("unreachable", "no")
        app.add(20)
        result = deliver(app, dispatcher(app), shared=True)
        assert len(at(app, "busy").received) == 20
        assert ("orders", "busy") not in result.apart

    def test_a_limit_in_flight_is_left_to_visits_apart_because_shared_ones_cannot_keep_it(
        self,
    ) -> None:
        app = hooks(fast=0.0, limited=0.0)
        (limited,) = (s for s in app.outbox.topic("orders").subscriptions if s.name == "limited")
        app.outbox.add_subscription(
            Subscription("orders", "limited", limited.destination, max_in_flight=2)
        )
        assert app.outbox.topic("orders").groups == 8  # the sibling keeps its pace
        refs = app.add(5)
        result = deliver(app, dispatcher(app), shared=True)
        assert sorted(result.apart["orders", "limited"]) == sorted(refs)
        assert at(app, "limited").calls == 0

    def test_a_circuit_that_must_stay_quiet_hands_nothing_over_and_one_to_be_probed_does(
        self,
    ) -> None:
        app = hooks(slow=2.0)

        def hang(_: object) -> Outcome:
            app.clock.advance(2)
            return Outcome("unreachable", "no")

        at(app, "slow").answer = hang
        over = dispatcher(app)
        app.add(1)
        for _ in range(5):
            deliver(app, over, subscription="slow")
        topic = app.outbox.topic("orders")
        (probe_at,) = over.gate.next_probes(topic).values()
        over.gate.admission(topic)
        if probe_at > app.clock.now() * 1000:
            assert not deliver(app, over, shared=True).apart
        app.clock.advance(max(0, probe_at / 1000 - app.clock.now()) + 1)
        over.gate.admission(topic)
        calls = at(app, "slow").calls
        assert deliver(app, over, shared=True).apart, "only a visit apart may probe it"
        assert at(app, "slow").calls == calls

    def test_without_a_memory_of_slow_lines_the_fast_sibling_waits(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(SlowDestinations, "slow", lambda *_: False)
        with pytest.raises(AssertionError):
            self.test_a_slow_line_gets_no_further_call_and_is_told()


@dataclass
class Counting:
    """A destination of one message a call that counts how many are in its hands at once."""

    seconds: float
    limits: Limits = ONE
    quick: bool = False
    answer: Callable[[int], Outcome] = lambda _: TAKEN
    until: int = 0  # messages in its hands before which it answers none
    full: threading.Event = field(default_factory=threading.Event)
    now: int = 0
    most: int = 0
    calls: int = 0
    ids: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def size(self, message: Any) -> int:
        return 1

    def send(self, messages: list[Any], timeout: float) -> list[Outcome]:
        with self.lock:
            self.now += len(messages)
            self.calls += 1
            call = self.calls
            self.most = max(self.most, self.now)
            self.ids += [m.ref.id for m in messages]
            if self.now >= self.until:
                self.full.set()
        self.full.wait(60)
        time.sleep(self.seconds)
        with self.lock:
            self.now -= len(messages)
        return [self.answer(call)] * len(messages)


def counted(
    added: int, destination: Counting, how: dict[str, Any], *, ordering: str = "none", **limit: Any
) -> DeliveryResult:
    app = App()
    app.outbox.create_topic(Topic("hooks", shards=1, ordering=ordering))  # type: ignore[arg-type]  # one of both
    app.destinations.put("https://x.example", destination)
    app.outbox.add_subscription(Subscription("hooks", "x", "https://x.example", **limit))
    app.outbox.add_many(
        Message(topic="hooks", body=b"", id=app.ids.next(), partition_key=f"k{n}")
        for n in range(added)
    )
    over = dispatcher(app, run_concurrently, SystemClock())
    return deliver(app, over, **how)


class TestCallsInFlight:
    @pytest.mark.parametrize(
        ("limit", "how", "most"),
        [
            ({}, {"shared": True}, 8),
            ({}, {"subscription": "x"}, 16),
            ({"max_in_flight": 3}, {"subscription": "x"}, 3),
            ({"max_in_flight": 100}, {"subscription": "x"}, 25),
            ({"max_in_flight": 1000}, {"subscription": "x"}, 125),
        ],
    )
    def test_a_visit_fills_its_part_of_the_limit_and_never_exceeds_it(
        self, limit: dict[str, Any], how: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sender, "PATIENCE", 0.01)
        destination = Counting(0.02, until=most)
        added = most + min(most, 10)
        counted(added, destination, how, **limit)
        assert destination.most == most
        assert sorted(destination.ids) == sorted(set(destination.ids))
        assert len(destination.ids) == added

    def test_a_destination_of_ten_a_call_gets_as_many_calls_as_fit(self) -> None:
        destination = Counting(0.0, Limits(10, 1 << 20), until=16)
        counted(48, destination, {"subscription": "x"}, max_in_flight=16)
        # two calls at a time; how many there are in all depends on which of them ends first
        assert destination.most == 16
        assert len(destination.ids) == 48

    def test_without_a_limit_it_gets_one_call_of_ten_at_a_time(self) -> None:
        destination = Counting(0.01, Limits(10, 1 << 20))
        counted(50, destination, {"shared": True})
        assert (destination.most, destination.calls) == (10, 5)

    def test_a_line_of_an_ordered_topic_keeps_one_call_at_a_time(self) -> None:
        destination = Counting(0.01)
        counted(10, destination, {}, ordering="key", max_in_flight=1000)
        assert destination.most == 1

    def test_calls_that_wait_for_a_thread_are_not_made_once_the_circuit_is_open(self) -> None:
        destination = Counting(0.0, answer=lambda _: Outcome("unreachable", "no"))
        counted(125, destination, {"subscription": "x"}, max_in_flight=1000)
        assert destination.calls <= SLOTS + 5


def test_what_fails_in_a_visit_apart_is_tried_again_in_one() -> None:
    app = hooks(slow=2.0, fast=0.0)
    app.add(1)
    at(app, "slow").answer = lambda _: Outcome("refused", "no", fault="message")
    deliver(app, dispatcher(app), subscription="slow")
    assert [bell.subscription for bell in app.doorbells.later] == ["slow"]
