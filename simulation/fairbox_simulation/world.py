"""A simulated world: the application in memory, driven as Lambda, streams and queues drive it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fairbox import FairboxError, RetryPolicy, Subscription, Topic
from fairbox.dispatch.dispatcher import Dispatcher, run_sequentially
from fairbox.dispatch.maintenance.expiry import Expiry
from fairbox.dispatch.maintenance.shard_sweep import Sweep
from fairbox.dispatch.record_relay import Relay
from fairbox.dispatch.stream.marking import Marking
from fairbox.dispatch.visits import Visits
from fairbox.testing.application import INVOCATION_SECONDS, OUTBOX, MemoryApplication
from fairbox.testing.memory_sqs import SqsFaults

from fairbox_simulation.chaos import (
    FREEZES,
    LEASE_SECONDS,
    OUTAGES,
    STALE_SECONDS,
    Chaos,
    Client,
    FailureMode,
    Fuse,
    FusedAcks,
    FusedArchive,
    Killed,
    Skewed,
)
from fairbox_simulation.doorbell_function import DeliverShard, FusedSqs, queue_faults
from fairbox_simulation.event_source_mapping import Reader
from fairbox_simulation.producers import Producers

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.aws.sqs_queues import SqsDoorbells
    from fairbox.model.clock import Clock
    from fairbox.testing.memory_sqs import SqsTrigger

SUBSCRIPTIONS = {
    "plain": ("one",),
    "fan": ("a", "b", "c"),
    "ordered": ("first", "second"),
    "pulled": (),
    "fragile": ("only", "other"),
    "slow": ("hook",),
}
LIMITS: dict[str, dict[str, Any]] = {"c": {"rate": 2.0}, "hook": {"max_in_flight": 2}}
WORKERS = 2
_STEPS = 5  # in which time passes while something stands still


class World:
    """One run: all chance comes from the seed.

    Args:
        seed: chooses everything.
        chaos: how much goes wrong.

    Attributes:
        kills, freezes, given_twice, nights: how often invocations ended or froze, queues repeated,
            and streams stood still for hours.
        recounted: how often repair corrected a count during the storm and the calm.
    """

    pulled = frozenset({"pulled"})  # topics that no function empties

    def __init__(self, seed: int, chaos: Chaos) -> None:
        self.rng = random.Random(seed)
        self.chaos = chaos
        self._fuse = Fuse()
        self._fuse.freeze = self._frozen
        self._lose: Callable[[], None] = _nothing
        self._running = 0
        self._passing = False
        self._storms = True
        self.freezes = self.kills = self.given_twice = self.recounted = self.nights = 0
        self.app = MemoryApplication(
            rng=random.Random(seed + 1),
            wrap=lambda engine: Client(engine, self.rng, chaos, self._fuse),
            index_lag=STALE_SECONDS if chaos.stale else 0.0,
        )
        self._make_topics()
        self._failure_modes = [
            FailureMode(
                self.app.destinations[f"sqs:http://q/{topic}-{name}"],
                self.rng,
                chaos,
                self._fuse,
                self._meanwhile,
                wait=self.app.clock.advance,
            )
            for topic, names in SUBSCRIPTIONS.items()
            for name in names
        ]
        self.app.destinations["sqs:http://q/slow-hook"].quick = False
        self.producers = Producers(self.app, self.rng, self.clock)
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
                    Subscription(
                        topic, name, f"sqs:http://q/{topic}-{name}", **LIMITS.get(name, {})
                    )
                )
        self.app.client.stormy = True

    def clock(self) -> Skewed:
        """Return the clock of another process, which is wrong by its own constant."""
        return Skewed(self.app.clock, self.rng.uniform(-1, 1) * self.chaos.skew)

    def _make_functions(self) -> None:
        """Make a few instances of each function, each a process with a clock of its own."""
        app = self.app
        app.doorbells.sqs.rng, app.doorbells.sqs.faults = self.rng, queue_faults(self.chaos)
        archive, acks = FusedArchive(app.archive, self._fuse), FusedAcks(app.acks, self._fuse)
        relays = [Relay(self._dispatcher()) for _ in range(WORKERS)]
        self._deliver_shard = [self._function() for _ in range(WORKERS)]
        clocks = [self.clock() for _ in range(WORKERS)]
        markings = [
            Marking(self.app.tables_of(clock), archive, clock, acks, aside=app.given_up)
            for clock in clocks
        ]
        self.relay = Reader(self.app, self, [_until(r.handle, r._clock) for r in relays], batch=100)
        self.marking = Reader(self.app, self, [m.handle for m in markings], batch=150)

    def _dispatcher(self, clock: Skewed | None = None) -> Dispatcher:
        clock = clock or self.clock()
        return Dispatcher(
            self.app.tables_of(clock),
            self.app.destinations,
            self._doorbells(clock),
            clock=clock,
            rng=self.app.rng,
            fan_out=run_sequentially,
        )

    def _doorbells(self, clock: Skewed) -> SqsDoorbells:
        return self.app.doorbells.of(
            clock, lambda sqs: FusedSqs(sqs, self._fuse, self.chaos, self.strikes)
        )

    def _function(self) -> DeliverShard:
        clock = self.clock()
        visits = Visits(self._dispatcher(clock))
        return DeliverShard(visits, self._doorbells(clock), clock, INVOCATION_SECONDS)

    def strikes(self, share: float) -> bool:
        """Whether a fault of this probability strikes now."""
        return self._storms and share > 0 and self.rng.random() < share

    def invoke(self, work: Callable[[], object], lose: Callable[[], None] | None = None) -> bool:
        """Run one invocation, which may be killed or frozen; return whether it came to its end.

        Args:
            work: what it does.
            lose: gives what it was invoked with to others, when it was frozen past its lease.
        """
        outer = self._fuse.left, self._fuse.frost, self._lose
        kill = self.strikes(self.chaos.kills)
        freeze = not self._running and not kill and self.strikes(self.chaos.frozen)
        self._fuse.left = self.rng.randrange(12) if kill else None
        self._fuse.frost = self.rng.randrange(12) if freeze else None
        self._lose = lose or _nothing
        self._running += 1
        try:
            work()
        except Killed:
            self.kills += 1
            return False
        except FairboxError:
            return False
        finally:
            self._running -= 1
            self._fuse.left, self._fuse.frost, self._lose = outer
        return True

    def _frozen(self) -> None:
        """Let time pass and others run while an invocation stands still."""
        seconds = self.rng.choice(FREEZES)
        self.freezes += 1
        if seconds > LEASE_SECONDS:
            lose, self._lose = self._lose, _nothing
            lose()
        with self._fuse.spared():
            self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass, in which users act, functions run and schedules come."""
        if self._passing:
            return  # what passes now is long enough
        self._passing = True
        for _ in range(_STEPS):
            self.app.clock.advance(seconds / _STEPS)
            self._meanwhile()
            self._schedules()
        self._passing = False

    def _meanwhile(self) -> None:
        """Let other invocations run in the middle of one."""
        if self._running > 1:
            return
        for _ in range(self.rng.randint(1, 3)):
            self.rng.choice([self._relay, self._mark, self._visit, self._produce])()

    def _produce(self) -> int:
        """Let users act; an invocation's fuse does not burn for them."""
        with self._fuse.spared():
            return self.producers.act()

    def _relay(self) -> None:
        self.relay.pull()
        self.relay.invoke()

    def _mark(self) -> None:
        self.marking.pull()
        self.marking.invoke()

    def _visit(self) -> bool:
        """Pass on what is due, and answer one doorbell of a free group; return whether one came.

        A doorbell whose visit ended comes again when its visibility ends.
        """
        queues = self.app.doorbells
        while self._invoke_with(queues.forwards):
            pass
        return self._invoke_with(queues.visits)

    def _invoke_with(self, trigger: SqsTrigger) -> bool:
        """Invoke a free instance of `deliver_shard`; return whether there were doorbells."""
        if not self._deliver_shard or not (records := trigger.receive()):
            return False
        function = self._deliver_shard.pop(self.rng.randrange(len(self._deliver_shard)))

        def work() -> None:
            answer = function(records)
            if self.strikes(self.chaos.twice):
                self.given_twice += 1  # the mapping ends before it has deleted them
            else:
                trigger.settle(records, answer)

        try:
            self.invoke(work)
        finally:
            self._deliver_shard.append(function)
        return True

    def _schedules(self) -> None:
        now = self.app.clock.now()
        if now - self._swept >= 60:
            self._swept = now
            clock = self.clock()
            tables, doorbells = self.app.tables_of(clock), self._doorbells(clock)
            sweep = Sweep(tables, doorbells, clock, expiry=Expiry(tables, clock))
            self.invoke(_until(sweep.run, clock))
        if now - self._repaired >= 3600:
            self._repaired = now
            self.invoke(self._repair)

    def _repair(self) -> None:
        self.recounted += self.app.repair(meanwhile=self._mark).recounted

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
                    mode = self.rng.choice(self._failure_modes)
                    begins = mode.outage is None and self.chaos.away > 0
                    mode.outage = self.rng.randrange(len(OUTAGES)) if begins else None
            self._schedules()

    def calm(self, hours: float = 4) -> None:
        """Stop all faults and let time pass until all streams are read and all is delivered."""
        self._storms = False
        self.app.client.stormy = False
        self.app.doorbells.sqs.faults = SqsFaults()
        for mode in self._failure_modes:
            mode.stormy, mode.outage = False, None
        self.relay.go_on()
        self.marking.go_on()
        self._resume()
        end = self.app.clock.now() + hours * 3600
        while self.app.clock.now() < end and not self._drained():
            self._drain()
            self.app.clock.advance(20)
            self._schedules()
        self._drain()

    def _resume(self) -> None:
        """Resume what a receiver left that wanted no more; nobody closes the circuits by hand."""
        for state in self.app.outbox.topics():
            for name, status in state.statuses.items():
                if status.paused:
                    self.app.outbox.resume_subscription(state.topic.name, name)

    def _drain(self) -> None:
        while True:
            self._relay()
            self._mark()
            visited = self._visit()
            if not (self.relay.waiting or self.marking.waiting or visited):
                break

    def _drained(self) -> bool:
        self.relay.pull()
        self.marking.pull()
        pushed = any(
            item["pk"]["S"].startswith(("ready#", "later#"))
            and item["sk"]["S"] != "!"
            and item["pk"]["S"].split("#")[1] not in self.pulled
            for item in self.app.engine.items(OUTBOX)
        )
        return not (pushed or self.relay.waiting or self.marking.waiting)

    def repair(self) -> None:
        """Run repair as often as it takes to correct counts, reading the streams in between."""
        for _ in range(3):
            self.app.repair(meanwhile=self._drain)
            self._drain()


def _nothing() -> None:
    """Lose nothing: there is no lease."""


def _until(handle: Callable[..., object], clock: Clock) -> Callable[..., object]:
    """Return a function that is given its deadline by the clock of its process."""
    return lambda *given: handle(*given, deadline=clock.now() + INVOCATION_SECONDS)
