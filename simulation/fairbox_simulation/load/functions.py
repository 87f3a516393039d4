"""The functions of a deployment in simulated time, invoked by streams, queues and schedules."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from fairbox.aws.sqs_queues import answer_doorbells, decode
from fairbox.dispatch.dispatcher import Dispatcher
from fairbox.dispatch.maintenance.shard_sweep import Sweep
from fairbox.dispatch.record_relay import Relay
from fairbox.dispatch.visits import Visits
from fairbox.errors import FairboxError
from fairbox.tables.stored_messages import SIZE
from fairbox.tables.tables import Tables
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX
from fairbox.testing.doorbell_queues import APART, LATER, NOW
from fairbox.testing.faults import OPERATIONS
from fairbox.testing.memory_sqs import SqsTrigger

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from fairbox.aws.sqs_queues import SqsDoorbells
    from fairbox.testing.application import MemoryApplication
    from fairbox.testing.manual_clock import ManualClock
    from fairbox.testing.memory_sqs import MemorySqs
    from fairbox.testing.sqs_queue import MemoryQueue

    from fairbox_simulation.load.threads import Threads
    from fairbox_simulation.load.timeline import Timeline

    Record = dict[str, Any]
    Work = Callable[[list[Record]], object]
    Place = tuple[str, int, int, str, int]

CONCURRENCY: Final = {NOW: 50, APART: 50, LATER: 50}
"""Invocations at a time by queue."""
OVERHEAD_SECONDS: Final = 0.02
"""Time from work to its invocation."""
STREAM_SHARDS: Final = 3
VISIT_SECONDS: Final = 18.0
RELAY_SECONDS: Final = 25.0
MARKING_SECONDS: Final = 5.0


class Functions:
    """Functions, each in as many processes as are invoked at a time.

    Args:
        app: its tables, stream, destinations and queues.
        timeline: in which they run.
        threads: of the processes.
        rng: every chance.
        lost_doorbells: share of doorbells that never come; may be set at any time.
        sweep_seconds: duration of each call of the sweep to the tables and the queue.

    Attributes:
        visits: walks that were begun, by shard, subscription and second.
        named: the same of visits whose doorbells name messages.
        doorbells: the shipped ones.
    """

    def __init__(
        self,
        app: MemoryApplication,
        timeline: Timeline,
        threads: Threads,
        rng: random.Random,
        *,
        lost_doorbells: float = 0.0,
        sweep_seconds: float = 0.0,
    ) -> None:
        self._app = app
        self._timeline = timeline
        self._threads = threads
        self._rng = rng
        self.lost_doorbells = lost_doorbells
        self.visits: Counter[Place] = Counter()
        self.named: Counter[Place] = Counter()
        self._sqs = app.doorbells.sqs
        self.doorbells = self._make_doorbells()
        self.sweep = self._make_sweep(sweep_seconds)
        self._processes: list[Visits] = []
        timeline.sources += [
            _Stream(
                app,
                [
                    _Mapping(timeline, self._relay, batch=100),
                    _Mapping(timeline, self._mark, batch=1000, window=MARKING_SECONDS),
                ],
            ),
            *(
                _Queue(timeline, self._sqs.queues[name], self._trigger(name), most, self._deliver)
                for name, most in CONCURRENCY.items()
            ),
            _Schedule(timeline, 60, lambda: self.sweep.run(deadline=app.clock.now() + 50)),
            _Schedule(timeline, 3600, app.repair),
        ]

    def _make_doorbells(self, seconds: float = 0.0) -> SqsDoorbells:
        clock = self._app.clock
        return self._app.doorbells.of(clock, lambda sqs: _Sqs(self, sqs, clock, seconds))

    def kept(self, entries: Sequence[Record]) -> list[Record]:
        """Return the doorbells that are not lost."""
        return [e for e in entries if self._rng.random() >= self.lost_doorbells]

    def _make_sweep(self, seconds: float) -> Sweep:
        clock = self._app.clock
        tables = Tables(
            _SlowTables(self._app.client, clock, seconds),
            outbox=OUTBOX,
            deliveries=DELIVERIES,
            batches=BATCHES,
            bodies=self._app.bodies,
            clock=clock,
            rng=self._rng,
        )
        return Sweep(tables, self._make_doorbells(seconds), clock, run=self._threads.run_all)

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self._app.tables_of(self._app.clock),
            self._app.destinations,
            self.doorbells,
            clock=self._app.clock,
            rng=self._rng,
            fan_out=self._threads.fan_out(),
        )

    def _relay(self) -> Work:
        relay, clock = Relay(self._dispatcher()), self._app.clock
        return lambda records: relay.handle(records, deadline=clock.now() + RELAY_SECONDS)

    def _mark(self) -> Work:
        return self._app.marking_of(self._app.clock).handle

    def _trigger(self, name: str) -> SqsTrigger:
        url = self._sqs.get_queue_url(QueueName=name)["QueueUrl"]
        return SqsTrigger(self._sqs, url, batch=10 if name == LATER else 1)

    def _deliver(self, trigger: SqsTrigger, records: list[Record]) -> None:
        """Run one invocation of `deliver_shard`, in a process that is free."""
        now = int(self._app.clock.now())
        for record in records:
            if record["eventSourceARN"].endswith(".fifo"):
                bell = decode(record["body"])
                kind = self.named if bell.refs else self.visits
                kind[bell.topic, bell.epoch, bell.shard, bell.subscription, now] += 1
        visits = self._processes.pop() if self._processes else Visits(self._dispatcher())
        try:
            answer = answer_doorbells(
                records,
                visits=visits,
                doorbells=self.doorbells,
                deadline=self._app.clock.now() + VISIT_SECONDS,
            )
        finally:
            self._processes.append(visits)
        trigger.settle(records, answer)


@dataclass(frozen=True)
class _Sqs:
    """The queues as a function sees them: some of what it sends is lost."""

    functions: Functions
    sqs: MemorySqs
    clock: ManualClock
    seconds: float

    def send_message_batch(self, *, QueueUrl: str, Entries: Sequence[Record]) -> Record:  # noqa: N803 - the SDK's
        """Send messages."""
        if self.seconds:
            self.clock.sleep(self.seconds)
        kept = self.functions.kept(Entries)
        return self.sqs.send_message_batch(QueueUrl=QueueUrl, Entries=kept) if kept else {}


@dataclass(frozen=True)
class _SlowTables:
    """The tables, whose calls take time."""

    client: Any
    clock: ManualClock
    seconds: float

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        if name not in OPERATIONS or not self.seconds:
            return method

        def call(**request: Any) -> Any:
            self.clock.sleep(self.seconds)
            return method(**request)

        return call


class _Stream:
    """The outbox's stream, and the event source mappings that read it."""

    def __init__(self, app: MemoryApplication, mappings: Sequence[_Mapping]) -> None:
        self._stream = app.engine.stream(OUTBOX)
        self._mappings = mappings
        self._position: str | None = None

    def start(self) -> None:
        """Hand new records to the mappings."""
        records = self._stream.take(self._position)
        if records:
            self._position = records[-1]["dynamodb"]["SequenceNumber"]
        for record in filter(_of_message, records):
            pk = record["dynamodb"]["Keys"]["pk"]["S"]
            for mapping in self._mappings:
                mapping.take(sum(pk.encode()) % STREAM_SHARDS, record)

    def next_at(self) -> float:
        """Return infinity: records come from tasks."""
        return inf


