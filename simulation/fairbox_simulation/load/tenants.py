"""Tenants: many topics, to which topics are added and whose subscriptions change all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox import Topic

from fairbox_simulation.load.invariants import READY_SECONDS, late, reads
from fairbox_simulation.load.world import LoadWorld

if TYPE_CHECKING:
    from fairbox_simulation.chaos import Chaos
    from fairbox_simulation.load.world import Subscriber

TOPICS: Final = (60, 150, 1)
A_SECOND: Final = 100
EVERY: Final = 10.0
"""Seconds between two changes, of which each third is a new topic."""
READS: Final = 0.1
"""RRU for a message that the relay sends, whatever the number of topics."""
_WARM_SECONDS: Final = 150.0


def run_tenants(seed: int, chaos: Chaos, messages: int) -> list[str]:  # noqa: ARG001 - nothing fails here
    """Run one world; return every breach.

    Args:
        seed: chooses how many topics, and the rest.
        chaos: nothing of it.
        messages: how many, after the processes have been warm for two minutes.
    """
    world = LoadWorld(seed)
    names = [f"tenant{n}" for n in range(TOPICS[seed % len(TOPICS)])]
    for name in names:
        world.create_queue(Topic(name, shards=1))
    for name in names * 3:  # three stream shards, each with processes of its own
        world.publish(name, 1)
    world.timeline.sleep(_WARM_SECONDS)
    world.meter.reset()
    before, began = world.sent, world.clock.now()
    changes = 0
    for _ in range(-(-messages // A_SECOND)):
        for _ in range(10):
            for _ in range(A_SECOND // 10):
                world.publish(world.rng.choice(names), 1)
            world.timeline.sleep(0.1)
        if world.clock.now() - began >= EVERY * changes:
            changes += 1
            _change(world, names, changes)
    minutes = (world.clock.now() - began) / 60
    found = list(reads(world, minutes, READS, before=before, rows=False))
    world.timeline.sleep(READY_SECONDS)
    return [*found, *late(world, READY_SECONDS)]


def _change(world: LoadWorld, names: list[str], number: int) -> None:
    """Create a topic, or pause the subscription of one, or resume those that are paused."""
    if number % 3 == 0:
        world.create_queue(Topic(f"new{number}", shards=1))
        return
    subscriber = world.rng.choice(world.subscribers[world.rng.choice(names)])
    if subscriber.unready and subscriber.unready[-1][1] == float("inf"):
        world.resume(subscriber)
    else:
        world.pause(subscriber)
        world.timeline.start(_resume_later, world, subscriber)


def _resume_later(world: LoadWorld, subscriber: Subscriber) -> None:
    world.timeline.sleep(5.0)
    if subscriber.unready[-1][1] == float("inf"):
        world.resume(subscriber)
