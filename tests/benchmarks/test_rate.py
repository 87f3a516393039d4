"""Rates: visits that wait for tokens do not multiply, and no message waits for a lost one.

No sweep runs here: a doorbell that is dropped wrongly leaves its shard's messages for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Subscription
from fairbox.testing.sqs import SqsFaults

from benchmarks import rate
from benchmarks.rate import Backlog

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_RRU = {0.1: 5.5, 1: 5.0, 10: 1.5, 100: 1.0, 1000: 1.0}
"""Read units a message while a backlog lasts, by rate, as `docs/explanation/circuits.md` says."""
WORLDS: Mapping[str, dict[str, Any]] = {
    "0.1 a second": {"rate": 0.1, "shards": 8, "messages": 60, "tick": 0.5},
    "1 a second": {"rate": 1, "shards": 8, "messages": 300},
    "1 a second, 64 shards": {"rate": 1, "shards": 64, "messages": 600},
    "10 a second": {"rate": 10, "shards": 8, "messages": 2_500},
    "10 a second, 64 shards": {"rate": 10, "shards": 64, "messages": 2_500},
    "100 a second": {"rate": 100, "shards": 8, "messages": 5_000},
    "1,000 a second": {"rate": 1000, "shards": 8, "messages": 11_000},
    "clocks that differ": {"rate": 10, "shards": 8, "messages": 1_500, "skew": 0.45},
}
SECONDS = {0.1: 500.0, 1: 250.0, 10: 120.0, 100: 40.0, 1000: 8.0}


def at_the_rate(backlog: Backlog, seconds: float, *, rru: float | None = None) -> None:
    """Run a backlog that lasts longer, and check its pace, its visits and its reads."""
    backlog.run(seconds)
    sent = backlog.sent.total()
    assert sent < backlog.messages, "there was no backlog to the end"
    expected = backlog.rate * backlog.seconds
    burst = 4 * max(backlog.rate, 1)
    assert 0.95 * expected - 1 <= sent <= expected + burst
    assert max(backlog.visits.values()) == 1, "a shard has one visit a second at most"
    assert backlog.visits.total() <= max(2.5 * sent, 60), "polls are fewer than messages"
    assert backlog.meter.reading().rru / sent <= (rru or MOST_RRU[backlog.rate])
    waiting = [*backlog.app.doorbells.now, *backlog.app.doorbells.later]
    assert len({(d.shard, d.not_before) for d in waiting if not d.refs}) <= 4 * backlog.shards


@pytest.mark.parametrize("world", WORLDS)
def test_a_backlog_is_delivered_at_the_rate_by_visits_that_do_not_multiply(world: str) -> None:
    backlog = Backlog(**WORLDS[world])
    at_the_rate(backlog, SECONDS[backlog.rate])


@pytest.mark.extended  # hours of simulated time, for half a minute
@pytest.mark.parametrize(("per_second", "hours"), [(0.1, 12), (1, 3), (10, 1)])
def test_for_hours_visits_do_not_multiply(per_second: float, hours: int) -> None:
    messages = round(per_second * hours * 3600 * 1.1)
    backlog = Backlog(per_second, 8, messages, tick=0.5 if per_second <= 1 else 0.1)
    at_the_rate(backlog, hours * 3600)


@pytest.mark.parametrize("skew", [0.0, 0.45])
def test_all_is_delivered_to_the_last_message_and_then_all_is_quiet(skew: float) -> None:
    backlog = Backlog(10, 8, 600, skew=skew)
    backlog.app.doorbells.sqs.faults = SqsFaults(duplicates=0.1, disorder=0.3)
    backlog.run(90)
    assert backlog.sent.total() == 600
    received = backlog.app.destinations["sqs:limited"].ids
    assert len(set(received)) == 600
    for _ in range(100):
        backlog.step()
    visited = backlog.visits.total()
    for _ in range(600):
        backlog.step()
    assert backlog.visits.total() == visited, "nothing waits, and yet there are visits"


def test_more_than_the_rate_is_published_and_each_shard_gets_its_turns() -> None:
    backlog = Backlog(10, 8, 100, arrivals=20)
    # the first visits of twice as many messages, each of which notes where its walk begins
    at_the_rate(backlog, 60, rru=3.5)
    shards = {m.ref.shard for m in backlog.app.destinations["sqs:limited"].received[-300:]}
    assert shards == set(range(8))


def test_less_than_the_rate_waits_for_nothing() -> None:
    backlog = Backlog(10, 64, 10, arrivals=6)
    backlog.run_through(60)
    received = backlog.app.destinations["sqs:limited"].received
    assert backlog.messages - len(received) <= 12
    late = [backlog.taken[m.ref.id] - backlog.published[m.ref.id] for m in received]
    assert max(late) <= 5


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_a_sibling_without_a_rate_waits_for_nothing(ordering: Any) -> None:
    plain = Subscription(rate.TOPIC, "plain", "sqs:plain")
    backlog = Backlog(10, 8, 900, others=[plain], ordering=ordering)
    backlog.run(5)
    if ordering == "none":
        assert len(backlog.app.destinations["sqs:plain"].received) == 900
    assert backlog.sent.total() <= 90


def test_an_ordered_backlog_is_delivered_at_the_rate() -> None:
    backlog = Backlog(10, 8, 1_500, ordering="key")
    backlog.run(60)
    assert 0.95 * 600 <= backlog.sent.total() <= 640
    assert backlog.meter.reading().rru / backlog.sent.total() <= 4
