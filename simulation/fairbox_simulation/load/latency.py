"""Latency: a subscription beside siblings that are slow, paused, away, closed or limited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox import RetryPolicy, Topic

from fairbox_simulation.load.destinations import DOWN, GONE
from fairbox_simulation.load.invariants import READY_SECONDS, held_back, in_flight, late
from fairbox_simulation.load.world import LoadWorld

if TYPE_CHECKING:
    from fairbox_simulation.chaos import Chaos
    from fairbox_simulation.load.world import Subscriber

TOPIC: Final = "orders"
WIDE: Final = "wide"
FAST: Final = "fast"
A_SECOND: Final = 6
WARM_SECONDS: Final = 60
"""Time in which each process meets each line and learns its pace."""
SLOW_SECONDS: Final = 2.0
IN_FLIGHT: Final = 100
SIBLINGS: Final = (5, 1, 59)
NEIGHBOURS: Final = 30
_REACHED: Final = 0.9


def run_latency(seed: int, chaos: Chaos, messages: int) -> list[str]:  # noqa: ARG001 - nothing fails here but destinations
    """Run one world, and one in which the fast subscription is alone; return every breach.

    Args:
        seed: of every fourth, thirty topics with a slow webhook each stand beside an ordered one;
            of the others, 5, 1 or 59 siblings beside a fast webhook.
        chaos: nothing of it.
        messages: how many, of which two thirds are a backlog for a limit of 100 in flight.
    """
    measured = -(-messages // 3)
    alone, beside = (_Setting(seed, crowded=crowded) for crowded in (False, True))
    waits = [setting.waits(measured) for setting in (alone, beside)]
    world = beside.world
    return [
        *late(world, READY_SECONDS),
        *held_back(waits[1], waits[0]),
        *(b for its in world.subscribers.values() for s in its for b in in_flight(s)),
        *run_wide(seed, messages - measured),
    ]


class _Setting:
    """A fast subscription, alone or in a crowd.

    Args:
        seed: chooses the crowd.
        crowded: whether there is one.
    """

    def __init__(self, seed: int, *, crowded: bool) -> None:
        self.world = LoadWorld(seed)
        self._keyed = seed % 4 == 3
        self._siblings = 0 if self._keyed else SIBLINGS[seed % len(SIBLINGS)]
        ordering = "key" if self._keyed else "none"
        retry = RetryPolicy(max_attempts=1000, cap=900)
        topic = Topic(TOPIC, shards=4, ordering=ordering, retry=retry)  # type: ignore[arg-type]  # one of both
        (self._fast,) = self.world.create(topic, [FAST])
        self._neighbours = NEIGHBOURS if crowded and self._keyed else 0
        for number in range(self._neighbours):
            self.world.create(Topic(f"slow{number}", shards=4), ["hook"], SLOW_SECONDS)
        if crowded:
            _add_siblings(self.world, self._siblings)

    def waits(self, messages: int) -> list[float]:
        """Return the seconds that so many messages took, after a minute in which pace is learnt."""
        a_second = A_SECOND if self._siblings < 10 else A_SECOND // 2
        self._produce(WARM_SECONDS * a_second, a_second)
        known = len(self.world.wanted[TOPIC])
        self._produce(messages, a_second)
        self.world.timeline.sleep(READY_SECONDS + 60)
        taken = self._fast.destination.taken
        measured = list(self.world.wanted[TOPIC].items())[known:]
        return [taken[i] - at for i, at in measured if i in taken] or [READY_SECONDS]

    def _produce(self, messages: int, a_second: int) -> None:
        """Publish so many a second, and to each neighbour one every two seconds."""
        world = self.world
        for number in range(messages):
            key = f"key{world.rng.randrange(8)}" if self._keyed else None
            world.publish(TOPIC, 1, key=key)
            if number % (2 * a_second) == 0:
                for neighbour in range(self._neighbours):
                    world.publish(f"slow{neighbour}", 1)
            world.timeline.sleep(1 / a_second)


def _add_siblings(world: LoadWorld, count: int) -> None:
    """Add as many as that: slow ones, and of more than one also paused, dead, closed, limited."""
    kinds = ("slow", "paused", "dead", "gone", "limited")
    for number in range(count):
        kind = kinds[number % len(kinds)]
        limit = {"max_in_flight": 3} if kind == "limited" else {}
        sibling = world.subscribe(TOPIC, f"{kind}{number}", SLOW_SECONDS, **limit)
        if kind == "paused":
            world.pause(sibling)
        elif kind in ("dead", "gone"):
            sibling.destination.failure = DOWN if kind == "dead" else GONE
            sibling.destination.seconds = 0.05
        if kind != "slow":
            sibling.unready = [(0.0, float("inf"))]  # it may lack what it likes


def run_wide(seed: int, messages: int) -> list[str]:
    """Deliver a backlog to a slow webhook that takes a hundred messages at a time."""
    world = LoadWorld(seed)
    hook: Subscriber
    (hook,) = world.create(Topic(WIDE, shards=8), ["hook"], SLOW_SECONDS, max_in_flight=IN_FLIGHT)
    world.publish(WIDE, messages)
    world.timeline.sleep(messages * SLOW_SECONDS / IN_FLIGHT + READY_SECONDS)
    enough = messages >= 4 * IN_FLIGHT
    return [*late(world, READY_SECONDS), *in_flight(hook, reached=_REACHED if enough else 0)]
