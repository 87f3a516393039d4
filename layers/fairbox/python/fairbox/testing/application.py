"""The application in memory: tables, delivery functions and destinations in one process.

For users' own tests, and for simulations: the engine, the clock and every source of chance are
handed in, and nothing happens until the test says so.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairbox.aws.sqs_queues import Answer, answer_doorbells
from fairbox.client.batch_maintenance import BatchMaintenance
from fairbox.client.batches import Batches
from fairbox.client.feeds import Feeds
from fairbox.client.outbox import Outbox
from fairbox.client.queue import Queue
from fairbox.destinations.feed import PublishedFeed
from fairbox.destinations.topic import PulledTopic, add_to_topic
from fairbox.dispatch.dispatcher import Dispatcher, run_sequentially
from fairbox.dispatch.maintenance.expiry import Expiry
from fairbox.dispatch.maintenance.minute_figures import TopicFigures, count_outstanding
from fairbox.dispatch.maintenance.repair_scan import Repair, RepairReport
from fairbox.dispatch.maintenance.shard_sweep import Sweep, SweepReport
from fairbox.dispatch.ports import TAKEN, GivenUpBatch, Limits, Outcome, SetAside
from fairbox.dispatch.record_relay import Relay
from fairbox.dispatch.stream.marking import Marking
from fairbox.dispatch.visits import Visits
from fairbox.model.ids import IdGenerator
from fairbox.model.topics import GROUPS, Subscription
from fairbox.tables import batch_records as batch_names
from fairbox.tables.definitions import batches_definition, feeds_definition, table_definitions
from fairbox.tables.keys import EXPIRES_AT
from fairbox.tables.stored_messages import SIZE, StoredMessage
from fairbox.tables.tables import Tables
from fairbox.testing.acks import MemoryAcks
from fairbox.testing.doorbell_queues import DoorbellQueues
from fairbox.testing.manual_clock import ManualClock
from fairbox.testing.memory import MemoryDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairbox.batches.cleanup import Cleaned
    from fairbox.destinations.feed import PublishMany
    from fairbox.model.clock import Clock
    from fairbox.model.messages import Message

OUTBOX = "outbox"
DELIVERIES = "deliveries"
BATCHES = "batches"
FEEDS = "feeds"
INVOCATION_SECONDS = 25.0
CLEANED_SECONDS = 3600.0
_EXPIRES = {DELIVERIES: EXPIRES_AT, BATCHES: batch_names.EXPIRES_AT, FEEDS: EXPIRES_AT}


@dataclass(slots=True)
class MemoryDestination:
    """A destination that keeps the messages it takes.

    Attributes:
        received: every message taken, in the order of arrival, with repetitions.
        answer: decides the outcome of a message; takes everything by default.
        calls: how many calls were made.
        topic: of an address `topic:NAME` or `feed:NAME`, where it puts taken messages.
    """

    limits: Limits = field(default_factory=lambda: Limits(10, 1024 * 1024))
    quick: bool = True
    received: list[StoredMessage] = field(default_factory=list)
    answer: Callable[[StoredMessage], Outcome] = lambda _: TAKEN
    calls: int = 0
    topic: PulledTopic | PublishedFeed | None = None

    def size(self, message: StoredMessage) -> int:
        """Return the bytes of the body."""
        return message.size

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:
        """Keep the messages that `answer` takes, and put them on the topic, if there is one."""
        self.calls += 1
        outcomes = [self.answer(m) for m in messages]
        if self.topic is not None:
            taken = [m for m, o in zip(messages, outcomes, strict=True) if o.taken]
            # only messages that `answer` takes reach the topic, whose own outcomes count for them
            added = iter(self.topic.send(taken, timeout))
            outcomes = [next(added) if o.taken else o for o in outcomes]
        self.received += [m for m, o in zip(messages, outcomes, strict=True) if o.taken]
        return outcomes

    @property
    def ids(self) -> list[str]:
        """The ids of the taken messages, in order."""
        return [m.ref.id for m in self.received]


class MemoryDestinations:
    """Destinations by address, each made when it is first opened.

    Args:
        add_to_topic: adds messages to a pulled topic, for `topic:`; None: these only keep them.
        publish: publishes to a feed, for `feed:`; None: these only keep them.
    """

    def __init__(
        self,
        add_to_topic: Callable[[Sequence[Message]], list[Outcome]] | None = None,
        publish: PublishMany | None = None,
    ) -> None:
        self._add_to_topic = add_to_topic
        self._publish = publish
        self._made: dict[str, MemoryDestination] = {}

    def __getitem__(self, address: str) -> MemoryDestination:
        """Return the destination of an address."""
        if address not in self._made:
            scheme, _, name = address.partition(":")
            made = self._made[address] = MemoryDestination()
            if scheme == "topic" and self._add_to_topic:
                made.topic = PulledTopic(name, self._add_to_topic)
            elif scheme == "feed" and self._publish:
                made.topic = PublishedFeed(name, self._publish)
        return self._made[address]

    def put(self, address: str, destination: Any) -> None:
        """Put a destination of another kind, such as a pulled topic, at an address."""
        self._made[address] = destination

    def open(self, subscription: Subscription) -> MemoryDestination:
        """Return the destination of a subscription."""
        return self[subscription.destination]


class MemoryBodies:
    """Offloaded bodies in memory; `expired` names the bodies that may be deleted."""

    bucket = "bodies"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.expired: set[str] = set()

    def put(self, key: str, body: bytes, content_type: str) -> None:  # noqa: ARG002 - the port's
        """Store a body."""
        self.objects[key] = body

    def get(self, bucket: str, key: str) -> bytes:  # noqa: ARG002 - the port's
        """Return a body."""
        return self.objects[key]

    def expire(self, bucket: str, key: str) -> None:  # noqa: ARG002 - the port's
        """Note that a body may be deleted."""
        self.expired.add(key)


class MemoryArchive:
    """The archive in memory: its lines in the order of writing."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, lines: Sequence[bytes]) -> None:
        """Keep the lines."""
        self.lines += lines


