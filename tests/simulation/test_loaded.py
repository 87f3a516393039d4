"""Worlds under load keep their guarantees."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox import RetryPolicy, Topic
from fairbox_simulation.chaos import Chaos
from fairbox_simulation.load.destinations import DOWN
from fairbox_simulation.load.invariants import READY_SECONDS, late
from fairbox_simulation.load.world import LoadWorld
from fairbox_simulation.scenarios import SCENARIOS

CHAOS = Chaos()
USUAL = {
    "backlog": ((2, 1000), (0, 3000), (1, 3000), (10, 1500), (35, 1500)),
    "latency": ((0, 30), (1, 60), (3, 60)),
    "rates": ((0, 400), (2, 400), (7, 400)),
    "payloads": ((2, 8), (0, 16), (1, 16)),
    "tenants": ((0, 1000), (1, 1000)),
    "attempts": ((0, 60), (1, 60), (2, 60)),
    "overdue": ((0, 1000),),
    "adding": ((0, 40), (1, 40), (2, 40)),
}
"""Seeds, and messages of each world, some fewer than the natural size: by day the first of each."""


def world(name: str, seed: int, size: int, **more: Any) -> Any:
    return pytest.param(name, seed, size, id=f"{name}-{seed}", **more)


# larger ones, of other seeds: minutes in all
WORLDS = [
    *(
        world(name, *each, marks=[pytest.mark.extended] * (each != small[0]))
        for name, small in USUAL.items()
        for each in small
    ),
    *(
        world(name, seed, SCENARIOS[name].per_world, marks=pytest.mark.extended)
        for name in USUAL
        for seed in (100, 101)
    ),
]


@pytest.mark.guarantee(
    "subscriptions-apart",
    "delay-on-time",
    "reads-bounded",
    "rate-visits",
    "own-pace",
    "refused-by-all",
    "bodies-once",
    "adding-again",
)
@pytest.mark.parametrize(("scenario", "seed", "messages"), WORLDS)
def test_no_subscription_waits_for_another_and_nothing_grows(
    scenario: str, seed: int, messages: int
) -> None:
    assert SCENARIOS[scenario].run(seed, CHAOS, messages) == []


@pytest.mark.extended  # a minute
def test_twenty_thousand_messages_that_wait_a_week_for_one_cost_the_other_little() -> None:
    waiting = LoadWorld(0)
    topic = Topic("deep", shards=1, retry=RetryPolicy(max_attempts=1000, cap=900))
    paused, healthy = waiting.create(topic, ["paused", "healthy"])
    waiting.pause(paused)
    began = waiting.clock.now()
    for number in range(500):
        if number == 450:  # an outage of a minute, behind 18,000 that wait
            healthy.destination.failure = DOWN
        if number == 480:
            healthy.destination.failure = None
            healthy.unready = [(began + 2 * 450 - 5, waiting.clock.now() + 150)]
        waiting.publish("deep", 40)
        waiting.timeline.sleep(2)
    waiting.timeline.sleep(READY_SECONDS + 600)
    assert len(healthy.destination.taken) == 20_000
    assert list(late(waiting, READY_SECONDS)) == []
    waiting.clock.set(waiting.clock.now() + 7 * 24 * 3600)
    waiting.timeline.sleep(120)
    # 1.04 a message; 1.46 where each walk begins at the head
    assert waiting.meter.reading().rru <= 1.2 * waiting.sent
    waiting.meter.reset()
    waiting.resume(paused)
    waiting.timeline.sleep(1800)
    assert len(paused.destination.taken) == 20_000
    assert waiting.meter.reading().rru <= 0.1 * 20_000
