"""Moves into lane dead and back on both engines: with their batch items, in one transaction."""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import BatchBusy, Batches, Message, Outbox, Subscription, Topic
from fairbox.dispatch.burials import Burials
from fairbox.model.ids import IdGenerator
from fairbox.tables.definitions import batches_definition, table_definitions
from fairbox.tables.stored_messages import Failure, StoredMessage, SubscriptionState, read_message
from fairbox.testing import ManualClock
from fairbox.testing.application import MemoryBodies
from fairbox.testing.faults import Fault, FaultyDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairbox import MessageRef

_numbers = itertools.count()
DEAD = SubscriptionState(1, 0, (Failure(1, 0, "no"),), dead=True)


@dataclass
class Moving:
    """Tables of their own in one engine, with what delivers and what redrives over them."""

    engine: Any
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.prefix = f"moving-{next(_numbers)}"
        tables = table_definitions(outbox=self.name("outbox"), deliveries=self.name("deliveries"))
        for definition in [*tables, batches_definition(self.name("batches"))]:
            definition.pop("StreamSpecification", None)  # streams make DynamoDB Local slow
            self.engine.create_table(**definition)
        self.client = FaultyDynamoDB(self.engine, random.Random(1))
        self.ids = IdGenerator(self.clock)
        self.outbox = self.another()
        self.tables = self.outbox.tables
        self.batches = Batches(
            self.engine,
            table=self.name("batches"),
            outbox_table=self.name("outbox"),
            deliveries_table=self.name("deliveries"),
        )
        self.outbox.create_topic(Topic("orders", shards=2))
        self.outbox.add_subscription(Subscription("orders", "a", "sqs:http://q/a"))

    def name(self, table: str) -> str:
        return f"{self.prefix}-{table}"

    def another(self) -> Outbox:
        """Return an outbox of another process, with jitter of its own, over the real time."""
        return Outbox(
            self.client,
            table=self.name("outbox"),
            deliveries_table=self.name("deliveries"),
            batches_table=self.name("batches"),
            bodies=MemoryBodies(),
            clock=self.clock,
        )

    def batch(self, count: int) -> tuple[str, list[str]]:
        batch = self.batches.open().id
        (group,) = self.batches.add(batch, count, request_id="r")
        return batch, list(group.item_ids())

    def added(self, items: Iterable[str | None]) -> list[StoredMessage]:
        """Publish a message for each item, and return them as they lie there."""
        messages = [
            Message(topic="orders", body=b"x", batch_item=item, id=self.ids.next())
            for item in items
        ]
        refs = self.outbox.add_many(messages)
        found = [self.outbox.find(ref) for ref in refs]
        return [stored for stored in found if stored is not None]

    def mark(self, stored: StoredMessage, *left: str) -> StoredMessage:
        """Let a message die for `a`; where nobody is left who lacks it, mark it as dead."""
        pending = frozenset(left) or frozenset({"a"})
        return replace(stored, pending=pending, states={"a": DEAD}, gone=None if left else "dead")

    def kill(self, stored: StoredMessage) -> StoredMessage:
        marked = self.mark(stored)
        assert self.tables.lanes.save_state(marked, stored) == "saved"
        Burials(self.tables).bury(marked, frozenset({"a"}))
        return marked

    def lying(self) -> list[StoredMessage]:
        return self.read("outbox", ("ready#orders", "later#orders"))

    def dead(self) -> list[StoredMessage]:
        return self.read("deliveries", ("dead#",))

    def read(self, table: str, lanes: tuple[str, ...]) -> list[StoredMessage]:
        items = self.engine.scan(TableName=self.name(table), ConsistentRead=True)["Items"]
        return [read_message(i) for i in items if i["pk"]["S"].startswith(lanes)]

    def settled(self, batch: str) -> tuple[int, int, int]:
        """Return how many are pending, acked, failed: exact."""
        progress = self.batches.progress(batch)
        return progress.pending, progress.acked, progress.failed


@pytest.fixture
def moving(client: Any) -> Moving:
    return Moving(client)


def test_there_and_back_with_an_item(moving: Moving) -> None:
    batch, items = moving.batch(3)
    (stored,) = moving.added(items[:1])
    moving.kill(stored)
    assert (moving.lying(), [m.ref for m in moving.dead()]) == ([], [stored.ref])
    assert moving.settled(batch) == (2, 0, 1)
    assert moving.outbox.redrive("orders").refs == (stored.ref,)
    assert moving.dead() == []
    assert [(m.ref, m.pending, m.states, m.redriven) for m in moving.lying()] == [
        (stored.ref, frozenset({"a"}), {}, 1)
    ]
    assert moving.settled(batch) == (3, 0, 0)


def test_an_emptied_group_is_filled_again_and_an_ended_batch_is_not(moving: Moving) -> None:
    batch, (item,) = moving.batch(1)
    (stored,) = moving.added([item])
    moving.kill(stored)
    moving.batches.ack([item])  # changes nothing, and clears the group upwards
    moving.outbox.redrive("orders")
    assert moving.settled(batch) == (1, 0, 0)
    (again,) = moving.lying()
    moving.kill(again)
    moving.batches.ack([item])
    assert moving.batches.seal(batch).complete
    moving.outbox.redrive("orders")
    assert moving.settled(batch) == (0, 0, 1)
    assert [m.redriven for m in moving.lying()] == [2]


