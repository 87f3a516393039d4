"""An application as a release leaves it: every kind of item, half-done work, unread records.

Only the public library and the in-memory engine make it, with a set clock and seeded chance.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, PartitionedQueue, RetryPolicy, Subscription, Topic
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.tables import batch_records as batch_codec
from fairbox.tables.batch_values import Request
from fairbox.testing import ManualClock
from fairbox.testing.application import BATCHES, OUTBOX, MemoryApplication

if TYPE_CHECKING:
    from fairbox.model.messages import MessageRef
    from fairbox.tables.stored_messages import StoredMessage

BEGUN: Final = 1_760_000_000.0
SEED: Final = 20_251_009
POISON: Final = b"poison"
_BROKEN: Final = {"z": {"N": "1"}, "b": {"B": b"\x00\xff"}}


@dataclass(slots=True)
class World:
    """The items and messages that a release left.

    Attributes:
        app: the application.
        after: the stream's sequence number up to which its records were read.
        receipts: of messages that consumers hold, by topic.
        batches: ids of batches by what they are.
        items: ids of batch items that are pending, by what their batch is.
    """

    app: MemoryApplication
    after: str = ""
    receipts: dict[str, list[str]] = field(default_factory=dict)
    batches: dict[str, str] = field(default_factory=dict)
    items: dict[str, list[str]] = field(default_factory=dict)


def answer(stored: StoredMessage) -> Outcome:
    """Take everything but poison."""
    if stored.message.body.startswith(POISON):
        return Outcome("refused", "poisoned", fault="message")
    return TAKEN


def build() -> World:
    """Return the application as it stands some minutes after it began."""
    clock = ManualClock(BEGUN)
    app = MemoryApplication(clock=clock, rng=random.Random(SEED))
    world = World(app)
    _topics(app)
    _open_batches(world)
    _publish(world)
    app.run(30)
    clock.advance(600)
    app.run(1)
    _pull(world)
    _operate(world)
    app.run(1)
    app.repair()
    _leave_unread(world)
    return world


def _topics(app: MemoryApplication) -> None:
    retry = RetryPolicy(max_attempts=2, base=1, cap=2)
    for topic in (
        Topic("orders", shards=2, retry=retry, weight=2, mini_batch=4),
        Topic("payments", shards=1, ordering="key", on_dead="block", retry=retry),
        Topic("invoices", shards=1, dedup_window=3600, tenant_weights={"large": 3}, retry=retry),
        Topic("jobs", shards=2, retry=RetryPolicy(max_attempts=5)),
        Topic("steps", shards=1, ordering="key"),
        Topic("idle", shards=1, retention=3600),
    ):
        app.outbox.create_topic(topic)
    PartitionedQueue("work", 3).create(app.outbox, shards=1)
    for subscription in (
        Subscription("orders", "billing", "sqs:billing", max_attempts=2, weight=3),
        Subscription("orders", "audit", "https://audit.example/in", rate=50, max_in_flight=4),
        Subscription("payments", "ledger", "sqs:ledger.fifo", timeout=5),
        Subscription("invoices", "print", "sqs:print"),
        Subscription("idle", "nobody", "sqs:nobody"),
    ):
        app.outbox.tables.topics.add_subscription(subscription)  # addresses of then
    for address in ("sqs:billing", "sqs:ledger.fifo", "sqs:print"):
        app.destinations[address].answer = answer
    app.destinations["https://audit.example/in"].answer = lambda _: Outcome("unreachable", "down")
    app.destinations["https://audit.example/in"].quick = False


def _open_batches(world: World) -> None:
    batches = world.app.batches
    opened = batches.open("night run", {"owner": "billing"})
    groups = batches.add(opened.id, 12, request_id="first", group_size=4)
    ids = [i for group in groups for i in group.item_ids()]
    batches.ack(ids[:5])
    batches.fail(ids[5:7], "no such customer")
    wide = batches.open("wide")
    wide_ids = [
        i
        for group in batches.add(wide.id, 70, request_id="wide", group_size=1)
        for i in group.item_ids()
    ]
    batches.ack(wide_ids[:66])
    batches.seal(wide.id)
    nested = batches.open("nested", parent_item=ids[11])
    nested_ids = [i for g in batches.add(nested.id, 2, request_id="n") for i in g.item_ids()]
    batches.seal(nested.id)
    done = batches.open("done")
    batches.seal(done.id)
    cancelled = batches.open("cancelled")
    batches.add(cancelled.id, 3, request_id="c")
    batches.cancel(cancelled.id)
    # an add that a crash cut off
    begun = Request(opened.id, "0" * 32, done=False, first=3, count=700, size=7)
    world.app.engine.put_item(TableName=BATCHES, Item=batch_codec.item_of(begun))
    world.batches = {
        "open": opened.id, "wide": wide.id, "nested": nested.id, "done": done.id,
        "cancelled": cancelled.id,
    }  # fmt: skip
    world.items = {"open": ids[7:11], "wide": wide_ids[66:], "nested": nested_ids}


def _add(app: MemoryApplication, topic: str, body: bytes, **more: Any) -> MessageRef:
    return app.outbox.add(Message(topic=topic, body=body, id=app.ids.next(), **more))


def _publish(world: World) -> None:
    app = world.app
    _add(app, "orders", b'{"id": 1}', headers={"traceparent": "00-1"}, fairness_key="acme")
    _add(app, "orders", b"x" * 5000, content_type="text/plain", partition_key="c-1")
    _add(app, "orders", b"y" * 700_000, content_type="text/plain")
    _add(app, "orders", POISON, direct=True)
    _add(app, "orders", b"later", delay=7200)
    _add(app, "payments", POISON, partition_key="k-1")
    for n in range(3):
        _add(app, "payments", b"%d" % n, partition_key="k-1")
        _add(app, "payments", b"%d" % n, partition_key="k-2")
    for key in ("a", "b"):
        _add(app, "invoices", key.encode(), dedup_key=key, fairness_key="large")
    _add(app, "invoices", POISON, batch_item=world.items["open"][0])
    _add(app, "invoices", b"rides", batch_item=world.items["open"][1], delay=3600)
    app.outbox.pause_subscription("idle", "nobody", reason="holiday")
    _add(app, "idle", b"waits")
    junk = {"pk": {"S": "ready#orders#0#0"}, "sk": {"S": "junk"}} | _BROKEN
    app.engine.put_item(TableName=OUTBOX, Item=junk)


def _pull(world: World) -> None:
    app = world.app
    for n in range(6):
        _add(app, "jobs", b"job %d" % n)
        _add(app, "steps", b"step %d" % n, partition_key=f"k-{n % 2}")
    _add(app, "jobs", b"job later", delay=1800)
    PartitionedQueue("work", 3).send_many(
        app.queue,
        [
            Message(topic="work", body=b"w", partition_key=f"k-{n}", id=app.ids.next())
            for n in range(4)
        ],
    )
    app.run(1)
    for topic in ("jobs", "steps"):
        held = app.queue.receive(topic, 3, visibility_timeout=900, consumer="worker-1")
        app.queue.ack(held[0].receipt)
        if len(held) > 2:
            app.queue.nack(held[1].receipt, delay=60, reason="not now")
        world.receipts[topic] = [held[-1].receipt]


def _operate(world: World) -> None:
    app = world.app
    ref = _add(app, "jobs", b"before")
    app.queue.edit(ref, body=b"after", headers={"edited": "yes"})
    later = _add(app, "jobs", b"moved", delay=900)
    app.queue.reschedule(later, delay=1200)
    letters = [d for d in app.outbox.dead("orders") if d.stored is not None]
    app.outbox.redrive("orders", [letters[0].id])
    app.run(20)
    app.outbox.resize("orders", 4)
    app.clock.advance(61)
    _add(app, "orders", b"of the new epoch")


def _leave_unread(world: World) -> None:
    """Add and take what no function has seen yet, and leave a cancel and a death half done."""
    app = world.app
    world.after = app.engine.stream(OUTBOX).take()[-1]["dynamodb"]["SequenceNumber"]
    _add(app, "orders", b"unread", partition_key="c-9")
    _add(app, "payments", b"unread", partition_key="k-9")
    _add(app, "jobs", b"unread")
    half = _add(app, "orders", b"half cancelled")
    app.outbox.tables.lanes.mark_gone(half, "cancelled", "by its customer")
    dedup = Message(topic="invoices", body=b"c", dedup_key="c", id=app.ids.next())
    app.outbox.add(dedup)
