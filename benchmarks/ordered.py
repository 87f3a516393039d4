"""Messages a second of ordered topics, a shard at a time and in all, beside the unordered path.

All over one fresh DynamoDB Local, to a destination that takes ten messages a call in 5 ms. A
backlog is measured: of an ordered topic its visits, one for each shard; of an unordered topic the
relay, with as many concurrent invocations as shards, from prepared images. Each invocation is a
thread with tables of its own, all in this process, so only the ratio counts. Both are measured in
turns, so that other programs disturb them equally.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Outbox, Subscription, Topic
from fairbox.codec.keys import lane_pk
from fairbox.dispatch.dispatcher import Dispatcher
from fairbox.dispatch.ports import TAKEN, Doorbell, Limits, Outcome
from fairbox.dispatch.relay import Relay
from fairbox.dispatch.visits import Visits
from fairbox.dynamodb.definitions import table_definitions
from fairbox.dynamodb.delivery_store import DynamoStore
from fairbox.dynamodb.tables import Tables
from fairbox.model.clock import SystemClock
from fairbox.testing import CostMeter
from fairbox.testing.application import DELIVERIES, OUTBOX
from fairbox.testing.doorbell_queues import DoorbellQueues
from fairbox.testing.streams import lambda_item

from benchmarks.figures import Figure
from local.engines.endpoints import Endpoints
from local.engines.servers import DynamoDbLocal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import Ordering

SHARDS: Final = 8
KEYS: Final = 1000
TURNS: Final = 3
RELAY_BATCH: Final = 100
_BODY_BYTES: Final = 700
_CALL_SECONDS: Final = 0.005
_LONGEST: Final = 60.0
_UNORDERED: Final = "the unordered path"


@dataclass(frozen=True, slots=True)
class Run:
    """The result of delivering a backlog.

    Attributes:
        messages: taken.
        expected: number of messages.
        seconds: duration.
        rru: read units.
    """

    messages: int
    expected: int
    seconds: float
    rru: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


def figures(*, messages: int = 4000, shards: int = SHARDS) -> tuple[list[Figure], list[str]]:
    """Return the figures, and the undelivered parts of the backlogs.

    Args:
        messages: of each backlog of several shards; a quarter of them for one shard.
        shards: of the topics whose shards are delivered at once.
    """
    database = DynamoDbLocal()
    database.start()
    try:
        setup = _Setup(database)
        setup.measure("key", 1, messages // 8)  # the engine compiles itself at first
        setup.measure("none", 1, messages // 8)
        runs: dict[tuple[Ordering, int], list[Run]] = {}
        for _ in range(TURNS):
            for count, size in ((1, messages // 4), (shards, messages)):
                for ordering in _ORDERINGS:
                    run = setup.measure(ordering, count, size // TURNS)
                    runs.setdefault((ordering, count), []).append(run)
    finally:
        database.stop()
    faults = [
        f"ordering {ordering}, {count} shards: {run.messages} of {run.expected} were delivered"
        for (ordering, count), several in runs.items()
        for run in several
        if run.messages != run.expected
    ]
    found = []
    for name, count in (("per_shard", 1), ("in_all", shards)):
        ordered, unordered = _total(runs["key", count]), _total(runs["none", count])
        found += [
            Figure(f"ordered.{name}", "messages/s", ordered.rate, unordered.rate, _UNORDERED),
            Figure(f"ordered.{name}.ratio", "", ordered.rate / unordered.rate),
            Figure(f"ordered.{name}.rru_per_message", "RRU", ordered.rru / ordered.messages),
        ]
    return found, faults


_ORDERINGS: Final[tuple[Ordering, ...]] = ("none", "key")


def _total(runs: Sequence[Run]) -> Run:
    return Run(
        sum(run.messages for run in runs),
        sum(run.expected for run in runs),
        sum(run.seconds for run in runs),
        sum(run.rru for run in runs),
    )


class _Sink:
    """A destination that accepts ten messages a call and counts them."""

    limits = Limits(10, 1024 * 1024)
    keeps_order = True
    quick = True

    def __init__(self) -> None:
        self.taken: list[str] = []

    def size(self, message: StoredMessage) -> int:
        return message.size

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:
        time.sleep(min(_CALL_SECONDS, timeout))
        self.taken += [m.ref.id for m in messages]
        return [TAKEN] * len(messages)

    def open(self, _: Subscription) -> _Sink:
        """Return itself: every address is its own."""
        return self


class _Setup:
    """Topics over one engine, and the backlogs that are delivered."""

    def __init__(self, database: DynamoDbLocal) -> None:
        here = database.endpoint  # nothing else is called
        endpoints = Endpoints(dynamodb=here, services=here, firehose=here)
        self._client = endpoints.clients()["dynamodb"]
        self._clock = SystemClock()
        for definition in table_definitions(outbox=OUTBOX, deliveries=DELIVERIES):
            self._client.create_table(**definition)
        self._outbox = Outbox(self._client, table=OUTBOX, deliveries_table=DELIVERIES)
        self._topics = 0

    def measure(self, ordering: Ordering, shards: int, messages: int) -> Run:
        """Deliver a backlog of a fresh topic, with one invocation at a time for each shard."""
        self._topics += 1
        name = f"topic-{self._topics}"
        self._outbox.create_topic(Topic(name, shards=shards, ordering=ordering))
        self._outbox.add_subscription(Subscription(name, "sink", "sqs:sink"))
        rng = random.Random(self._topics)
        for start in range(0, messages, RELAY_BATCH):
            many = min(RELAY_BATCH, messages - start)
            self._outbox.add_many([self._message(name, rng) for _ in range(many)])
        sink = _Sink()
        meters = [CostMeter(self._client) for _ in range(shards)]
        work = self._visits if ordering == "key" else self._relays
        with ThreadPoolExecutor(shards) as pool:
            jobs = [work(name, shard, meter, sink) for shard, meter in enumerate(meters)]
            for meter in meters:
                meter.reset()
            began = time.perf_counter()
            done = [pool.submit(job) for job in jobs]
            for future in done:
                future.result()
            seconds = time.perf_counter() - began
        rru = sum(meter.reading().rru for meter in meters)
        return Run(len(set(sink.taken)), messages, seconds, rru)

    @staticmethod
    def _message(topic: str, rng: random.Random) -> Message:
        key = f"customer-{rng.randrange(KEYS)}"
        return Message(topic=topic, body=rng.randbytes(_BODY_BYTES), partition_key=key)

    def _visits(self, topic: str, shard: int, meter: CostMeter, sink: _Sink) -> Callable[[], None]:
        visits = Visits(self._dispatcher(meter, sink))
        return lambda: self._visit(visits, Doorbell(topic, 0, shard))

    def _visit(self, visits: Visits, doorbell: Doorbell) -> None:
        visits.handle(doorbell, deadline=self._clock.now() + _LONGEST)

    def _relays(self, topic: str, shard: int, meter: CostMeter, sink: _Sink) -> Callable[[], None]:
        relay = Relay(self._dispatcher(meter, sink))
        records = self._records(topic, shard)
        batches = [records[n : n + RELAY_BATCH] for n in range(0, len(records), RELAY_BATCH)]

        def run() -> None:
            for batch in batches:
                relay.handle(batch, deadline=self._clock.now() + _LONGEST)

        return run

    def _records(self, topic: str, shard: int) -> list[dict[str, Any]]:
        """Return the inserts of a shard's messages, as the stream passes them to the relay."""
        found: list[dict[str, Any]] = []
        pages = self._client.get_paginator("query").paginate(
            TableName=OUTBOX,
            KeyConditionExpression="pk = :pk AND sk > :head",
            ExpressionAttributeValues={
                ":pk": {"S": lane_pk("ready", topic, 0, shard)},
                ":head": {"S": "!"},
            },
        )
        for item in (item for page in pages for item in page["Items"]):
            image = lambda_item(item)
            change = {
                "Keys": {name: image[name] for name in ("pk", "sk")},
                "NewImage": image,
                "ApproximateCreationDateTime": int(self._clock.now()),
                "SequenceNumber": str(len(found) + 1),
            }
            event = {"eventID": str(len(found)), "eventName": "INSERT", "dynamodb": change}
            found.append(event)
        return found

    def _dispatcher(self, meter: CostMeter, sink: _Sink) -> Dispatcher:
        rng = random.Random(0)
        tables = Tables(meter, outbox=OUTBOX, deliveries=DELIVERIES, clock=self._clock, rng=rng)
        # nobody answers them: a backlog is delivered without, and what is not shows
        unanswered = DoorbellQueues(self._clock)
        return Dispatcher(DynamoStore(tables), sink, unanswered, clock=self._clock, rng=rng)
