"""A simulated world: the application in memory, driven as Lambda, streams and queues drive it."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any

from fairbox import FairboxError, RetryPolicy, Subscription, Topic
from fairbox.dispatch.dispatcher import Dispatcher, in_turn
from fairbox.dispatch.marking import Marking
from fairbox.dispatch.relay import Relay
from fairbox.dispatch.sweep import Sweep
from fairbox.dispatch.visit import Visits
from fairbox.dynamodb.store import DynamoStore
from fairbox.dynamodb.tables import Tables
from fairbox.simulation.chaos import (
    OUTAGES,
    Chaos,
    Client,
    Fuse,
    FusedAcks,
    FusedArchive,
    FusedDoorbells,
    Killed,
    Mood,
)
from fairbox.simulation.producers import Producers
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX, MemoryApplication

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.dispatch.ports import Doorbell

SUBSCRIPTIONS = {
    "plain": ("one",),
    "fan": ("a", "b", "c"),
    "ordered": ("first", "second"),
    "pulled": (),
    "fragile": ("only", "other"),
    "slow": ("hook",),
}
LIMITS: dict[str, dict[str, Any]] = {"c": {"rate": 2.0}, "hook": {"max_in_flight": 2}}
STREAM_SHARDS = 3
TRIES = 4
RECEIVES = 4

Record = dict[str, Any]


class Reader:
    """An event source mapping: one stream, several shards, order kept by partition key."""

    def __init__(
        self, world: World, handle: Callable[[list[Record]], object], *, batch: int
    ) -> None:
        self._world = world
        self._handle = handle
        self._batch = batch
        self._position: str | None = None
        self._queues: list[deque[Record]] = [deque() for _ in range(STREAM_SHARDS)]
        self._busy: set[int] = set()
        self.given_up: list[Record] = []

    def pull(self) -> None:
        """Take what is new in the stream into the shards' queues."""
        records = self._world.app.records(self._position)
        for record in records:
            pk = record["dynamodb"]["Keys"]["pk"]["S"]
            self._queues[sum(pk.encode()) % STREAM_SHARDS].append(record)
        if records:
            self._position = records[-1]["dynamodb"]["SequenceNumber"]

    @property
    def waiting(self) -> int:
        """Records that were not handled yet."""
        return sum(map(len, self._queues))

    def invoke(self) -> None:
        """Handle one batch of one shard."""
        ready = [n for n, q in enumerate(self._queues) if q and n not in self._busy]
        if not ready:
            return
        shard = self._world.rng.choice(ready)
        queue = self._queues[shard]
        size = min(len(queue), self._world.rng.randint(1, self._batch))
        batch = [queue.popleft() for _ in range(size)]
        self._busy.add(shard)
        try:
            self._until_done(batch, TRIES)
            if self._world.rng.random() < self._world.chaos.repeats:
                self._until_done(batch, TRIES)
        finally:
            self._busy.discard(shard)

    def _until_done(self, batch: list[Record], tries: int) -> None:
        """Handle a batch, again in halves when it fails, and give it up after some tries."""
        if self._world.invoke(lambda: self._handle(batch)):
            return
        self._world.app.clock.advance(self._world.rng.choice([0.2, 2, 25]))
        if tries <= 0 and self._world.chaos.given_up:
            name = f"batch-{self._world.rng.getrandbits(64):x}"
            self._world.app.given_up.kept[name] = batch
            self.given_up += batch
            return
        middle = len(batch) // 2 or 1
        for part in (batch[:middle], batch[middle:]):
            if part:
                self._until_done(part, tries - 1)