def test_a_partial_death_and_its_way_back_into_the_message(moving: Moving) -> None:
    batch, items = moving.batch(2)
    (stored,) = moving.added(items[:1])
    left = moving.mark(stored, "b")
    assert Burials(moving.tables).bury_partly(left, stored, frozenset({"a"})) == "saved"
    assert moving.settled(batch) == (1, 0, 1)
    assert moving.outbox.redrive("orders").count == 1
    (merged,) = moving.lying()
    assert (merged.pending, merged.states, moving.dead()) == (frozenset({"a", "b"}), {}, [])
    assert moving.settled(batch) == (2, 0, 0)
    lost = moving.tables.lanes.delete_unchanged(left)
    assert isinstance(lost, StoredMessage)
    assert lost.redriven == 1
    assert moving.tables.lanes.delete_unchanged(merged) == "saved"
    assert moving.tables.lanes.delete_unchanged(merged) == "absent"


def test_a_partial_death_of_what_somebody_changed_writes_nothing(moving: Moving) -> None:
    batch, items = moving.batch(2)
    (stored,) = moving.added(items[:1])
    other = replace(stored, pending=frozenset({"a"}))
    assert moving.tables.lanes.save_state(other, stored) == "saved"
    there = Burials(moving.tables).bury_partly(moving.mark(stored, "b"), stored, frozenset({"a"}))
    assert isinstance(there, StoredMessage)
    assert there.pending == frozenset({"a"})
    assert (moving.dead(), moving.settled(batch)) == ([], (2, 0, 0))


@pytest.mark.parametrize("carried", [True, False])
def test_whoever_comes_late_moves_nothing(moving: Moving, carried: bool) -> None:
    batch, items = moving.batch(2)
    (stored,) = moving.added([items[0] if carried else None])
    marked = moving.kill(stored)
    moving.outbox.redrive("orders")
    Burials(moving.tables).finish(marked, frozenset({"a"}))
    moving.tables.lanes.delete_marked(marked)
    assert [m.redriven for m in moving.lying()] == [1]
    assert (moving.dead(), moving.settled(batch)) == ([], (2, 0, 0))


@pytest.mark.parametrize("carried", [True, False])
def test_a_lost_answer_moves_nothing_twice(moving: Moving, carried: bool) -> None:
    batch, items = moving.batch(2)
    (stored,) = moving.added([items[0] if carried else None])
    marked = moving.mark(stored)
    moving.tables.lanes.save_state(marked, stored)
    lost = [Fault.APPLIED_THEN_TIMEOUT, Fault.CONFLICT, Fault.TIMEOUT_UNAPPLIED]
    moving.client.next("transact_write_items", *lost)
    Burials(moving.tables).finish(marked, frozenset({"a"}))
    assert (moving.lying(), len(moving.dead())) == ([], 1)
    moving.client.next("transact_write_items", *lost)
    assert moving.outbox.redrive("orders").refs == (stored.ref,)
    assert (len(moving.lying()), moving.dead()) == (1, [])
    assert moving.settled(batch) == (2, 0, 0)


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Do works in threads that begin together; return what they return."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], Any]) -> Any:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def ack_each(moving: Moving, items: list[str]) -> None:
    """Ack items one by one, each again while others keep changing their group."""
    for item in items:
        while True:
            with suppress(BatchBusy):
                moving.batches.ack([item])
                break


def test_many_at_once_move_each_message_and_fail_its_item_once(moving: Moving) -> None:
    batch, items = moving.batch(60)
    stored = moving.added(items[:12])
    marked = [moving.mark(m) for m in stored]
    for before, after in zip(stored, marked, strict=True):
        moving.tables.lanes.save_state(after, before)

    def finish() -> None:
        tables = moving.another().tables
        for one in random.sample(marked, len(marked)):
            with suppress(BatchBusy):
                Burials(tables).finish(one, frozenset({"a"}))

    at_once(finish, finish, finish, lambda: ack_each(moving, items[12:]))
    for one in marked:
        Burials(moving.tables).finish(one, frozenset({"a"}))
    assert (moving.lying(), len(moving.dead())) == ([], 12)
    assert moving.settled(batch) == (0, 48, 12)


def test_redrives_at_once_bring_each_message_and_its_item_back_once(moving: Moving) -> None:
    batch, items = moving.batch(40)
    stored = moving.added(items[:12])
    for one in stored:
        moving.kill(one)

    def redrive() -> list[MessageRef]:
        outbox = moving.another()
        done: list[MessageRef] = []
        while True:
            result = outbox.redrive("orders")
            done += result.refs
            if not result.left:
                return done

    *found, _ = at_once(redrive, redrive, redrive, lambda: ack_each(moving, items[12:]))
    done = sorted(itertools.chain(*found))
    assert done == sorted(m.ref for m in stored)
    assert sorted(m.ref for m in moving.lying()) == done
    assert moving.dead() == []
    assert moving.settled(batch) == (12, 28, 0)