def _of_message(record: Record) -> bool:
    """Whether the mappings' filter lets a record pass."""
    body = record["dynamodb"]
    return SIZE in body.get("NewImage", {}) or SIZE in body.get("OldImage", {})


class _Mapping:
    """An event source mapping of the stream: one batch of a shard at a time."""

    def __init__(
        self, timeline: Timeline, make: Callable[[], Work], *, batch: int, window: float = 0.0
    ) -> None:
        self._timeline = timeline
        self._batch = batch
        self._window = window
        self._works = [make() for _ in range(STREAM_SHARDS)]
        self._queues: list[deque[Record]] = [deque() for _ in range(STREAM_SHARDS)]
        self._busy = [False] * STREAM_SHARDS

    def take(self, shard: int, record: Record) -> None:
        """Take a record, and start an invocation if the shard has none."""
        self._queues[shard].append(record)
        if not self._busy[shard]:
            self._busy[shard] = True
            self._timeline.start(self._run, shard)

    def _run(self, shard: int) -> None:
        queue = self._queues[shard]
        while queue:
            self._timeline.sleep(self._window or OVERHEAD_SECONDS)
            batch = [queue.popleft() for _ in range(min(len(queue), self._batch))]
            self._works[shard](batch)
        self._busy[shard] = False


class _Queue:
    """The event source mapping of a queue."""

    def __init__(
        self,
        timeline: Timeline,
        queue: MemoryQueue,
        trigger: SqsTrigger,
        most: int,
        deliver: Callable[[SqsTrigger, list[Record]], None],
    ) -> None:
        self._timeline = timeline
        self._queue = queue
        self._trigger = trigger
        self._free = most
        self._deliver = deliver

    def start(self) -> None:
        """Start invocations while there are messages and room."""
        while self._free and self._queue.messages and (records := self._trigger.receive()):
            self._free -= 1
            task = self._timeline.start(partial(self._invoke, records))
            task.invocation = records[0]["receiptHandle"]

    def next_at(self) -> float:
        """Return when the next message becomes visible."""
        now = self._timeline.clock.now()
        hidden = (m.visible_at for m in self._queue.messages.values() if m.visible_at > now)
        return min(hidden, default=inf) if self._free else inf

    def _invoke(self, records: list[Record]) -> None:
        self._timeline.sleep(OVERHEAD_SECONDS)
        self._deliver(self._trigger, records)
        self._free += 1


class _Schedule:
    """A schedule: a run each so many seconds, and the next one not before the last has ended."""

    def __init__(self, timeline: Timeline, seconds: float, work: Callable[[], object]) -> None:
        self._timeline = timeline
        self._seconds = seconds
        self._work = work
        self._at = timeline.clock.now() + seconds
        self._busy = False

    def start(self) -> None:
        """Start a run if its time has come."""
        now = self._timeline.clock.now()
        if not self._busy and now >= self._at:
            self._at = now + self._seconds
            self._busy = True
            self._timeline.start(self._run)

    def next_at(self) -> float:
        """Return when the next run is due."""
        return inf if self._busy else self._at

    def _run(self) -> None:
        try:
            self._work()
        except FairboxError:
            pass  # the next run goes on
        finally:
            self._busy = False
