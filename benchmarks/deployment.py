"""A deployment on a manual clock: real code over a metered engine, driven as AWS drives it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from fairbox import Message, Subscription, Topic
from fairbox.aws.sqs_queues import Answer, answer_doorbells
from fairbox.dispatch.dispatcher import Dispatcher, run_sequentially
from fairbox.dispatch.maintenance.shard_sweep import Sweep
from fairbox.dispatch.record_relay import Relay
from fairbox.dispatch.stream.marking import Marking
from fairbox.dispatch.visits import Visits
from fairbox.tables.keys import PK
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

from benchmarks.accounts import Accounts

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from fairbox.model.topics import Ordering
    from fairbox.tables.tables import Tables
    from fairbox.testing import ManualClock

TOPIC: Final = "orders"
SUBSCRIPTION: Final = "billing"
DESTINATION: Final = "sqs:http://q/billing"
ORDERS: Final = "orders"  # the business table of producers that write in transactions
BODY_BYTES: Final = 700  # with keys and attributes under 1,024: S = 1
STREAM_SHARDS: Final = 4  # partitions of a new on-demand table
TICK: Final = 0.05
POLL: Final = 0.25  # between two looks of Lambda at a stream shard
RELAY_BATCH: Final = 100
MARKING_BATCH: Final = 1000
MARKING_WINDOW: Final = 20.0
_DEADLINE: Final = 25.0
_AGE_SECONDS: Final = 121.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load of the producers: rate, duration and kind of writes."""

    rate: int
    seconds: int
    transactional: bool = False
    ordered: bool = False
    keys: int = 1000


class _StreamShard:
    """One shard of the stream with its two functions, each a process of its own."""

    def __init__(self, relay: Relay, marking: Marking, phase: float) -> None:
        self.relay = relay
        self.marking = marking
        self.next_poll = phase
        self.to_relay: deque[Any] = deque()
        self.to_mark: deque[Any] = deque()
        self.window_ends: float | None = None

    def hear(self, record: Any, now: float) -> None:
        """Queue a record for both readers."""
        if record["eventName"] == "INSERT":
            self.to_relay.append(record)
        self.to_mark.append(record)
        if self.window_ends is None:
            self.window_ends = now + MARKING_WINDOW


