"""Rates: backlogs that a subscription's rate holds up, beside a sibling without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox import Topic

from fairbox_simulation.load.invariants import READY_SECONDS, late, paced, reads, visits
from fairbox_simulation.load.world import LoadWorld

if TYPE_CHECKING:
    from fairbox_simulation.chaos import Chaos

TOPIC: Final = "paced"
RATES: Final = (10.0, 100.0, 2.0)
SHARDS: Final = (8, 1, 32)
VISITS: Final = 2
"""Visits of a shard and second for one rate: one that its doorbell was for, and one after it."""
READS: Final = 3.0
"""RRU for a message that waits for a rate."""
_REACHED: Final = 0.7
"""The last wave comes in the turns of 32 shards, which are half a minute apart."""


def run_rates(seed: int, chaos: Chaos, messages: int) -> list[str]:  # noqa: ARG001 - nothing fails here
    """Run one world; return every breach.

    Args:
        seed: chooses rate and shards, and the rest.
        chaos: nothing of it.
        messages: how many; a fifth of them at a rate of 2 a second.
    """
    world = LoadWorld(seed)
    rate = RATES[seed % len(RATES)]
    shards = SHARDS[seed // len(RATES) % len(SHARDS)]
    count = messages if rate > 2 else -(-messages // 5)
    world.operator.create_topic(Topic(TOPIC, shards=shards))
    limited = world.subscribe(TOPIC, "limited", 0.02, rate=rate)
    world.subscribe(TOPIC, "free", 0.02)
    seconds = count / rate
    limited.unready = [(0.0, world.clock.now() + seconds / 0.9)]
    for _ in range(4):
        world.publish(TOPIC, count // 4)
        world.timeline.sleep(seconds / 8)
    world.timeline.sleep(seconds / 2)
    reached = list(paced(limited, seconds, reached=_REACHED if seconds >= 10 else 0))
    world.timeline.sleep(seconds + READY_SECONDS)
    return [
        *reached,
        *visits(world, VISITS),
        *reads(world, seconds / 60 + 3, READS),
        *late(world, READY_SECONDS),
    ]
