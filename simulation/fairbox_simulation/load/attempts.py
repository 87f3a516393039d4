"""Attempts: messages that up to sixty subscriptions refuse until they die."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox import RetryPolicy, Topic
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import DELIVERIES

from fairbox_simulation.load.destinations import REFUSED
from fairbox_simulation.load.world import LoadWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox_simulation.chaos import Chaos

TOPIC: Final = "refused"
REFUSING: Final = (60, 5, 1)
ATTEMPTS: Final = 10
WRITES: Final = 1.1
"""WRU for an attempt of a message of 1 KB."""
DEATH_WRITES: Final = 4.0
"""WRU for the death of a message of 1 KB for one subscription, added and counted."""
ROW_WRITES: Final = 40.0
"""WRU for the shard's row and its circuits, in windows that have one event each."""
_HOURS: Final = 2.0


def run_attempts(seed: int, chaos: Chaos, messages: int) -> list[str]:  # noqa: ARG001 - destinations alone fail
    """Run one world; return every breach.

    Args:
        seed: chooses how many subscriptions refuse, and the rest.
        chaos: nothing of it.
        messages: how many, divided by the subscriptions.
    """
    world = LoadWorld(seed)
    refusing = REFUSING[seed % len(REFUSING)]
    names = [f"s{n}" for n in range(refusing)]
    retry = RetryPolicy(max_attempts=ATTEMPTS, cap=300)
    its = world.create(Topic(TOPIC, shards=1, retry=retry), names)
    for subscriber in its:
        subscriber.destination.failure = REFUSED
    world.publish(TOPIC, -(-messages // refusing), body=b"x" * 700)
    world.timeline.sleep(_HOURS * 3600)
    return list(_breaches(world))


def _breaches(world: LoadWorld) -> Iterator[str]:
    dead = {
        (stored.ref.id, name)
        for item in world.app.engine.items(DELIVERIES)
        if item["pk"]["S"].startswith("dead#")
        for stored in [read_message(item)]
        for name in stored.pending or ()
    }
    attempts = 0
    for subscriber in world.subscribers[TOPIC]:
        name = subscriber.subscription.name
        for message_id in world.wanted[TOPIC]:
            tries = subscriber.destination.tries[message_id]
            attempts += tries
            if (message_id, name) not in dead:
                yield f"never dies: {message_id} for {name} after {tries} attempts"
            if tries > ATTEMPTS:
                yield f"tried too often: {message_id} for {name}: {tries} of {ATTEMPTS}"
    written = world.meter.reading().wru
    if written > WRITES * attempts + DEATH_WRITES * len(dead) + ROW_WRITES:
        yield f"too many writes: {written:.0f} WRU for {attempts} attempts and {len(dead)} deaths"