class MemoryGivenUp:
    """Given-up batches by name, and when each was met first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self.kept: dict[str, Sequence[Mapping[str, Any]]] = {}

    def names(self) -> dict[str, float]:
        """Return the names of all, with their times."""
        return {name: self._since.setdefault(name, self._clock.now()) for name in self.kept}

    def read(self, name: str) -> GivenUpBatch:
        """Return a batch."""
        return GivenUpBatch(self.kept[name], counted=name.startswith("set-aside/"))

    def done(self, name: str) -> None:
        """Forget one."""
        del self.kept[name]

    def keep(self, reason: str, records: Sequence[Mapping[str, Any]]) -> str:
        """Keep records that were set aside."""
        name = f"set-aside/{reason}/{len(self.kept)}"
        self.kept[name] = list(records)
        # its age counts from here, not from the first time that somebody asks for names
        self._since[name] = self._clock.now()
        return name


class MemoryApplication:
    """Fairbox in memory.

    Args:
        clock: the time; a `ManualClock` by default.
        rng: every chance; seeded by default, so that a run repeats.
        wrap: puts something around the DynamoDB client, such as faults or a meter.
        index_lag: seconds by which global secondary indexes trail their tables.

    Example:
        ```python
        app = MemoryApplication()
        app.outbox.create_topic(Topic("orders"))
        billing = "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/billing"
        app.outbox.add_subscription(Subscription("orders", "billing", billing))
        app.outbox.add(Message(topic="orders", body=b"{}", id=app.ids.next()))
        app.run()
        assert len(app.destinations[billing].received) == 1
        ```
    """

    def __init__(
        self,
        *,
        clock: ManualClock | None = None,
        rng: random.Random | None = None,
        wrap: Callable[[Any], Any] = lambda client: client,
        index_lag: float = 0.0,
    ) -> None:
        self.clock = clock or ManualClock()
        self.rng = rng or random.Random(0)  # noqa: S311 - a simulation's

        self.engine = MemoryDynamoDB(self.clock, index_lag=index_lag)
        for definition in table_definitions(outbox=OUTBOX, deliveries=DELIVERIES):
            self.engine.create_table(**definition)
        self.engine.create_table(**batches_definition(BATCHES))
        self.engine.create_table(**feeds_definition(FEEDS))
        for table, name in _EXPIRES.items():
            kept = {"AttributeName": name, "Enabled": True}
            self.engine.update_time_to_live(TableName=table, TimeToLiveSpecification=kept)

        self.client = wrap(self.engine)
        self.ids = IdGenerator(self.clock, self.rng.getrandbits)
        self.bodies = MemoryBodies()
        self.archive = MemoryArchive()
        self.given_up = MemoryGivenUp(self.clock)

        self.feeds = Feeds(self.client, table=FEEDS, clock=self.clock, rng=self.rng, ids=self.ids)
        self.destinations = MemoryDestinations(
            # called only later, when there is an outbox
            lambda messages: add_to_topic(self.outbox, messages),
            self.feeds.publish_many,
        )

        self.doorbells = DoorbellQueues(
            self.clock, groups=self._groups, groups_apart=self._groups_apart
        )
        self.acks = MemoryAcks()

        self.outbox = Outbox(
            self.client,
            table=OUTBOX,
            deliveries_table=DELIVERIES,
            batches_table=BATCHES,
            bodies=self.bodies,
            doorbells=self.doorbells,
            clock=self.clock,
            rng=self.rng,
        )

        self.queue = Queue.over(self.outbox)
        self.batches = Batches(
            self.client,
            table=BATCHES,
            outbox_table=OUTBOX,
            deliveries_table=DELIVERIES,
            clock=self.clock,
            rng=self.rng,
            ids=self.ids,
        )
        self.keeper = BatchMaintenance(self.batches)

        self.tables = self.tables_of(self.clock)
        # functions have copies of topics of their own, which age apart from those of clients
        dispatcher = Dispatcher(
            self.tables,
            self.destinations,
            self.doorbells,
            clock=self.clock,
            rng=self.rng,
            fan_out=run_sequentially,
        )

        self._relay = Relay(dispatcher)
        self._visits = Visits(dispatcher)
        expiry = Expiry(self.tables, self.clock)
        self._sweep = Sweep(self.tables, self.doorbells, self.clock, expiry=expiry)
        self._marking = self.marking_of(self.clock, self.given_up)

        self._relayed: str | None = None
        self._marked: str | None = None
        self._cascaded: str | None = None
        self._cleaned_at = self.clock.now()

    def tables_of(self, clock: Clock) -> Tables:
        """Return the tables as a function has them that has a clock of its own."""
        return Tables(
            self.client,
            outbox=OUTBOX,
            deliveries=DELIVERIES,
            batches=BATCHES,
            bodies=self.bodies,
            clock=clock,
            rng=self.rng,
        )

    def marking_of(self, clock: Clock, aside: SetAside | None = None) -> Marking:
        """Return a marking with a clock of its own."""
        return Marking(self.tables_of(clock), self.archive, clock, self.acks, aside=aside)

    @property
    def deadline(self) -> float:
        """The time when an invocation that begins now must stop."""
        return self.clock.now() + INVOCATION_SECONDS

    def records(self, after: str | None = None) -> list[dict[str, Any]]:
        """Return the outbox's stream records of messages after a sequence number."""
        return [r for r in self.engine.stream(OUTBOX).take(after) if _of_message(r)]

    def relay(self, batch: int = 100, *, through: str | None = None) -> int:
        """Relay the records of the stream, in batches; return their number.

        Args:
            batch: records of an invocation.
            through: the last sequence number to relay; None: the stream's.
        """
        records = self.records(self._relayed)
        if through is not None:
            records = [r for r in records if r["dynamodb"]["SequenceNumber"] <= through]
        for start in range(0, len(records), batch):
            chunk = records[start : start + batch]
            self._relay.handle(chunk, deadline=self.deadline)
            # behind the call: an invocation that raises is given the same batch again
            self._relayed = chunk[-1]["dynamodb"]["SequenceNumber"]
        return len(records)

    def mark(self, batch: int = 1000) -> int:
        """Mark the records of the stream, in batches; return their number."""
        records = self.records(self._marked)
        for start in range(0, len(records), batch):
            chunk = records[start : start + batch]
            self._marking.handle(chunk)
            # behind the call, as in `relay`
            self._marked = chunk[-1]["dynamodb"]["SequenceNumber"]
        return len(records)

    def ack(self) -> int:
        """Ack the ids in the ack queue, except unknown or deleted ones; return the number."""
        known, _ = self.keeper.settlement.split_known(dict.fromkeys(self.acks.take()))
        return self.batches.ack(known).changed if known else 0

    def cascade(self) -> list[str]:
        """Cascade the batches' stream, as `cascade_batches`; return the completed batches."""
        records = self.engine.stream(BATCHES).take(self._cascaded)
        report = self.keeper.cascade_records(records, deadline=self.deadline)
        for record in records:
            sequence = record["dynamodb"]["SequenceNumber"]
            # Lambda gives this record, and all behind it, once more
            if sequence == report.again:
                break
            self._cascaded = sequence
        return report.completed

    def visit(self, limit: int | None = None) -> int:
        """Answer the doorbells that are due, at most `limit` of them; return how many.

        One whose visit failed comes again when its visibility ends, after 90 s.
        """
        # first: doorbells that have waited become visits only by this
        self.pass_on()
        answered = 0
        while answered != limit and self.doorbells.visits.invoke(self._answer):
            answered += 1
        return answered

    def pass_on(self) -> None:
        """Pass on the doorbells that have waited until they are due."""
        while self.doorbells.forwards.invoke(self._answer):
            pass

    def _answer(self, records: Sequence[Mapping[str, Any]]) -> Answer:
        return answer_doorbells(
            records, visits=self._visits, doorbells=self.doorbells, deadline=self.deadline
        )

    def _groups(self, topic: str) -> int:
        state = self.tables.topic_cache.get(topic)
        return GROUPS if state is None else state.groups

    def _groups_apart(self, topic: str, subscription: str) -> int:
        state = self.tables.topic_cache.get(topic)
        its = () if state is None else state.subscriptions
        return next((s.groups for s in its if s.name == subscription), 1)

    def sweep(self) -> SweepReport:
        """Run the sweep once."""
        return self._sweep.run(deadline=self.deadline)

    def clean(self) -> Cleaned:
        """Run the cleanup of batches once, and delete items past their time to live."""
        self._cleaned_at = self.clock.now()
        cleaned = self.keeper.cleanup.clean(
            deadline=self.deadline, open_hours=7 * 24, sealed_hours=14 * 24
        )
        for table in _EXPIRES:
            self.engine.expire(table)
        return cleaned

    def repair(
        self, *, seconds: float = 870, meanwhile: Callable[[], object] | None = None
    ) -> RepairReport:
        """Run repair once.

        Args:
            seconds: after which it stops.
            meanwhile: runs while repair waits for marking; `mark` by default.
        """
        tables = self.tables_of(self.clock)
        meanwhile = meanwhile or self.mark

        def wait(seconds: float) -> None:
            # repair waits for marking to meet its fences, which nobody else would read meanwhile
            self.clock.advance(seconds)
            meanwhile()

        return Repair(
            tables=tables,
            marking=self.marking_of(self.clock),
            given_up=self.given_up,
            doorbells=self.doorbells,
            clock=self.clock,
            others={BATCHES: self._replay_batches},
            next_id=self.ids.next,
            wait=wait,
        ).run(deadline=self.clock.now() + seconds)

    def _replay_batches(self, records: Sequence[Mapping[str, Any]], deadline: float) -> bool:
        return self.keeper.cascade_records(records, deadline=deadline).again is None

    def figures(self) -> dict[str, TopicFigures]:
        """Return the figures by topic that `count_outstanding` writes."""
        self.tables.topic_cache.refresh()
        return count_outstanding(self.tables, self.outbox.listed(), self.clock)

    def run(self, seconds: float = 0, *, step: float = 1.0) -> None:
        """Run the functions until the streams are read, then for so many seconds more.

        The sweep runs each minute, and `clean` if its last run was an hour ago.
        """
        end = self.clock.now() + seconds
        last_sweep = self.clock.now()

        while True:
            # until all rest: the work of one gives work to others
            while self.relay() or self.mark() or self.visit() or self.ack() or self.cascade():
                pass

            # before the end is tested, so that a run of just an hour ends with its cleanup
            if self.clock.now() - self._cleaned_at >= CLEANED_SECONDS:
                self.clean()
                continue
            if self.clock.now() >= end:
                return
            self.clock.advance(step)
            if self.clock.now() - last_sweep >= 60:
                last_sweep = self.clock.now()
                self.sweep()


def _of_message(record: dict[str, Any]) -> bool:
    body = record["dynamodb"]
    # rows of shards, topics and hints lie in the same table: the functions' filters drop them too
    return SIZE in body.get("NewImage", {}) or SIZE in body.get("OldImage", {})
