"""A deployment on a manual clock: real code over a metered engine, driven as AWS drives it."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from fairbox import Message, Outbox, Subscription, Topic
from fairbox.codec import PK, SIZE
from fairbox.dispatch.dispatcher import Dispatcher, in_turn
from fairbox.dispatch.maintenance.sweep import Sweep
from fairbox.dispatch.relay import Relay
from fairbox.dispatch.stream.marking import Marking
from fairbox.dispatch.visits import Visits
from fairbox.dynamodb.definitions import table_definitions
from fairbox.dynamodb.delivery_store import DynamoStore
from fairbox.dynamodb.tables import Tables
from fairbox.model.ids import IdGenerator
from fairbox.testing import CostMeter, ManualClock, MemoryDynamoDB
from fairbox.testing.application import (
    DELIVERIES,
    OUTBOX,
    MemoryArchive,
    MemoryDestinations,
    MemoryDoorbells,
)

from benchmarks.accounts import Accounts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.model.topics import Ordering

TOPIC: Final = "orders"
SUBSCRIPTION: Final = "billing"
DESTINATION: Final = "sqs:billing"
ORDERS: Final = "orders"  # the business table of producers that write in transactions
BODY_BYTES: Final = 700  # with keys and attributes under 1,024: S = 1
STREAM_SHARDS: Final = 4  # partitions of a new on-demand table
TICK: Final = 0.05
POLL: Final = 0.25  # between two looks of Lambda at a stream shard
RELAY_BATCH: Final = 100
MARKING_BATCH: Final = 1000
MARKING_WINDOW: Final = 20.0
_DEADLINE: Final = 25.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """What producers do: messages a second, for how many seconds, how they write."""

    rate: int
    seconds: int
    transactional: bool = False
    ordered: bool = False
    keys: int = 1000


class _StreamShard:
    """One shard of the stream with the functions that read it, each a process of its own."""

    def __init__(self, relay: Relay, marking: Marking, phase: float) -> None:
        self.relay = relay
        self.marking = marking
        self.next_poll = phase
        self.to_relay: deque[Any] = deque()
        self.to_mark: deque[Any] = deque()
        self.window_ends: float | None = None

    def hear(self, record: Any, now: float) -> None:
        """Take a record up for both readers."""
        if record["eventName"] == "INSERT":
            self.to_relay.append(record)
        self.to_mark.append(record)
        if self.window_ends is None:
            self.window_ends = now + MARKING_WINDOW


class Simulation:
    """Runs a load through producers, relay, visits and marking, and keeps their accounts.

    Actors: `start`, `producer`, `relay`, `visit`, `mark`, `sweep`. Records reach the relay with
    the next look at their stream shard, four times a second; marking gathers for 20 s or 1,000
    records.

    Args:
        wrap: puts something around the engine, below the meter.
        rng: every chance.
        clock: the time of all.
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
        self.clock = clock or ManualClock()
        self.rng = rng or random.Random(0)
        self.engine = MemoryDynamoDB(self.clock)
        client = wrap(self.engine)
        for definition in definitions():
            client.create_table(**definition)
        self.meter = CostMeter(client)
        self.accounts = Accounts(self.meter)
        self.destinations = MemoryDestinations()
        self.doorbells = MemoryDoorbells(self.clock)
        self.archive = MemoryArchive()
        self.ids = IdGenerator(self.clock, self.rng.getrandbits)
        self.outbox = Outbox(
            self.meter, table=OUTBOX, deliveries_table=DELIVERIES, clock=self.clock, rng=self.rng
        )
        self.invocations = {"relay": 0, "visit": 0, "mark": 0}
        self._topic_shards = shards
        self._after: str | None = None
        self._stores: list[DynamoStore] = []
        self._visits = Visits(self._dispatcher())
        self._shards = [
            _StreamShard(
                Relay(self._dispatcher()),
                Marking(self.store(), self.archive, self.clock),
                self.clock.now() + POLL * number / STREAM_SHARDS,
            )
            for number in range(STREAM_SHARDS)
        ]

    def store(self) -> DynamoStore:
        """Return the tables as one more process sees them."""
        tables = Tables(
            self.meter, outbox=OUTBOX, deliveries=DELIVERIES, clock=self.clock, rng=self.rng
        )
        self._stores.append(DynamoStore(tables))
        return self._stores[-1]

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self.store(),
            self.destinations,
            self.doorbells,
            clock=self.clock,
            rng=self.rng,
            fan_out=in_turn,
        )

    def message(self, load: Load) -> Message:
        """Return a message of S = 1, of any customer, whose body does not compress."""
        return Message(
            topic=TOPIC,
            body=self.rng.randbytes(BODY_BYTES),
            partition_key=f"customer-{self.rng.randrange(load.keys)}",
            content_type="application/json",
            id=self.ids.next(),
        )

    def open_topic(self, load: Load) -> None:
        """Make the topic and its one subscription; every process reads them at its start."""
        ordering: Ordering = "key" if load.ordered else "none"
        topic = Topic(TOPIC, shards=self._topic_shards, ordering=ordering)
        subscription = Subscription(TOPIC, SUBSCRIPTION, DESTINATION)
        self.accounts.charge("start", lambda: self.outbox.create_topic(topic))
        self.accounts.charge("start", lambda: self.outbox.add_subscription(subscription))
        for store in self._stores:
            self.accounts.charge("start", store.refresh)
            self.accounts.charge("start", partial(store.topic, TOPIC))

    def run(self, load: Load) -> int:
        """Run the load and then what follows from it; return how many messages there were."""
        self.open_topic(load)
        total = load.rate * load.seconds
        start = self.clock.now()
        times = deque(sorted(start + self.rng.random() * load.seconds for _ in range(total)))
        while times:
            while times and times[0] <= self.clock.now():
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
            self.accounts.charge("producer", lambda: self.outbox.transact([put], message))
        else:
            self.accounts.charge("producer", lambda: self.outbox.add(message))

    def burst(self, invocations: int, size: int = RELAY_BATCH) -> int:
        """Relay full batches of one stream shard, then record them; return how many messages.

        The relay's copy of the topics is too old each time.
        """
        load = Load(rate=size, seconds=invocations)
        shard = self._shards[0]
        for _ in range(invocations):
            messages = [self.message(load) for _ in range(size)]
            self.accounts.charge("producer", partial(self.outbox.add_many, messages))
            self._hear(shard)
            self.clock.advance(2.0)
            while shard.to_relay:
                self._relay(shard)
            self._hear(shard)
        while shard.to_mark:
            self._mark(shard)
        return invocations * size

    def sweep(self) -> None:
        """Run the sweep once, as a process that has read no topics yet."""
        sweep = Sweep(self.store(), self.doorbells, self.clock)
        self.accounts.charge("sweep", lambda: sweep.run(deadline=self._deadline))

    @property
    def _deadline(self) -> float:
        return self.clock.now() + _DEADLINE

    def _step(self) -> None:
        """Let a tick pass and do what is due."""
        self.clock.advance(TICK)
        now = self.clock.now()
        for record in self._records():
            key = record["dynamodb"]["Keys"][PK]["S"]
            self._shards[crc32(key.encode()) % STREAM_SHARDS].hear(record, now)
        for shard in self._shards:
            full = len(shard.to_mark) >= MARKING_BATCH
            if full or (shard.window_ends is not None and now >= shard.window_ends):
                self._mark(shard)  # before the relay: the dearer order, for more is in flight
            if now >= shard.next_poll:
                # looks that nobody could make while topics were opened are not made up for
                shard.next_poll += POLL * (1 + (now - shard.next_poll) // POLL)
                while shard.to_relay:
                    self._relay(shard)
        while self.doorbells.now:
            doorbell = self.doorbells.now.popleft()
            self.invocations["visit"] += 1
            visit = partial(self._visits.handle, doorbell, deadline=self._deadline)
            self.accounts.charge("visit", visit)

    def _hear(self, shard: _StreamShard) -> None:
        for record in self._records():
            shard.hear(record, self.clock.now())

    def _records(self) -> Sequence[Any]:
        """Return the messages' records since the last look."""
        records = self.engine.stream(OUTBOX).take(self._after)
        if records:
            self._after = records[-1]["dynamodb"]["SequenceNumber"]
        return [r for r in records if of_message(r)]

    def _relay(self, shard: _StreamShard) -> None:
        batch = _take(shard.to_relay, RELAY_BATCH)
        self.invocations["relay"] += 1
        self.accounts.charge("relay", lambda: shard.relay.handle(batch, deadline=self._deadline))

    def _mark(self, shard: _StreamShard) -> None:
        batch = _take(shard.to_mark, MARKING_BATCH)
        shard.window_ends = self.clock.now() + MARKING_WINDOW if shard.to_mark else None
        self.invocations["mark"] += 1
        self.accounts.charge("mark", lambda: shard.marking.handle(batch))


def definitions() -> list[dict[str, Any]]:
    """Return the tables: Fairbox's two, and the business table."""
    key = {"AttributeName": "id"}
    orders = {
        "TableName": ORDERS,
        "KeySchema": [key | {"KeyType": "HASH"}],
        "AttributeDefinitions": [key | {"AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    return [*table_definitions(outbox=OUTBOX, deliveries=DELIVERIES), orders]


def _take(records: deque[Any], count: int) -> list[Any]:
    return [records.popleft() for _ in range(min(count, len(records)))]


def of_message(record: Any) -> bool:
    """Whether a stream record is a message's, as the filters of the mappings ask."""
    body = record["dynamodb"]
    return SIZE in body.get("NewImage", {}) or SIZE in body.get("OldImage", {})
