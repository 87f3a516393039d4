"""A world under load: an application in simulated time, its operator, and what is measured."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Outbox, Subscription, Topic
from fairbox.dispatch.ports import Limits
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX, MemoryApplication
from fairbox.testing.meter import CostMeter

from fairbox_simulation.load.destinations import TimedDestination
from fairbox_simulation.load.functions import Functions
from fairbox_simulation.load.threads import Threads
from fairbox_simulation.load.timeline import Timeline, TimelineClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox import MessageRef

    from fairbox_simulation.load.destinations import BodiesInS3

BATCH: Final = 25


@dataclass
class Subscriber:
    """A subscription, its destination, and when it was not ready.

    Attributes:
        unready: from when to when, in seconds since 1970: paused, away, or its circuit open.
    """

    subscription: Subscription
    destination: TimedDestination
    unready: list[tuple[float, float]] = field(default_factory=list)

    def latest(self, wanted: float, within: float) -> float:
        """Return until when it should have what was wanted from then on, if ready so long."""
        until = wanted + within
        for begins, ends in sorted(self.unready):
            if begins <= until and ends > wanted:
                wanted, until = max(wanted, ends), max(wanted, ends) + within
        return until


class LoadWorld:
    """One run; all chance comes from the seed.

    Args:
        seed: chooses everything.
        lost_doorbells: share of doorbells that never come.
        sweep_seconds: duration of each call of the sweep.

    Attributes:
        operator: publishes and administrates; what that costs is not metered.
        meter: of what the functions read and write.
        wanted: when each message should go, by topic and id: added, or due (seconds since 1970).
        subscribers: by topic.
    """

    def __init__(
        self, seed: int, *, lost_doorbells: float = 0.0, sweep_seconds: float = 0.0
    ) -> None:
        self.rng = random.Random(seed)
        clock = TimelineClock()
        self.timeline = Timeline(clock)
        self.app = MemoryApplication(clock=clock, rng=random.Random(seed + 1), wrap=CostMeter)
        self.meter: CostMeter = self.app.client
        self.clock = clock
        self.threads = Threads(self.timeline)
        self.functions = Functions(
            self.app,
            self.timeline,
            self.threads,
            self.rng,
            lost_doorbells=lost_doorbells,
            sweep_seconds=sweep_seconds,
        )
        self.operator = self._make_operator()
        self.wanted: dict[str, dict[str, float]] = defaultdict(dict)
        self.subscribers: dict[str, list[Subscriber]] = defaultdict(list)
        self.refs: list[MessageRef] = []

    def _make_operator(self) -> Outbox:
        return Outbox(
            self.app.engine,
            table=OUTBOX,
            deliveries_table=DELIVERIES,
            batches_table=BATCHES,
            bodies=self.app.bodies,
            doorbells=self.functions.doorbells,
            clock=self.clock,
            rng=self.app.rng,
        )

    def store_bodies(self, bodies: BodiesInS3) -> None:
        """Let bodies be stored there; before anything is published."""
        self.app.bodies = bodies
        self.operator = self._make_operator()

    def create(
        self, topic: Topic, names: Sequence[str], seconds: float = 0.05, **more: Any
    ) -> list[Subscriber]:
        """Create a topic with webhooks that answer after so many seconds.

        Args:
            topic: the topic.
            names: of its subscriptions, which are in force when this returns.
            seconds: duration of a call.
            more: fields of the subscriptions.
        """
        self.operator.create_topic(topic)
        its = [
            Subscriber(
                Subscription(topic.name, name, f"https://{name}.{topic.name}.example/", **more),
                TimedDestination(self.timeline, seconds),
            )
            for name in names
        ]
        return self._subscribe(topic.name, its)

    def create_queue(self, topic: Topic) -> None:
        """Create a topic that goes to a queue, which the relay calls."""
        self.operator.create_topic(topic)
        destination = TimedDestination(self.timeline, 0.01, Limits(10, 1 << 20), quick=True)
        subscription = Subscription(topic.name, "queue", f"sqs:http://q/{topic.name}")
        self._subscribe(topic.name, [Subscriber(subscription, destination)])

    def subscribe(self, topic: str, name: str, seconds: float, **more: Any) -> Subscriber:
        """Add a webhook to a topic."""
        subscription = Subscription(topic, name, f"https://{name}.{topic}.example/", **more)
        its = Subscriber(subscription, TimedDestination(self.timeline, seconds))
        return self._subscribe(topic, [its])[0]

    def _subscribe(self, topic: str, its: list[Subscriber]) -> list[Subscriber]:
        for subscriber in its:
            address = subscriber.subscription.destination
            self.app.destinations.put(address, subscriber.destination)
        self.subscribers[topic] += its
        self.operator.add_subscriptions([s.subscription for s in its])
        return its

    def publish(
        self,
        topic: str,
        count: int,
        *,
        delay: float = 0,
        body: bytes = b"{}",
        key: str | None = None,
    ) -> None:
        """Add messages now."""
        made = [
            Message(topic=topic, body=body, delay=delay, partition_key=key, id=self.app.ids.next())
            for _ in range(count)
        ]
        for start in range(0, count, BATCH):
            self.refs += self.operator.add_many(made[start : start + BATCH])
        now = self.clock.now() + delay
        self.wanted[topic].update({str(m.id): now for m in made})

    def pause(self, subscriber: Subscriber) -> None:
        """Pause a subscription."""
        subscription = subscriber.subscription
        self.operator.pause_subscription(subscription.topic, subscription.name)
        subscriber.unready.append((self.clock.now() - 5, float("inf")))

    def resume(self, subscriber: Subscriber) -> None:
        """Resume a subscription that was paused, or that was closed by its receiver."""
        subscription = subscriber.subscription
        self.operator.resume_subscription(subscription.topic, subscription.name)
        begun, _ = subscriber.unready.pop()
        subscriber.unready.append((begun, self.clock.now()))

    @property
    def sent(self) -> int:
        """The number of messages that destinations took, each counted once."""
        return sum(len(s.destination.taken) for its in self.subscribers.values() for s in its)

    def visits_a_second(self) -> Counter[tuple[str, int, int, str]]:
        """Return by shard and subscription the most visits that began in one second."""
        most: Counter[tuple[str, int, int, str]] = Counter()
        for (*shard, name, _), count in self.functions.visits.items():
            place = (*shard, name)
            most[place] = max(most[place], count)  # type: ignore[index]
        return most
