"""Payloads: large bodies in S3, several webhooks for each, and fetches that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox import Topic
from fairbox.dispatch.sending.bodies_in_hand import BYTES_IN_HAND

from fairbox_simulation.load.destinations import BodiesInS3
from fairbox_simulation.load.invariants import READY_SECONDS, late
from fairbox_simulation.load.world import LoadWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox_simulation.chaos import Chaos

TOPIC: Final = "files"
HOOKS: Final = (6, 2, 20)
SIZES: Final = (1 << 20, 6 << 20, 10)
"""Bytes of bodies; the last ones stay in their items."""
_CALL_SECONDS: Final = 0.5


def run_payloads(seed: int, chaos: Chaos, messages: int) -> list[str]:
    """Run one world; return every breach.

    Args:
        seed: chooses how many webhooks, and the rest; of even ones all messages come at once.
        chaos: of its faults, `tables`: of each fetch of a body, that it fails.
        messages: how many.
    """
    world = LoadWorld(seed)
    bodies = BodiesInS3(world.rng, chaos.tables)
    world.store_bodies(bodies)
    names = [f"hook{n}" for n in range(HOOKS[seed % len(HOOKS)])]
    pauses = [0.0, 0.2] if seed % 2 else [0.0]
    world.create(Topic(TOPIC, shards=1), names, _CALL_SECONDS)
    with world.threads.conditions():
        for _ in range(messages):
            body = world.rng.randbytes(world.rng.choice(SIZES))
            world.publish(TOPIC, 1, body=body)
            world.timeline.sleep(world.rng.choice(pauses))
        world.timeline.sleep(READY_SECONDS + 120)
    return [*_breaches(bodies), *late(world, READY_SECONDS)]


def _breaches(bodies: BodiesInS3) -> Iterator[str]:
    for key, invocations in bodies.fetched.items():
        most = max(invocations.values())
        if most > 1:
            yield f"fetched again: {key}: {most} times in one invocation"
    if bodies.most_in_hand > max(BYTES_IN_HAND, *SIZES):
        yield f"too many bytes in hand: {bodies.most_in_hand} of one invocation"