class World:
    """One run: all chance comes from the seed.

    Args:
        seed: chooses everything.
        chaos: how much goes wrong.
    """

    def __init__(self, seed: int, chaos: Chaos) -> None:
        self.rng = random.Random(seed)
        self.chaos = chaos
        self._fuse = Fuse()
        self._running = 0
        self._groups: set[str] = set()
        self._storms = True
        self.app = MemoryApplication(
            rng=random.Random(seed + 1),
            wrap=lambda engine: Client(engine, self.rng, chaos, self._fuse),
        )
        self._make_topics()
        self._moods = [
            Mood(
                self.app.destinations[f"sqs:{topic}-{name}"],
                self.rng,
                chaos,
                self._fuse,
                self._meanwhile,
                wait=self.app.clock.advance,
            )
            for topic, names in SUBSCRIPTIONS.items()
            for name in names
        ]
        self.app.destinations["sqs:slow-hook"].quick = False
        self.producers = Producers(self.app, self.rng)
        self._make_functions()
        self._swept = self._repaired = self.app.clock.now()

    def _make_topics(self) -> None:
        self.app.client.stormy = False
        for topic, names in SUBSCRIPTIONS.items():
            retry = RetryPolicy(max_attempts=3 if topic == "fragile" else 10, cap=60)
            ordering = "key" if topic == "ordered" else "none"
            self.app.outbox.create_topic(
                Topic(topic, shards=3, ordering=ordering, retry=retry)  # type: ignore[arg-type]  # one of both
            )
            for name in names:
                self.app.outbox.add_subscription(
                    Subscription(topic, name, f"sqs:{topic}-{name}", **LIMITS.get(name, {}))
                )
        self.app.client.stormy = True

    def _make_functions(self) -> None:
        app = self.app
        self._doorbells = FusedDoorbells(app.doorbells, self._fuse, self.rng, self.chaos)
        dispatchers = [
            Dispatcher(
                self._store(),
                app.destinations,
                self._doorbells,
                clock=app.clock,
                rng=app.rng,
                fan_out=in_turn,
            )
            for _ in range(2)
        ]
        relay = Relay(dispatchers[0])
        self._visits = Visits(dispatchers[1])
        archive, acks = FusedArchive(app.archive, self._fuse), FusedAcks(app.acks, self._fuse)
        marking = Marking(self._store(), archive, app.clock, acks)
        self.relay = Reader(self, lambda b: relay.handle(b, deadline=app.deadline), batch=100)
        self.marking = Reader(self, marking.handle, batch=150)

    def _store(self) -> DynamoStore:
        tables = Tables(
            self.app.client,
            outbox=OUTBOX,
            deliveries=DELIVERIES,
            batches=BATCHES,
            clock=self.app.clock,
            rng=self.app.rng,
        )
        return DynamoStore(tables, self.app.bodies)

    def invoke(self, work: Callable[[], object]) -> bool:
        """Run one invocation, which may be killed; return whether it came to its end."""
        outer = self._fuse.left
        kill = self._storms and self.rng.random() < self.chaos.kills
        self._fuse.left = self.rng.randrange(12) if kill else None
        self._running += 1
        try:
            work()
        except (FairboxError, Killed):
            return False
        finally:
            self._running -= 1
            self._fuse.left = outer
        return True

    def _meanwhile(self) -> None:
        """Let other invocations run in the middle of one."""
        if self._running > 1:
            return
        for _ in range(self.rng.randint(1, 3)):
            self.rng.choice([self._relay, self._mark, self._visit, self._produce])()

    def _produce(self) -> int:
        """Let users act; an invocation's fuse does not burn for them."""
        outer, self._fuse.left = self._fuse.left, None
        try:
            return self.producers.act()
        finally:
            self._fuse.left = outer

    def _relay(self) -> None:
        self.relay.pull()
        self.relay.invoke()

    def _mark(self) -> None:
        self.marking.pull()
        self.marking.invoke()

    def _visit(self) -> None:
        """Answer one doorbell whose group is free; a failed one comes again a few times."""
        queue = self.app.doorbells
        queue.pass_on()
        for n, doorbell in enumerate(queue.now):
            groups = self.app.outbox.topic(doorbell.topic).groups
            group = f"{doorbell.topic}#{doorbell.shard % groups}"
            if group not in self._groups:
                del queue.now[n]
                self._groups.add(group)
                try:
                    self._receive(doorbell)
                finally:
                    self._groups.discard(group)
                return

    def _receive(self, doorbell: Doorbell) -> None:
        for _ in range(RECEIVES):
            if self.invoke(lambda: self._visits.handle(doorbell, deadline=self.app.deadline)):
                return
            self.app.clock.advance(self.rng.choice([0.5, 5]))

    def _schedules(self) -> None:
        now = self.app.clock.now()
        if now - self._swept >= 60:
            self._swept = now
            sweep = Sweep(self._store(), self._doorbells, self.app.clock)
            self.invoke(lambda: sweep.run(deadline=self.app.deadline))
        if now - self._repaired >= 3600:
            self._repaired = now
            self.invoke(self.app.repair)

    def storm(self, messages: int) -> None:
        """Publish so many messages while things go wrong."""
        published = 0
        while published < messages:
            drawn = self.rng.random()
            if drawn < 0.3:
                published += self._produce()
            elif drawn < 0.5:
                self._relay()
            elif drawn < 0.65:
                self._mark()
            elif drawn < 0.9:
                self._visit()
            else:
                self.app.clock.advance(self.rng.choice([0.2, 1, 3, 15]))
                if self.rng.random() < self.chaos.outages:
                    mood = self.rng.choice(self._moods)
                    begins = mood.outage is None and self.chaos.away > 0
                    mood.outage = self.rng.randrange(len(OUTAGES)) if begins else None
            self._schedules()

    def calm(self, hours: float = 4) -> None:
        """Stop all faults and let time pass until all streams are read and all is delivered."""
        self._storms = False
        self.app.client.stormy = False
        for mood in self._moods:
            mood.stormy, mood.outage = False, None
        self._resume()
        end = self.app.clock.now() + hours * 3600
        while self.app.clock.now() < end and not self._drained():
            self._drain()
            self.app.clock.advance(20)
            self._schedules()
        self._drain()

    def _resume(self) -> None:
        """Resume what a receiver left that wanted no more; nobody closes the circuits by hand."""
        for topic in SUBSCRIPTIONS:
            for name, standing in self.app.outbox.topic(topic).standings.items():
                if standing.paused:
                    self.app.outbox.resume_subscription(topic, name)

    def _drain(self) -> None:
        while True:
            self._relay()
            self._mark()
            self._visit()
            self.app.doorbells.pass_on()
            if not (self.relay.waiting or self.marking.waiting or self.app.doorbells.now):
                break

    def _drained(self) -> bool:
        self.relay.pull()
        self.marking.pull()
        pushed = any(
            item["pk"]["S"].startswith(("ready#", "later#"))
            and item["sk"]["S"] != "!"
            and "#pulled#" not in item["pk"]["S"]
            for item in self.app.engine.items(OUTBOX)
        )
        return not (pushed or self.relay.waiting or self.marking.waiting)

    def repair(self) -> None:
        """Run repair as often as it takes to correct counts, reading the streams in between."""
        for _ in range(3):
            self.app.repair()
            self._drain()
