"""The set-up of contract tests: an outbox over either engine, with a clock, ids and queues."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairbox import Message, MessageRef, Outbox, Topic
from fairbox.dispatch.stream.marking import Marking
from fairbox.model.ids import IdGenerator
from fairbox.tables.definitions import table_definitions
from fairbox.testing import ManualClock
from fairbox.testing.application import MemoryArchive, MemoryBodies
from fairbox.testing.doorbell_queues import DoorbellQueues
from fairbox.testing.faults import FaultyDynamoDB
from fairbox.testing.streams import FIRST_SEQUENCE, lambda_item

if TYPE_CHECKING:
    from fairbox.model.clock import Clock

_numbers = itertools.count()  # tables of one engine differ
_sequences = itertools.count(FIRST_SEQUENCE)
_made: Counter[str] = Counter()


def _random() -> random.Random:
    """Return a source seeded by the running test, so that it does the same in any company.

    Sources of one engine differ, as their tokens must.
    """
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" (", 1)[0]
    _made[test] += 1
    return random.Random(f"{test} {_made[test]}")


@dataclass
class Setup:
    """One outbox with tables of its own."""

    engine: Any
    clock: ManualClock = field(default_factory=ManualClock)
    rng: random.Random = field(default_factory=_random)
    bodies: MemoryBodies = field(default_factory=MemoryBodies)

    def __post_init__(self) -> None:
        number = next(_numbers)
        self.table, self.deliveries = f"outbox-{number}", f"deliveries-{number}"
        for definition in table_definitions(outbox=self.table, deliveries=self.deliveries):
            definition.pop("StreamSpecification", None)  # streams make DynamoDB Local slow
            self.engine.create_table(**definition)
        self.client = FaultyDynamoDB(self.engine, self.rng)
        self.ids = IdGenerator(self.clock, self.rng.getrandbits)
        self.doorbells = DoorbellQueues(self.clock)
        self.outbox = self.another(self.clock)

    def another(self, clock: Clock) -> Outbox:
        """Return an outbox of another process over the same tables."""
        return Outbox(
            self.client,
            table=self.table,
            deliveries_table=self.deliveries,
            bodies=self.bodies,
            doorbells=self.doorbells,
            clock=clock,
            rng=self.rng,
        )

    def topic(self, name: str = "orders", **more: Any) -> Topic:
        """Create a topic of four shards, unless told otherwise."""
        return self.outbox.create_topic(Topic(name, **{"shards": 4, **more})).topic

    def message(self, topic: str = "orders", body: bytes = b"{}", **more: Any) -> Message:
        """Return a message whose id has the clock's time."""
        return Message(topic=topic, body=body, id=self.ids.next(), **more)

    def messages(self, count: int, topic: str = "orders", **more: Any) -> list[Message]:
        """Return messages, a second apart."""
        made = []
        for n in range(count):
            made.append(self.message(topic, b"%d" % n, **more))
            self.clock.advance(1)
        return made

    def items(self) -> list[dict[str, Any]]:
        """Return the messages' items in the table."""
        found = self.engine.scan(TableName=self.table, ConsistentRead=True)["Items"]
        return [i for i in found if i["pk"]["S"].startswith(("ready#", "later#"))]

    def deliver(self, *refs: MessageRef) -> None:
        """Take messages out as delivered, and mark it as the stream would have it marked."""
        records = [self._removal(ref) for ref in refs]
        self.outbox.mark_delivered(refs)
        Marking(self.outbox.tables, MemoryArchive(), self.clock).handle(records)

    def _removal(self, ref: MessageRef) -> dict[str, Any]:
        item = self.outbox.tables.lanes.get(ref)
        assert item is not None
        sequence = str(next(_sequences))
        return {
            "eventID": sequence,
            "eventName": "REMOVE",
            "dynamodb": {
                "ApproximateCreationDateTime": int(self.clock.now()),
                "Keys": lambda_item({name: item[name] for name in ("pk", "sk")}),
                "OldImage": lambda_item(item),
                "SequenceNumber": sequence,
            },
        }
