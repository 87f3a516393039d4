"""The world of the full-system scenario: all parts of the application over the same tables.

Producers, relay, visits, sweep, repair, cleanup, resizes, redrives, batches whose items are carried
by messages, queues with consumers, and a topic that feeds another.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from fairbox import FairboxError, RetryPolicy, Subscription, Topic
from fairbox.destinations.topic import PulledTopic, add_to_topic
from fairbox.testing.application import OUTBOX

from fairbox_simulation.batch_item_world import BATCH_TOPICS, BatchItemWorld
from fairbox_simulation.consumer_checker import ConsumerChecker
from fairbox_simulation.consumers import Consumers
from fairbox_simulation.resizing_world import Crowd, ResizingWorld
from fairbox_simulation.world import SUBSCRIPTIONS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fairbox import MessageRef, Outbox

    from fairbox_simulation.chaos import Chaos, Skewed

UNORDERED: Final = "jobs"
ORDERED: Final = "steps"
FEEDER: Final = "feeder"
FED: Final = "fed"
QUEUES: Final = (UNORDERED, ORDERED, FED)
OPEN_HOURS: Final = 24 * 60  # longer than a world lasts: nobody leaves its batches


class AllProducers(Crowd):
    """Producers of all topics, who also edit, postpone and make due what waits in queues.

    Attributes:
        changed: changes made.
        rescheduled: ids of messages whose due time may be another than they were added with.
    """

    topics = (*Crowd.topics, UNORDERED, UNORDERED, ORDERED, ORDERED, FEEDER)
    keyed = (*Crowd.keyed, ORDERED)
    delayed = (*Crowd.delayed, UNORDERED)

    def __init__(self, world: WholeWorld, rng: random.Random) -> None:
        super().__init__(world, rng)
        self._operator = world.app.queue
        self.changed = 0
        self.rescheduled: set[str] = set()

    def act(self) -> int:
        """Do one thing; return how many messages it published."""
        if self._rng.random() < 0.06:
            self._change()
            return 0
        return super().act()

    def _change(self) -> None:
        waiting = [r for r in list(self.calls.published.values())[-80:] if r.topic == UNORDERED]
        if not waiting:
            return
        ref = self._rng.choice(waiting)
        changes: list[Callable[[], MessageRef | None]] = [
            partial(self._operator.edit, ref, headers={"edited": "yes"}),
            partial(self._operator.reschedule, ref, 0),
            partial(self._operator.reschedule, ref, 40.0),
        ]
        change = self._rng.choice(changes)
        if change is not changes[0]:
            self.rescheduled.add(ref.id)  # before the call, whose answer may be lost
        try:
            moved = change()
        except FairboxError:
            return  # it is held, or gone, or the tables failed: then it is as it was, or changed
        self.changed += 1
        if moved is not None:
            self.calls.published[ref.id] = moved


class WholeWorld(ResizingWorld, BatchItemWorld):
    """All parts of the application at once.

    Args:
        seed: chooses everything.
        chaos: how much goes wrong.

    Attributes:
        checker, consumers: of the pulled topics.
        cleaned: runs of the cleanup.
    """

    idle = 0.35
    pulled = frozenset({"pulled", *QUEUES})
    resized = (*SUBSCRIPTIONS, UNORDERED, ORDERED, FED, FEEDER)
    redriven = (*BATCH_TOPICS, "fragile", UNORDERED, ORDERED, FED, FEEDER)

    def __init__(self, seed: int, chaos: Chaos) -> None:
        super().__init__(seed, chaos)
        self.app.client.stormy = False
        retry = RetryPolicy(max_attempts=4, base=1, cap=30)
        for name in QUEUES:
            ordering = "key" if name == ORDERED else "none"
            self.app.outbox.create_topic(Topic(name, shards=2, ordering=ordering, retry=retry))  # type: ignore[arg-type]  # one of both
        self._feed(retry)
        self.app.client.stormy = True
        self.producers: AllProducers = AllProducers(self, self.rng)
        self.checker = ConsumerChecker(self.app, ordered=(ORDERED,), repeated=(FED,))
        self.consumers = Consumers(self, QUEUES, self._process, self.checker)
        self.cleaned = 0
        self._cleaned_at = self.app.clock.now()

    def _feed(self, retry: RetryPolicy) -> None:
        address = f"topic:{FED}"
        feeding = self.another(self.clock())
        self.app.destinations.put(address, PulledTopic(FED, partial(add_to_topic, feeding)))
        self.app.outbox.create_topic(Topic(FEEDER, shards=2, retry=retry))
        self.app.outbox.add_subscription(Subscription(FEEDER, "queue", address))

    def _process(self) -> tuple[Outbox, Skewed]:
        clock = self.clock()
        return self.another(clock), clock

    def _meanwhile(self) -> None:
        super()._meanwhile()
        if self._running <= 1:
            self._consume()

    def _schedules(self) -> None:
        super()._schedules()
        if self._storms and self.rng.random() < 0.5:
            self._consume()
        now = self.app.clock.now()
        if now - self._cleaned_at >= 3600:
            self._cleaned_at = now
            self.clean()

    def _consume(self) -> None:
        with self._fuse.spared():
            self.consumers.act()

    def clean(self) -> None:
        """Run the hourly cleanup."""
        self.cleaned += 1
        self.invoke(
            lambda: self.app.keeper.cleanup.clean(
                deadline=self.app.deadline, open_hours=OPEN_HOURS, sealed_hours=OPEN_HOURS
            )
        )

    def drain_queues(self, hours: float = 2) -> None:
        """In a calm world: consume until the queues are empty, or so long."""
        end = self.app.clock.now() + hours * 3600
        while self.app.clock.now() < end:
            self.calm(hours=0.5)
            for topic in QUEUES:
                self.consumers.drain(topic)
            self._drain()
            if not self.in_queues():
                return
            self.app.clock.advance(65)

    def in_queues(self) -> set[tuple[str, str]]:
        """Return topic and id of what lies in queues, and on its way into one."""
        found = set()
        for item in self.app.engine.items(OUTBOX):
            lane, _, rest = item["pk"]["S"].partition("#")
            topic, sk = rest.partition("#")[0], item["sk"]["S"]
            if lane in ("ready", "later") and topic in (*QUEUES, FEEDER) and sk != "!":
                found.add((topic, sk.rpartition("#")[2]))
        return found
