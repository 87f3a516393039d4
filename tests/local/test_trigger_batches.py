"""Batching of a lane: nothing lost, order kept, retries bounded, poison isolated."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.triggers.answers import Failure
from local.triggers.batches import (
    RETRIES_EXHAUSTED,
    TOO_OLD,
    Batch,
    BatchRules,
    GivenUp,
    Lane,
    lane_number,
)
from local.triggers.records import ENVELOPE_BYTES, StreamRecord
from tests.local.trigger_fakes import stream_record


@dataclass
class Run:
    """A lane driven against a function, on its own clock."""

    lane: Lane
    poison: set[int] = field(default_factory=set)
    flaky: set[int] = field(default_factory=set)
    report: bool = False
    now: float = 0.0
    invoked: list[list[int]] = field(default_factory=list)
    succeeded: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)

    def step(self) -> bool:
        work = self.lane.take(self.now)
        if work is None:
            return False
        if isinstance(work, Batch):
            work = self._invoke(work)
        if work is not None:
            self.given_up += [record.order for record in work.batch.records]
            self.conditions.append(work.condition)
        self.checkpoints.append(self.lane.checkpoint)
        return True

    def _invoke(self, batch: Batch) -> GivenUp | None:
        orders = [record.order for record in batch.records]
        failure = self._failure(orders)
        self.invoked.append(orders)
        done = len(orders) if failure is None else failure.first
        self.succeeded += orders[:done]
        return self.lane.finish(batch, failure, self.now)

    def _failure(self, orders: list[int]) -> Failure | None:
        if len(self.invoked) in self.flaky:
            return Failure(function_error="Unhandled")
        bad = [index for index, order in enumerate(orders) if order in self.poison]
        if not bad:
            return None
        if self.report:
            return Failure(first=bad[0], partial=True)
        return Failure(function_error="Unhandled")

    def drain(self) -> None:
        for _ in range(20_000):
            if self.step():
                continue
            wake_at = self.lane.wake_at()
            if wake_at is None:
                assert self.lane.outstanding == 0
                return
            assert wake_at > self.now, "the lane says there is work, and gives none"
            self.now = wake_at + 0.0001
        raise AssertionError("the lane never ends")


@dataclass(frozen=True)
class Arrival:
    filtered: bool
    size: int
    pause: float


arrivals = st.lists(
    st.builds(
        Arrival,
        filtered=st.booleans(),
        size=st.integers(0, 400),
        pause=st.sampled_from([0.0, 0.0, 0.4, 3.0]),
    ),
    max_size=40,
)
rules = st.builds(
    BatchRules,
    batch_size=st.integers(1, 8),
    window=st.sampled_from([0.0, 1.0, 20.0]),
    max_retries=st.integers(0, 3),
    bisect=st.booleans(),
    payload_limit=st.sampled_from([600, 2000, 6_000_000]),
)


def play(run: Run, given_arrivals: list[Arrival]) -> list[StreamRecord]:
    """Let records arrive while the lane works; returns those that were not filtered."""
    offered = []
    for order, arrival in enumerate(given_arrivals, start=1):
        run.now += arrival.pause
        record = stream_record(order, size=arrival.size)
        if arrival.filtered:
            run.lane.skip(order)
        else:
            run.lane.offer(record, run.now)
            offered.append(record)
        if order % 3 == 0:
            run.step()
    run.drain()
    return offered


@settings(max_examples=300)
@given(
    arrivals=arrivals,
    rules=rules,
    poison=st.sets(st.integers(1, 40), max_size=4),
    flaky=st.sets(st.integers(0, 60), max_size=6),
    report=st.booleans(),
)
def test_every_record_succeeds_or_is_given_up_exactly_once_and_filtered_ones_never_show(
    arrivals: list[Arrival], rules: BatchRules, poison: set[int], flaky: set[int], report: bool
) -> None:
    run = Run(Lane(rules, random.Random(1)), poison, flaky, report)
    offered = play(run, arrivals)
    expected = [record.order for record in offered]
    assert sorted(run.succeeded + run.given_up) == expected
    assert run.succeeded == sorted(run.succeeded)
    assert run.lane.checkpoint == len(arrivals)
    assert run.checkpoints == sorted(run.checkpoints)
    assert run.lane.counts["given_up"] == len(run.given_up)
    sizes = {record.order: record.size for record in offered}
    for orders in run.invoked:
        assert len(orders) <= rules.batch_size
        total = ENVELOPE_BYTES + sum(sizes[order] for order in orders)
        assert len(orders) == 1 or total <= rules.payload_limit


@given(arrivals=arrivals, rules=rules, poison=st.sets(st.integers(1, 40), max_size=4))
def test_the_number_of_invocations_of_a_record_is_bounded_by_retries_and_splits(
    arrivals: list[Arrival], rules: BatchRules, poison: set[int]
) -> None:
    for report in (False, True):
        run = Run(Lane(rules, random.Random(1)), poison, report=report)
        offered = play(run, arrivals)
        assert rules.max_retries is not None
        splits = (rules.batch_size if report else 3) if rules.bisect else 0
        for record in offered:
            times = sum(record.order in orders for orders in run.invoked)
            assert times <= rules.max_retries + 1 + splits


@given(arrivals=arrivals, rules=rules, poison=st.sets(st.integers(1, 40), max_size=4))
def test_bisecting_gives_up_the_poison_records_and_nothing_else(
    arrivals: list[Arrival], rules: BatchRules, poison: set[int]
) -> None:
    bisecting = BatchRules(
        batch_size=rules.batch_size, max_retries=rules.max_retries, bisect=True, window=rules.window
    )
    run = Run(Lane(bisecting, random.Random(1)), poison)
    offered = play(run, arrivals)
    assert run.given_up == [record.order for record in offered if record.order in poison]
    assert set(run.conditions) <= {RETRIES_EXHAUSTED}


@settings(max_examples=200)
@given(
    arrivals=arrivals,
    batch_size=st.integers(1, 8),
    bisect=st.booleans(),
    flaky=st.sets(st.integers(0, 60), max_size=6),
    share=st.sampled_from([0.3, 1.0]),
    seed=st.integers(0, 1000),
)
def test_repeating_loses_nothing_and_never_jumps_over_a_record(
    *,
    arrivals: list[Arrival],
    batch_size: int,
    bisect: bool,
    flaky: set[int],
    share: float,
    seed: int,
) -> None:
    rules = BatchRules(batch_size=batch_size, bisect=bisect, repeat_share=share)
    run = Run(Lane(rules, random.Random(seed)), flaky=flaky)
    offered = play(run, arrivals)
    places = {record.order: place for place, record in enumerate(offered)}
    assert set(run.succeeded) == set(places)
    reached = -1
    for orders in run.invoked:
        for order in orders:
            assert places[order] <= reached + 1
            reached = places[order]
    if share == 1.0 and offered:
        assert run.lane.counts["repeats"] > 0
        assert len(run.succeeded) > len(places)


def ready(count: int, rules: BatchRules, *, created: int = 0) -> Run:
    run = Run(Lane(rules, random.Random(1)))
    for order in range(1, count + 1):
        run.lane.offer(stream_record(order, created=created), run.now)
    return run


def test_a_batch_waits_for_its_window_and_goes_at_once_when_it_is_full() -> None:
    run = ready(2, BatchRules(batch_size=3, window=20.0))
    assert not run.step()
    assert run.lane.wake_at() == 20.0
    run.lane.offer(stream_record(3), 5.0)
    assert run.step()
    assert run.invoked == [[1, 2, 3]]
    run.lane.offer(stream_record(4), 6.0)
    run.now = 25.9
    assert not run.step()
    run.now = 26.0
    assert run.step()


def test_only_one_batch_of_a_lane_is_in_flight() -> None:
    lane = ready(4, BatchRules(batch_size=2)).lane
    first = lane.take(0.0)
    assert isinstance(first, Batch)
    assert lane.take(0.0) is None
    assert lane.wake_at() is None
    lane.finish(first, None, 0.0)
    second = lane.take(0.0)
    assert isinstance(second, Batch)
    with pytest.raises(ValueError, match="not in flight"):
        lane.finish(first, None, 0.0)


def test_a_partial_answer_resumes_from_the_record_that_was_named() -> None:
    run = ready(5, BatchRules(batch_size=5, max_retries=1))
    run.report = True
    run.poison = {3}
    run.drain()
    assert run.invoked == [[1, 2, 3, 4, 5], [3, 4, 5]]
    assert run.given_up == [3, 4, 5]
    assert run.succeeded == [1, 2]


def test_with_bisection_a_partial_answer_costs_no_attempt_until_the_first_record_is_named() -> None:
    run = ready(4, BatchRules(batch_size=4, max_retries=1, bisect=True))
    run.report = True
    run.poison = {2}
    run.drain()
    assert run.invoked == [[1, 2, 3, 4], [2, 3, 4], [2, 3, 4]]


def test_a_failed_batch_is_halved_until_the_poison_stands_alone() -> None:
    run = ready(8, BatchRules(batch_size=8, max_retries=0, bisect=True))
    run.poison = {8}
    run.drain()
    assert [len(orders) for orders in run.invoked] == [8, 4, 4, 2, 2, 1, 1]
    assert run.given_up == [8]


def test_what_is_repeated_of_a_half_is_followed_by_the_other_half() -> None:
    for seed in range(60):
        rules = BatchRules(batch_size=4, bisect=True, repeat_share=1.0)
        run = Run(Lane(rules, random.Random(seed)), flaky={0})
        for order in range(1, 9):
            run.lane.offer(stream_record(order), 0.0)
        run.drain()
        reached = 0
        for order in itertools.chain.from_iterable(run.invoked):
            assert order <= reached + 1
            reached = order


def test_the_bytes_of_a_batch_that_went_do_not_fill_the_next_one() -> None:
    run = Run(Lane(BatchRules(window=20.0, payload_limit=1000), random.Random(1)))
    for order in (1, 2, 3):
        run.lane.offer(stream_record(order, size=400), 0.0)
    assert run.step()
    assert run.invoked == [[1, 2]]
    assert not run.step()
    assert run.lane.wake_at() == 20.0


def test_retries_back_off_with_jitter_up_to_a_limit() -> None:
    run = ready(1, BatchRules(max_retries=12, backoff=1.0, backoff_limit=10.0))
    run.poison = {1}
    times = []
    while run.step():
        times.append(run.now)
        run.now = run.lane.wake_at() or run.now
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(pauses) == 12
    for number, pause in enumerate(pauses):
        most = min(10.0, 2.0**number)
        assert most / 2 <= pause <= most + 1e-6
    assert run.given_up == [1]


def test_records_that_grew_too_old_are_given_up_without_an_invocation() -> None:
    run = ready(2, BatchRules(max_age=60.0), created=0)
    run.lane.offer(stream_record(3, created=100), 0.0)
    run.now = 101.0
    run.drain()
    assert run.invoked == [[3]]
    assert run.given_up == [1, 2]
    assert run.conditions == [TOO_OLD]


def test_a_batch_under_retry_loses_only_the_records_that_grew_too_old() -> None:
    run = Run(Lane(BatchRules(max_age=60.0, backoff=10.0), random.Random(1)), flaky={0})
    run.lane.offer(stream_record(1, created=0), 0.0)
    run.lane.offer(stream_record(2, created=50), 0.0)
    run.now = 55.0
    assert run.step()
    run.now = 62.0
    run.drain()
    assert run.invoked == [[1, 2], [2]]
    assert run.given_up == [1]


def test_what_could_not_be_invoked_costs_no_attempt() -> None:
    lane = ready(1, BatchRules(max_retries=0)).lane
    now = 0.0
    for _ in range(5):
        batch = lane.take(now)
        assert isinstance(batch, Batch)
        assert lane.finish(batch, Failure(counts=False), now) is None
        now += 20.0
    batch = lane.take(now)
    assert isinstance(batch, Batch)
    assert batch.invokes == 0
    assert lane.finish(batch, Failure(function_error="Unhandled"), now) is not None


def test_filtered_records_move_the_position_only_over_what_is_done() -> None:
    run = ready(2, BatchRules(batch_size=2))
    run.lane.skip(3)
    assert run.lane.checkpoint == 0
    run.step()
    assert run.lane.checkpoint == 3
    run.lane.skip(4)
    assert run.lane.checkpoint == 4


def test_the_iterator_age_is_that_of_the_oldest_outstanding_record() -> None:
    run = ready(2, BatchRules(batch_size=1), created=100)
    assert run.lane.iterator_age(130.0) == 30.0
    run.drain()
    assert run.lane.iterator_age(130.0) == 0.0


@given(keys=st.lists(st.tuples(st.text(), st.text()), min_size=1))
def test_an_item_has_one_lane_and_a_partition_key_one_pseudo_shard(
    keys: list[tuple[str, str]],
) -> None:
    for key, item in keys:
        first = lane_number(stream_record(1, key=key, item=item), shards=4, factor=3)
        again = lane_number(stream_record(9, key=key, item=item), shards=4, factor=3)
        other = lane_number(stream_record(2, key=key, item=item + "x"), shards=4, factor=3)
        assert first == again
        assert first[0] == other[0]
        assert 0 <= first[0] < 4
        assert 0 <= first[1] < 3
        assert lane_number(stream_record(1, key=key, item=item), shards=4, factor=1)[1] == 0
