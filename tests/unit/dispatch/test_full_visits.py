"""Visits apart keep their part of the limit in flight full, and never take more of it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest
from fairbox import Message, Subscription, Topic
from fairbox.dispatch.dispatcher import Dispatcher
from fairbox.dispatch.ports import TAKEN, Doorbell, Limits, Outcome
from fairbox.errors import Unavailable
from fairbox.model.clock import milliseconds
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryDestination

from tests.support.visit_workers import VisitWorkers

if TYPE_CHECKING:
    from fairbox.tables.lanes import ShardPage
    from fairbox.tables.stored_messages import StoredMessage

ANSWER: Final = 2.0  # s a call
SECONDS: Final = 28.0  # one visit after the other
RAMP: Final = 4.0  # s in which the visits begin
A_VISIT: Final = 10  # answers of one call after the other
SHARDS: Final = 8


class Simulation(VisitWorkers):
    """A topic with a backlog for one webhook that may have so many messages in flight.

    Args:
        limit: that many.
        backlog: messages; 0: as many as a simulation can send.
        rung: whether the relay enqueues visits.
        spread: how far the time of an answer is from the mean, at most, as a share of it.
    """

    def __init__(
        self, limit: int, *, spread: float = 0.0, backlog: int = 0, rung: bool = True
    ) -> None:
        super().__init__(wrap=CostMeter)
        self._rng = random.Random(1)
        self._spread = spread
        self.calls: list[tuple[float, float]] = []
        self.ids: list[str] = []
        self.app.outbox.create_topic(Topic("wide"))
        hook = MemoryDestination(Limits(1, 1 << 20), answer=self._take, quick=False)
        self.app.destinations.put("https://wide.example", hook)
        one = Subscription("wide", "hook", "https://wide.example", max_in_flight=limit)
        self.app.outbox.add_subscription(one)
        share = limit // one.groups
        # no shard runs out of messages
        deep = max(SHARDS * A_VISIT * share, int(limit / ANSWER * SECONDS))
        for _ in range(0, backlog or deep, 20):
            self.app.outbox.add_many(
                [Message(topic="wide", body=b"{}", id=self.app.ids.next()) for _ in range(20)]
            )
        if rung:
            self.app.relay()

    def _take(self, stored: StoredMessage) -> Outcome:
        began = self.clock.now()
        self.ids.append(stored.ref.id)
        self.clock.advance(ANSWER * (1 + self._spread * (2 * self._rng.random() - 1)))
        self.calls.append((began, self.clock.now()))
        return TAKEN

    def pace(self) -> float:
        """Return answers a second once the visits have begun: by the calls in hand, not whole."""
        begin, end = self.began + RAMP, self.began + SECONDS
        busy = sum(max(0.0, min(at, end) - max(began, begin)) for began, at in self.calls)
        return busy / ANSWER / (end - begin)

    def most(self) -> int:
        """Return how many calls were unanswered at once."""
        changes = sorted(
            [(began, 1) for began, _ in self.calls] + [(ended, -1) for _, ended in self.calls]
        )
        now = most = 0
        for _, change in changes:
            now += change
            most = max(most, now)
        return most


def check(simulation: Simulation, limit: int, share: float) -> None:
    simulation.run(SECONDS)
    assert simulation.most() <= limit
    assert simulation.pace() >= share * limit / ANSWER


@pytest.mark.parametrize("limit", [8, 100])
def test_a_limit_in_flight_is_full_and_kept(limit: int) -> None:
    check(Simulation(limit), limit, 0.95)


@pytest.mark.extended  # 14,000 messages
def test_the_largest_limit_in_flight_is_full_and_kept() -> None:
    check(Simulation(1000), 1000, 0.95)


def test_answers_of_different_times_leave_no_more_than_the_end_of_a_visit_empty() -> None:
    check(Simulation(100, spread=0.5), 100, 0.9)


@pytest.mark.parametrize("limit", [8, 100])
def test_pages_that_overlap_cost_no_further_reads_or_writes(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def units() -> tuple[float, float]:
        simulation = Simulation(limit, backlog=SHARDS * 60)
        meter: CostMeter = simulation.app.client
        meter.reset()
        simulation.run(400 if limit == 8 else 40)
        assert len(simulation.calls) == SHARDS * 60
        return meter.reading().rru, meter.reading().wru

    overlapping = units()
    monkeypatch.setattr(Dispatcher, "_flows", lambda *_: False)
    one_by_one = units()
    assert overlapping[0] <= one_by_one[0]
    assert overlapping[1] <= one_by_one[1]


def test_a_page_that_cannot_be_read_repeats_no_call_of_the_page_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(100, backlog=SHARDS * 150)
    read, reads = simulation.app.tables.lanes.page, count()

    def fail_at_times(*place: Any, **how: Any) -> ShardPage:
        if next(reads) % 2:
            raise Unavailable("query", "a test")
        return read(*place, **how)

    monkeypatch.setattr(simulation.app.tables.lanes, "page", fail_at_times)
    simulation.run(200)  # a doorbell that failed comes again after 90 s
    assert len(simulation.ids) > SHARDS * 20
    assert len(set(simulation.ids)) == len(simulation.ids)


def test_walks_that_go_on_at_once_are_one_for_a_shard_however_many_were_rung() -> None:
    simulation = Simulation(8, backlog=SHARDS * 120, rung=False)
    now = milliseconds(simulation.clock)
    first = Doorbell("wide", 0, 0, (), 0, now, "hook", since=1)
    simulation.bells.ring([first, *[replace(first, since=0)] * 4])
    simulation.run(21)  # the clock begins with the 2 s in which the subscription gets in force
    first_visit = [began for began, _ in simulation.calls if began < simulation.began + 20]
    assert len(first_visit) == 8 * 18 / ANSWER < len(simulation.calls)
    assert len(simulation.app.doorbells.now) == 1
    assert len(simulation.app.doorbells.later) == 0
