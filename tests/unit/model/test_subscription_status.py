"""The state machine of a circuit, over every sequence of outcomes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from fairbox.dispatch.delivery import Job
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.dispatch.sending import circuit_breakers as circuits
from fairbox.dispatch.sending.circuit_breakers import Gate
from fairbox.dispatch.sending.rate_limits import BURST_MS, LATE_MS, take
from fairbox.model.clock import milliseconds
from fairbox.model.epochs import Epoch
from fairbox.model.messages import Message, MessageRef
from fairbox.model.topic_states import (
    FAILURES_TO_OPEN,
    NEW,
    PROBE_MS,
    QUIET_CAP_SECONDS,
    SubscriptionStatus,
    TopicState,
)
from fairbox.model.topics import Subscription, Topic
from fairbox.tables.circuits import read_status, status_attributes
from fairbox.tables.stored_messages import StoredMessage, SubscriptionState
from fairbox.tables.tables import Tables
from fairbox.testing import CostMeter
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

SUBSCRIPTION = Subscription("orders", "a", "sqs:http://q/a")
TOPIC = TopicState(Topic("orders", shards=1), (Epoch(0, 1, 0),), (SUBSCRIPTION,))
statuses = st.builds(
    SubscriptionStatus,
    circuit=st.sampled_from(["open", "half-open"]),
    until=st.integers(0, 1 << 45),
    failures=st.integers(1, 100),
    since=st.integers(0, 1 << 45),
    reason=st.text(max_size=200),
    paused_at=st.none() | st.integers(0, 1 << 45),
    version=st.integers(1, 1 << 30),
)
FAILURES = (
    Outcome("refused", "HTTP 500", fault="destination"),
    Outcome("unreachable", "nobody there"),
    Outcome("throttled", "slow down"),
    Outcome("throttled", "slow down", retry_after=30),
)
POISON = Outcome("refused", "HTTP 400")
OWN = Outcome("refused", "too large", fault="message")


class Processes:
    """Some processes that share a subscription's row, each with its tables and its gate."""

    def __init__(self, count: int = 1, seed: int = 0) -> None:
        app = MemoryApplication(rng=random.Random(seed), wrap=CostMeter)
        app.outbox.create_topic(TOPIC.topic)
        app.outbox.add_subscription(SUBSCRIPTION)
        self.clock, self.ids, self.meter = app.clock, app.ids, app.client
        self.tables = [app.tables_of(app.clock) for _ in range(count)]
        self.gates = [Gate(tables, app.clock, app.rng) for tables in self.tables]
        past = Tables(app.engine, outbox=OUTBOX, deliveries=DELIVERIES, clock=app.clock)
        self._row = past.circuits

    @property
    def status(self) -> SubscriptionStatus:
        """The status as its row has it, read past the meter."""
        return self._row.read("orders", ["a"])["a"]

    def calls(self) -> dict[str, int]:
        """Return the calls since the start, but for comparisons of the topics' version."""
        return {name: n for name, n in self.meter.reading().calls.items() if name != "get_item"}

    @property
    def now(self) -> int:
        return milliseconds(self.clock)

    def jobs(self, attempts: Sequence[int]) -> list[Job]:
        made = []
        for n in attempts:
            message = Message(topic="orders", body=b"", id=self.ids.next())
            ref = MessageRef("orders", 0, 0, message.id)
            states = {"a": SubscriptionState(n)} if n else {}
            made.append(Job(SUBSCRIPTION, StoredMessage(message, ref, "ready", 0, states=states)))
        return made

    def call(self, outcome: Outcome, *, process: int = 0, attempts: Sequence[int] = (0,)) -> int:
        """Let a process send; return how many messages it sent."""
        gate = self.gates[process]
        self.tables[process].topic_cache.refresh()  # as each invocation does
        gate.admission(TOPIC)
        sent = gate.admit(self.jobs(attempts)).jobs
        if sent and gate.ready(SUBSCRIPTION):
            gate.answered(SUBSCRIPTION, [(job.stored, outcome) for job in sent])
        gate.drain()
        return len(sent)

    def opened(self, failures: int = 1) -> None:
        for _ in range(FAILURES_TO_OPEN):
            self.call(FAILURES[0])
        for _ in range(failures - 1):
            self.clock.advance(QUIET_CAP_SECONDS + 1)
            self.call(FAILURES[0])
        assert self.status.circuit == "open"


@given(statuses)
def test_a_status_is_read_back_from_its_row(status: SubscriptionStatus) -> None:
    assert read_status(status_attributes(status)) == status
    assert read_status({}) == NEW


@given(st.integers(1, 60), st.integers(0, 1 << 30))
def test_quiet_periods_grow_from_a_second_to_a_quarter_of_an_hour(failures: int, seed: int) -> None:
    opened = replace(NEW, failures=failures - 1).opened(0, "x", random.Random(seed))
    assert 1000 <= opened.until <= min(900, 2.0**failures) * 1000


def test_the_mean_of_quiet_periods_grows() -> None:
    rng = random.Random(1)
    means = [
        sum(replace(NEW, failures=n).opened(0, "x", rng).until for _ in range(300)) / 300
        for n in range(0, 12, 2)
    ]
    assert means == sorted(means)


@given(st.integers(0, 86_400), st.integers(0, 100))
def test_a_wait_that_was_asked_for_is_kept_to_the_millisecond(asked: int, seed: int) -> None:
    opened = NEW.opened(5, "x", random.Random(seed), asked=asked)
    assert opened.until == 5 + 1000 * max(1, asked)


