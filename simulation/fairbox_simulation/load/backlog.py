"""A deep shard: most of its messages wait for siblings that are paused, closed or away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox import RetryPolicy, Topic

from fairbox_simulation.load.destinations import DOWN, GONE
from fairbox_simulation.load.invariants import (
    READY_SECONDS,
    REPAIRED_SECONDS,
    delayed,
    late,
    reads,
)
from fairbox_simulation.load.world import LoadWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox_simulation.chaos import Chaos
    from fairbox_simulation.load.world import Subscriber

TOPIC: Final = "deep"
SIBLINGS: Final = (5, 1, 60)
DELAYS: Final = (30.0, 300.0, 1200.0, 3700.0, 7300.0)
HOURS: Final = 8.0
_A_SECOND: Final = 50
_HOUR: Final = 3600.0


class Backlog:
    """A world of one shard, with 5, 1 or 60 subscriptions by seed; odd seeds lose doorbells.

    Of five, one is always ready; one is paused for hours from the beginning; one answers 410 and is
    resumed hours later; one is away for twenty minutes, and one for a minute, when much waits for
    the others.

    Args:
        seed: chooses everything.
        chaos: of its faults, `lost_doorbells`.
        messages: how many, of five subscriptions; a sixth of them of sixty.
    """

    def __init__(self, seed: int, chaos: Chaos, messages: int) -> None:
        self._lost = chaos.lost_doorbells if seed % 2 else 0.0
        self.world = world = LoadWorld(seed, lost_doorbells=self._lost)
        self._siblings = SIBLINGS[seed % len(SIBLINGS)]
        self._messages = messages if self._siblings < 10 else -(-messages // 15)
        names = [f"s{n}" for n in range(self._siblings)]
        retry = RetryPolicy(max_attempts=1000, cap=900)  # an outage kills nothing here
        self._its = world.create(Topic(TOPIC, shards=1, retry=retry), names)
        self._delays: dict[str, float] = {}
        self._plan: list[tuple[float, Callable[[Subscriber], None], Subscriber]] = []
        for number, subscriber in enumerate(self._its):
            self._plan += self._fate(number % 5 if self._siblings > 1 else 4, subscriber)
        self._began = world.clock.now()

    def _fate(
        self, kind: int, subscriber: Subscriber
    ) -> list[tuple[float, Callable[[Subscriber], None], Subscriber]]:
        hours = self.world.rng.uniform(2, 6) * _HOUR
        world = self.world
        plans: dict[int, list[tuple[float, Callable[[Subscriber], None], Subscriber]]] = {
            1: [(0.0, world.pause, subscriber), (hours, world.resume, subscriber)],
            2: [(5.0, self._close, subscriber), (hours / 2, self._reopen, subscriber)],
            3: [(10.0, self._leave, subscriber), (1200.0, self._return, subscriber)],
            4: [(45.0, self._leave, subscriber), (105.0, self._return, subscriber)],
        }
        return plans.get(kind, [])

    def _close(self, subscriber: Subscriber) -> None:
        subscriber.destination.failure = GONE
        subscriber.unready.append((self.world.clock.now() - 5, float("inf")))

    def _reopen(self, subscriber: Subscriber) -> None:
        subscriber.destination.failure = None
        self.world.resume(subscriber)

    def _leave(self, subscriber: Subscriber) -> None:
        subscriber.destination.failure = DOWN
        subscriber.unready.append((self.world.clock.now() - 5, float("inf")))

    def _return(self, subscriber: Subscriber) -> None:
        """Come back: the circuit closes when it is probed next, after 15 minutes at most."""
        subscriber.destination.failure = None
        begun, _ = subscriber.unready.pop()
        away = self.world.clock.now() - begun
        closed = self.world.clock.now() + min(900.0, 2 * away) + 30
        subscriber.unready.append((begun, closed))

    def run(self) -> list[str]:
        """Run the world for some hours; return every breach."""
        self._publish()
        world = self.world
        for at, act, subscriber in sorted(self._plan, key=lambda step: step[0]):
            self._until(at)
            act(subscriber)
        self._until(HOURS * _HOUR)
        minutes = (world.clock.now() - self._began) / 60
        if self._lost:
            return list(late(world, REPAIRED_SECONDS))
        return [
            *late(world, READY_SECONDS),
            *delayed(world, self._delays),
            *reads(world, minutes),
        ]

    def _publish(self) -> None:
        """Start a producer: some messages a second, a part of them delayed."""

        def produce() -> None:
            left = self._messages
            while left > 0:
                count = min(left, self.world.rng.randint(1, 2 * _A_SECOND))
                delay = self.world.rng.choice(DELAYS) if self.world.rng.random() < 0.3 else 0.0
                if delay:
                    count = min(count, 5)
                known = len(self.world.refs)
                self.world.publish(TOPIC, count, delay=delay)
                if delay:
                    self._delays |= {ref.id: delay for ref in self.world.refs[known:]}
                left -= count
                self.world.timeline.sleep(1.0)

        self.world.timeline.start(produce)

    def _until(self, seconds: float) -> None:
        wait = self._began + seconds - self.world.clock.now()
        if wait > 0:
            self.world.timeline.sleep(wait)


def run_backlog(seed: int, chaos: Chaos, messages: int) -> list[str]:
    """Run one world; return every breach, as "kind: details"."""
    return Backlog(seed, chaos, messages).run()
