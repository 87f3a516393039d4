"""Overdue shards: thousands whose doorbells were lost, which one sweep after the other finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox import Topic

from fairbox_simulation.load.invariants import READY_SECONDS, late
from fairbox_simulation.load.world import LoadWorld

if TYPE_CHECKING:
    from fairbox_simulation.chaos import Chaos

TOPICS: Final = 20
SHARDS: Final = 256
CALL_SECONDS: Final = 0.025
"""Time of a call of the sweep to the tables or the queue."""


def run_overdue(seed: int, chaos: Chaos, messages: int) -> list[str]:  # noqa: ARG001 - what is lost is lost
    """Run one world; return every breach.

    Args:
        seed: chooses everything.
        chaos: nothing of it.
        messages: how many, over 5,120 shards of twenty topics.
    """
    world = LoadWorld(seed, sweep_seconds=CALL_SECONDS)
    for number in range(TOPICS):
        world.create(Topic(f"t{number}", shards=SHARDS), ["hook"], 0.01)
    world.functions.lost_doorbells = 1.0
    for number in range(messages):
        world.publish(f"t{number % TOPICS}", 1)
    world.timeline.sleep(5)
    world.functions.lost_doorbells = 0.0
    world.timeline.sleep(READY_SECONDS + 120)
    return list(late(world, READY_SECONDS))
