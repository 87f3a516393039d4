"""Workers of visits: thirty slow webhooks take none that an ordered topic needs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from fairbox import Message, Subscription, Topic
from fairbox.dispatch.ports import TAKEN, Doorbell, Limits, Outcome
from fairbox.testing.application import MemoryDestination

from tests.support.visit_workers import VisitWorkers

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage

SLOW: Final = 30  # topics with a webhook of two seconds
SLOW_RATE: Final = 0.3  # messages a second of each of them: 18 workers' work in all
ORDERED_RATE: Final = 5
SECONDS: Final = 30
LEARNT: Final = 5.0  # seconds until each process has met a slow line


class Simulation(VisitWorkers):
    """An ordered topic beside so many topics with a slow webhook."""

    def __init__(self, slow: int) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.taken = 0
        for name in ("ordered", *(f"slow{n}" for n in range(slow))):
            ordering = "key" if name == "ordered" else "none"
            self.app.outbox.create_topic(Topic(name, ordering=ordering))  # type: ignore[arg-type]  # one of both
            take = self._ordered if name == "ordered" else self._slowly
            address = f"https://{name}.example"
            self.app.destinations.put(
                address, MemoryDestination(Limits(1, 1 << 20), answer=take, quick=False)
            )
            self.app.outbox.add_subscription(Subscription(name, "hook", address))
            rate = ORDERED_RATE if name == "ordered" else SLOW_RATE
            first = random.Random(name).random() / rate
            for n in range(int(SECONDS * rate)):
                self.at(self.began + first + n / rate, lambda name=name: self._publish(name))  # type: ignore[misc]  # bound here

    def _ordered(self, stored: StoredMessage) -> Outcome:
        self.clock.advance(0.02)
        added = float(stored.message.body)
        if added > self.began + LEARNT:
            self.waits.append(self.clock.now() - added)
        return TAKEN

    def _slowly(self, _: StoredMessage) -> Outcome:
        self.clock.advance(2)
        self.taken += 1
        return TAKEN

    def _publish(self, topic: str) -> None:
        ids = self.app.ids
        message = Message(
            topic=topic,
            body=str(self.clock.now()).encode(),
            id=ids.next(),
            partition_key=ids.next(),
        )
        ref = self.app.outbox.add(message)
        self.bells.ring([Doorbell(topic, ref.epoch, ref.shard, (ref,))])


def waits(simulation: Simulation) -> list[float]:
    """Return how long each ordered message took (s), sorted."""
    simulation.run(SECONDS)
    return sorted(simulation.waits)


def p99(found: list[float]) -> float:
    return found[int(0.99 * (len(found) - 1))]


def test_thirty_slow_webhooks_take_no_worker_that_an_ordered_topic_needs() -> None:
    beside = Simulation(SLOW)
    quiet, busy = waits(Simulation(0)), waits(beside)
    assert len(busy) == len(quiet) > 100
    assert p99(busy) < 1.5 * p99(quiet)
    assert beside.taken > 0.5 * SLOW * SLOW_RATE * SECONDS
