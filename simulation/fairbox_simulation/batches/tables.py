"""The tables of simulated batches: emptied between them, with a tap on all that is written."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Protocol

from fairbox import Outbox, Topic
from fairbox.client.batches import COMPLETED_TOPIC, ORPHANED_TOPIC
from fairbox.codec.batches import emptied, read_record
from fairbox.codec.messages import read_message
from fairbox.dynamodb.definitions import batches_definition, table_definitions
from fairbox.testing import ManualClock, MemoryDynamoDB
from fairbox.testing.stores import Store

from fairbox_simulation.batches.invariants import pieces
from fairbox_simulation.batches.lean import LeanDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox.batches.models import Metadata, Record

    from fairbox_simulation.batches.invariants import Cause, Pieces

OUTBOX, DELIVERIES, BATCHES = "outbox", "deliveries", "batches"
START = 1_760_000_000.0
Announced = dict[str, Any]
Item = dict[str, Any]


class Database(Protocol):
    """A database that can be emptied and looked into."""

    client: Any

    def reset(self) -> None:
        """Empty it, but for the topics."""
        ...

    def items(self, table: str) -> Iterator[Item]:
        """Yield the items of a table."""
        ...


class MemoryDatabase:
    """`fairbox.testing`'s engine."""

    def __init__(self, clock: ManualClock) -> None:
        self.client = MemoryDynamoDB(clock)
        for definition in (
            *table_definitions(outbox=OUTBOX, deliveries=DELIVERIES),
            batches_definition(BATCHES),
        ):
            definition.pop("StreamSpecification", None)  # the tap is the stream
            self.client.create_table(**definition)
        _create_topics(self.client, clock)
        self._state = self.client._engine
        self._topics = set(self._state.tables[OUTBOX].store.partitions)

    def reset(self) -> None:
        """Empty it, but for the topics."""
        table = self._state.tables[BATCHES]
        table.store = Store()
        for index in table.indexes.values():
            index.store = Store()
        outbox = self._state.tables[OUTBOX].store
        for hash_value in outbox.partitions.keys() - self._topics:
            for sort in list(outbox.partitions[hash_value].rows):
                outbox.remove((hash_value, sort))
        self._state.tokens.clear()

    def items(self, table: str) -> Iterator[Item]:
        """Yield the items of a table."""
        for partition in self._state.tables[table].store.partitions.values():
            for row in partition.rows.values():
                yield row.item


class LeanDatabase:
    """Dicts: for many batches in little time."""

    def __init__(self, clock: ManualClock) -> None:
        self.client = LeanDynamoDB()
        self._topics = list(MemoryDatabase(clock).items(OUTBOX))
        self.reset()

    def reset(self) -> None:
        """Empty it, but for the topics."""
        rows = self.client.rows
        rows[BATCHES].clear()
        rows[OUTBOX] = {(item["pk"]["S"], item["sk"]["S"]): item for item in self._topics}
        self.client.forget_tokens()

    def items(self, table: str) -> Iterator[Item]:
        """Yield the items of a table."""
        yield from self.client.rows[table].values()


def _create_topics(client: Any, clock: ManualClock) -> None:
    rng = random.Random(0)  # tokens of requests too are the same in every process
    outbox = Outbox(client, table=OUTBOX, deliveries_table=DELIVERIES, clock=clock, rng=rng)
    for topic in (COMPLETED_TOPIC, ORPHANED_TOPIC):
        outbox.create_topic(Topic(topic, shards=1))


class Tables:
    """One database for many simulations, one after the other.

    Attributes:
        stream: what the batches' stream has brought: what asks for a cascade, in order.
        on_announcement: called with topic and body when a message has just been written.
    """

    def __init__(self, database: Callable[[ManualClock], Database] = LeanDatabase) -> None:
        self.clock = ManualClock(START)
        self._database = database(self.clock)
        self.client = Tap(self._database.client, self._written)
        self._records: dict[int, tuple[Item, Record | Metadata]] = {}
        self.stream: list[Cause] = []
        self.on_announcement: Callable[[str, Announced], None] = lambda _topic, _body: None

    def reset(self) -> None:
        """Empty the tables, but for the topics, and set the clock back."""
        self._database.reset()
        self.clock.set(START)
        self.stream.clear()
        self._records.clear()

    def pieces(self) -> Pieces:
        """Return the records of the batches table."""
        return pieces(self._database.items(BATCHES), self._read)

    def records(self) -> list[Record | Metadata]:
        """Return the records of the batches table, in no order."""
        return [read_record(item) for item in self._database.items(BATCHES)]

    def _read(self, item: Item) -> Record | Metadata:
        """Return an item's record; the item is kept, so that its id stays its own."""
        known = self._records.get(id(item))
        if known is None:
            known = self._records[id(item)] = (item, read_record(item))
        return known[1]

    def messages(self, topic: str) -> list[Announced]:
        """Return the bodies of what was announced on a topic."""
        prefix = f"ready#{topic}#"
        return [
            json.loads(read_message(item).message.body)
            for item in self._database.items(OUTBOX)
            if item["pk"]["S"].startswith(prefix)
        ]

    def _written(self, puts: list[Item]) -> None:
        for put in puts:
            item = put["Item"]
            if put["TableName"] == BATCHES:
                child = emptied(item)
                if child is not None:
                    self.stream.append(child)
            else:
                message = read_message(item).message
                self.on_announcement(message.topic, json.loads(message.body))


class Tap:
    """A client whose applied writes are told.

    Args:
        client: what the calls go to.
        written: is given the puts of a write that was applied; those of a repeated token again.
    """

    def __init__(self, client: Any, written: Callable[[list[Item]], None]) -> None:
        self._client = client
        self._written = written
        for name in ("get_item", "batch_get_item", "query", "batch_write_item"):
            setattr(self, name, getattr(client, name))

    def put_item(self, **request: Any) -> Item:
        """Put, then tell."""
        answer: Item = self._client.put_item(**request)
        self._written([request])
        return answer

    def transact_write_items(self, **request: Any) -> Item:
        """Write, then tell."""
        answer: Item = self._client.transact_write_items(**request)
        self._written([a["Put"] for a in request["TransactItems"] if "Put" in a])
        return answer