class Deployment:
    """Runs a load through producers, relay, visits and marking, and keeps their accounts.

    Tables, outbox, destinations and doorbells are those of `MemoryApplication`; its functions run
    here as AWS runs them, each process with its own view of the tables. Actors: `start`,
    `producer`, `relay`, `visit`, `mark`, `sweep`. Records reach the relay with the next poll of
    their stream shard, four times a second; marking gathers for 20 s or 1,000 records.

    Args:
        wrap: puts something around the engine, below the meter.
        rng: source of all random numbers.
        clock: the time of all actors.
        shards: of the topic.
    """

    def __init__(
        self,
        *,
        wrap: Callable[[Any], Any] = lambda engine: engine,
        rng: random.Random | None = None,
        clock: ManualClock | None = None,
        shards: int = 8,
    ) -> None:
        self.app = MemoryApplication(
            clock=clock, rng=rng, wrap=lambda engine: CostMeter(wrap(engine))
        )
        self.app.engine.create_table(**orders_definition())
        self.accounts = Accounts(self.app.client)
        self._topic_shards = shards
        self._after: str | None = None
        self._processes: list[Tables] = []
        self._visits = Visits(self._dispatcher())
        self._shards = [
            _StreamShard(
                Relay(self._dispatcher()),
                Marking(self._tables(), self.app.archive, self.app.clock),
                self.app.clock.now() + POLL * number / STREAM_SHARDS,
            )
            for number in range(STREAM_SHARDS)
        ]

    def _tables(self) -> Tables:
        """Return the tables as one more process sees them."""
        self._processes.append(self.app.tables_of(self.app.clock))
        return self._processes[-1]

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self._tables(),
            self.app.destinations,
            self.app.doorbells,
            clock=self.app.clock,
            rng=self.app.rng,
            fan_out=run_sequentially,
        )

    def message(self, load: Load) -> Message:
        """Return a message of S = 1, of a random customer, with an incompressible body."""
        return Message(
            topic=TOPIC,
            body=self.app.rng.randbytes(BODY_BYTES),
            partition_key=f"customer-{self.app.rng.randrange(load.keys)}",
            content_type="application/json",
            id=self.app.ids.next(),
        )

    def open_topic(self, load: Load) -> None:
        """Create the topic and its subscription; every process reads them at its start."""
        ordering: Ordering = "key" if load.ordered else "none"
        topic = Topic(TOPIC, shards=self._topic_shards, ordering=ordering)
        subscription = Subscription(TOPIC, SUBSCRIPTION, DESTINATION)
        self.accounts.charge("start", lambda: self.app.outbox.create_topic(topic))
        self.accounts.charge("start", lambda: self.app.outbox.add_subscription(subscription))
        self.read_topics([TOPIC])

    def read_topics(self, names: Sequence[str]) -> None:
        """Let every process read topics, and their copies grow two minutes old."""
        for tables in self._processes:
            self.accounts.charge("start", tables.topic_cache.refresh)
            for name in names:
                self.accounts.charge("start", partial(tables.topic_cache.get, name))
        self.app.clock.advance(_AGE_SECONDS)

    def run(self, load: Load) -> int:
        """Run the load until everything is delivered and marked; return the number of messages."""
        self.open_topic(load)
        total = load.rate * load.seconds
        start = self.app.clock.now()
        times = deque(sorted(start + self.app.rng.random() * load.seconds for _ in range(total)))
        while times:
            while times and times[0] <= self.app.clock.now():
                times.popleft()
                self.add(load)
            self._step()
        while any(s.to_relay or s.to_mark for s in self._shards):
            self._step()
        return total

    def add(self, load: Load) -> None:
        """Publish one message, alone or with a business row."""
        message = self.message(load)
        if load.transactional:
            put = {"Put": {"TableName": ORDERS, "Item": {"id": {"S": message.id}}}}
            self.accounts.charge("producer", lambda: self.app.outbox.transact([put], message))
        else:
            self.accounts.charge("producer", lambda: self.app.outbox.add(message))

    def burst(self, invocations: int, size: int = RELAY_BATCH) -> int:
        """Relay full batches of one stream shard, then record them; return the number of messages.

        The relay's copy of the topics has expired each time.
        """
        load = Load(rate=size, seconds=invocations)
        shard = self._shards[0]
        for _ in range(invocations):
            messages = [self.message(load) for _ in range(size)]
            self.accounts.charge("producer", partial(self.app.outbox.add_many, messages))
            self._hear(shard)
            self.app.clock.advance(2.0)
            while shard.to_relay:
                self._relay(shard)
            self._hear(shard)
        while shard.to_mark:
            self._mark(shard)
        return invocations * size

    def sweep(self) -> None:
        """Run the sweep once, as a process that has read no topics yet."""
        sweep = Sweep(self._tables(), self.app.doorbells, self.app.clock)
        self.accounts.charge("sweep", lambda: sweep.run(deadline=self._deadline))

    @property
    def _deadline(self) -> float:
        return self.app.clock.now() + _DEADLINE

    def _step(self) -> None:
        """Advance the clock by a tick and run what is due."""
        self.app.clock.advance(TICK)
        now = self.app.clock.now()
        for record in self._records():
            key = record["dynamodb"]["Keys"][PK]["S"]
            self._shards[crc32(key.encode()) % STREAM_SHARDS].hear(record, now)
        for shard in self._shards:
            full = len(shard.to_mark) >= MARKING_BATCH
            if full or (shard.window_ends is not None and now >= shard.window_ends):
                self._mark(shard)  # before the relay: the dearer order
            if now >= shard.next_poll:
                # polls missed while topics were opened are not made up
                shard.next_poll += POLL * (1 + (now - shard.next_poll) // POLL)
                while shard.to_relay:
                    self._relay(shard)
        while self.app.doorbells.visits.invoke(self._visit):
            pass

    def _visit(self, records: Sequence[Any]) -> Answer:
        visit = partial(
            answer_doorbells,
            records,
            visits=self._visits,
            doorbells=self.app.doorbells,
            deadline=self._deadline,
        )
        return self.accounts.charge("visit", visit)

    def _hear(self, shard: _StreamShard) -> None:
        for record in self._records():
            shard.hear(record, self.app.clock.now())

    def _records(self) -> Sequence[Any]:
        """Return the messages' records since the last call."""
        records = self.app.records(self._after)
        if records:
            self._after = records[-1]["dynamodb"]["SequenceNumber"]
        return records

    def _relay(self, shard: _StreamShard) -> None:
        batch = _take(shard.to_relay, RELAY_BATCH)
        self.accounts.charge("relay", lambda: shard.relay.handle(batch, deadline=self._deadline))

    def _mark(self, shard: _StreamShard) -> None:
        batch = _take(shard.to_mark, MARKING_BATCH)
        shard.window_ends = self.app.clock.now() + MARKING_WINDOW if shard.to_mark else None
        self.accounts.charge("mark", lambda: shard.marking.handle(batch))


def orders_definition() -> dict[str, Any]:
    """Return the producers' business table."""
    return {
        "TableName": ORDERS,
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }


def _take(records: deque[Any], count: int) -> list[Any]:
    return [records.popleft() for _ in range(min(count, len(records)))]