outcomes = st.lists(st.sampled_from([TAKEN, *FAILURES[:3], POISON, OWN]), max_size=40)


@given(outcomes)
def test_it_opens_by_five_failures_in_a_row_and_by_nothing_else(sequence: list[Outcome]) -> None:
    world = Processes()
    run = 0
    for outcome in sequence:
        if world.status.circuit != "closed":
            break
        world.call(outcome)
        run = 0 if outcome.taken else run + (outcome is not OWN)
        assert (not world.status.ready) == (run >= FAILURES_TO_OPEN)


@given(st.lists(st.integers(1, 900), min_size=1, max_size=60))
def test_messages_that_were_refused_before_open_nothing(attempts: list[int]) -> None:
    world = Processes()
    for n in attempts:
        world.call(POISON, attempts=[n])
    assert world.status == NEW


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 120_000), st.integers(0, 4)), max_size=60),
    st.integers(0, 1 << 30),
)
def test_of_all_processes_one_probes_at_a_time(
    steps: list[tuple[int, int, int]], seed: int
) -> None:
    world = Processes(4, seed)
    world.opened()
    for process, wait, kind in steps:
        world.clock.advance(wait / 1000)
        status = world.status
        if status.circuit == "closed":
            break
        quiet = world.now < status.until
        sent = world.call([*FAILURES, TAKEN][kind], process=process, attempts=[0] * 20)
        assert sent <= (0 if quiet else 1)


@given(st.integers(1, 12), st.integers(0, 1 << 30))
def test_a_probe_that_is_taken_closes_it_for_everybody_within_five_seconds(
    failures: int, seed: int
) -> None:
    world = Processes(2, seed)
    world.opened(failures)
    world.clock.advance(QUIET_CAP_SECONDS + 1)
    world.gates[1].admission(TOPIC)
    assert world.call(TAKEN, attempts=[0] * 10) == 1
    assert world.status.ready
    assert world.call(TAKEN, attempts=[0] * 10) == 10
    world.clock.advance(5)
    assert world.call(TAKEN, process=1, attempts=[0] * 10) == 10


def test_a_probe_that_is_lost_blocks_others_for_twenty_seconds_only() -> None:
    world = Processes(2)
    world.opened()
    world.clock.advance(3)
    world.gates[0].admission(TOPIC)
    assert len(world.gates[0].admit(world.jobs([0])).jobs) == 1  # and nothing is heard of it
    world.clock.advance(PROBE_MS / 1000 - 1)
    assert world.call(TAKEN, process=1) == 0
    world.clock.advance(2.1)
    assert world.call(TAKEN, process=1) == 1
    assert world.status.ready


def test_a_probe_that_says_nothing_of_the_destination_lets_another_follow() -> None:
    world = Processes()
    world.opened(8)
    world.clock.advance(901)
    assert world.call(OWN) == 1
    assert world.status.until == world.now + 1000
    assert world.status.failures == 8


def test_a_probe_is_whoever_was_tried_least_and_of_a_key_its_first() -> None:
    world = Processes()
    world.opened()
    world.clock.advance(3)
    jobs = world.jobs([3, 1, 2, 1])
    world.gates[0].admission(TOPIC)
    admitted = world.gates[0].admit(jobs)
    assert admitted.jobs == [jobs[1]]
    assert {ref for ref, _ in admitted.waiting} == {job.stored.ref for job in jobs} - {
        jobs[1].stored.ref
    }
    keyed = [replace(job, in_order=True) for job in world.jobs([2, 0])]
    keyed = [
        replace(
            job,
            stored=replace(job.stored, message=replace(job.stored.message, partition_key="k")),
        )
        for job in keyed
    ]
    assert circuits._probe(keyed) == keyed[0]


def test_while_it_is_closed_nothing_is_read_or_written_and_while_quiet_neither() -> None:
    world = Processes()
    world.call(TAKEN)  # reads the topic
    calls = world.calls()
    for _ in range(50):
        world.call(TAKEN, attempts=[0] * 10)
        world.clock.advance(7)
    assert world.calls() == calls
    world.opened(12)
    world.call(TAKEN)
    until, calls = world.status.until, world.calls()
    while world.now < until - 1000:
        assert world.call(TAKEN) == 0
        world.clock.advance(1)
    assert world.calls() == calls


class TestRates:
    """A bucket gives, over any time, no more than its rate, a burst, and what came late."""

    @given(
        st.floats(0.01, 10_000),
        st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 500)), min_size=1, max_size=50),
    )
    def test_no_window_has_more_than_rate_and_burst(
        self, rate: float, steps: list[tuple[int, int]]
    ) -> None:
        now, spent = 1_000_000, 0
        given_out: list[tuple[int, int]] = []
        for wait, wanted in steps:
            now += wait
            tokens, spent = take(spent, now, rate, wanted)
            assert 0 <= tokens <= wanted
            given_out.append((now, tokens))
        burst = max(BURST_MS, 1000 / rate + 1) + LATE_MS
        for first, (begin, _) in enumerate(given_out):
            total = 0
            for at, tokens in given_out[first:]:
                total += tokens
                assert total <= (at - begin + burst) * rate / 1000 + 1e-6

    @given(st.floats(0.01, 10_000), st.integers(0, 1 << 20))
    def test_a_rested_bucket_always_gives_one(self, rate: float, begin: int) -> None:
        _, spent = take(0, begin, rate, 1000)
        assert take(spent, spent, rate, 1)[0] == 1
