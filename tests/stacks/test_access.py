"""The calls of each kind of user against its managed policy: enough, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Consumer, Message, PartitionedQueue, Queue, RetryPolicy, Subscription, Topic
from fairbox.doctor import aws
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX, MemoryApplication

from scripts import write_iam
from tests.stacks.assembly import listed, plain
from tests.stacks.requests import Asked, Policy, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fairbox import DeadLetter

    from tests.stacks.assembly import Assembly

NAMES = {OUTBOX: "Outbox", DELIVERIES: "Deliveries", BATCHES: "Batches"}
EMAILS = PartitionedQueue("email", 2)
EXAMINES = {
    f"{service}:{call.title().replace('_', '')}"
    for service, calls in aws.READS.items()
    for call in calls
    if service not in ("kinesis", "sns") and call != "describe_event_bus"
}
"""The actions of `fairbox doctor` on Fairbox's own resources: descriptions, and figures."""
READS = {"GetItem", "BatchGetItem", "Query", "Scan"}
WRITES = {
    "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "PartiQLUpdate", "PartiQLDelete",
    "PartiQLInsert",
}  # fmt: skip


class Scene:
    """Fairbox in memory, and everything that each kind of user does with it."""

    def __init__(self) -> None:
        made: list[Recorder] = []

        def wrap(client: Any) -> Recorder:
            made.append(Recorder(client, NAMES))
            return made[0]

        self.app = MemoryApplication(wrap=wrap)
        self.recorder = made[0]
        self.outbox = self.app.outbox
        self.queue = Queue.over(self.outbox)
        self.batch_items: dict[str, str] = {}
        retry = RetryPolicy(max_attempts=2, base=1, cap=1)
        for name, more in (
            ("jobs", {}),
            ("ordered", {"ordering": "key"}),
            ("once", {"dedup_window": 600}),
            ("pushed", {}),
        ):
            self.outbox.create_topic(Topic(name, shards=2, retry=retry, **more))
        EMAILS.create(self.outbox, shards=1)
        self.outbox.add_subscription(Subscription("pushed", "billing", "sqs:billing"))

    def message(self, topic: str, key: str | None = None, **more: Any) -> Message:
        return Message(topic=topic, body=b"x", partition_key=key, id=self.app.ids.next(), **more)

    def produce(self) -> None:
        self.app.clock.advance(60)  # its copies of the topics are old
        self.outbox.add(self.message("jobs"))
        self.outbox.add_many([self.message("ordered", f"k{n}") for n in range(9)])
        self.outbox.add(self.message("once", dedup_key="a"))
        self.outbox.add(self.message("once", dedup_key="a"))
        self.outbox.transact([], self.message("pushed"), self.message("once", dedup_key="b"))
        self.queue.send(self.message("jobs", delay=5))
        self.queue.send_many([self.message("jobs", delay=n) for n in range(9)])
        EMAILS.send_many(self.queue, [self.message("email", f"k{n}") for n in range(5)])
        self.app.client.transact_write_items(
            TransactItems=self.outbox.transact_items(self.message("jobs", delay=3))
        )

    def consume(self) -> None:
        receive = self.queue.receive
        lane = {"pk": {"S": "ready#jobs#0#0"}, "sk": {"S": self.app.ids.next()}}
        self.app.engine.put_item(TableName=OUTBOX, Item=lane | {"z": {"N": "-1"}})
        for topic in ("jobs", "ordered"):
            for _ in range(40):
                self.app.clock.advance(30)
                held = receive(topic, 3, 20, wait=2)
                for number, received in enumerate(held):
                    self.queue.extend(received.receipt, 25)
                    if number == 0:
                        self.queue.nack(received.receipt, reason="why")
                    elif number == 1:
                        self.queue.release([received.receipt])
                    # the third is left, as by a crash
            with self.recorder.as_one("nobody"):
                for message in range(12):
                    self.outbox.add(self.message(topic, f"n{message}"))
            self.app.clock.advance(1)
            for received in receive(topic, 4) + receive(topic, 4):
                self.queue.bury(received.receipt, "never")
            consumer = Consumer(self.queue, topic, lambda _: None, now=self.app.clock.now)
            self.app.clock.advance(61)
            assert consumer.run_until_empty().acked
            self.bury_items(topic)
            self.queue.stats(topic)
            self.queue.topic(topic)

    def bury_items(self, topic: str) -> None:
        """Give up messages whose items are pending, failed, ended, of an add in flight, unknown."""
        for item in self.items(topic):
            with self.recorder.as_one("nobody"):
                self.queue.purge(topic)
                self.outbox.add(self.message(topic, item, batch_item=item))
                self.app.clock.advance(61)
            (received,) = self.queue.receive(topic)
            self.queue.bury(received.receipt, "never")

    def items(self, topic: str) -> list[str]:
        with self.recorder.as_one("nobody"):
            batches = self.app.batches
            alive, ended = batches.open().id, batches.open().id
            (group,) = batches.add(alive, 3, request_id="r")
            (gone,) = batches.add(ended, 1, request_id="r")
            batches.add(alive, 97, request_id="large", group_size=1)
            batches.cancel(ended)
            first, second, _ = group.item_ids()
            batches.ack([second])
        self.batch_items[topic] = first
        unknown = [f"{alive}:500:0", f"{self.app.ids.next()}:0:0"]
        return [first, first, second, *gone.item_ids(), f"{alive}:5:0", *unknown]

    def read(self) -> None:
        (first, *_) = list(self.outbox.outstanding("jobs"))
        ref = self.outbox.topic("jobs").ref(first)
        assert self.outbox.get(ref) is not None
        self.outbox.get_many([ref])
        list(self.outbox.outstanding())
        list(self.outbox.waiting("jobs"))
        list(self.outbox.scan_outstanding())
        assert self.outbox.outstanding_count() >= self.outbox.outstanding_count("jobs") > 0
        assert list(self.outbox.dead("jobs"))
        list(self.outbox.delivered("jobs"))
        list(self.outbox.delivered())
        self.outbox.topics()
        self.outbox.listed()
        self.queue.stats("ordered")
        batch = self.batch_items["jobs"].partition(":")[0]
        self.app.batches.progress(batch)
        assert [found.id for found in self.app.batches.failed(batch)]
        assert list(self.app.batches.missing(batch))
        self.app.batches.list_page()

    def operate(self) -> None:
        self.read()
        outbox, queue = self.outbox, self.queue
        outbox.create_topic(Topic("new"))
        outbox.create_topic(Topic("new", retention=3600))
        outbox.add_subscription(Subscription("new", "billing", "sqs:billing"))
        outbox.pause_subscription("new", "billing")
        outbox.resume_subscription("new", "billing")
        outbox.remove_subscription("new", "billing")
        assert outbox.resize("new", 3).changed
        assert len(outbox.epochs("new")) == 2
        assert EMAILS.resize(outbox, 3).changed
        assert not list(outbox.misplaced())
        assert outbox.repair_misplaced().scanned
        outbox.pause_topic("jobs")
        outbox.resume_topic("jobs")
        refs = outbox.add_many([self.message("jobs", delay=d) for d in (0, 0, 300, 300)])
        queue.edit(refs[0], body=b"y")
        queue.reschedule(refs[2], 600)
        queue.reschedule(refs[3], 0)
        outbox.cancel([refs[1]], reason="by mistake")
        outbox.mark_delivered([refs[0]])
        outbox.sweep(older_than=0)
        for topic in ("jobs", "ordered"):
            outbox.add(self.message(topic, "k"))
            assert queue.purge(topic)
            letters = list(outbox.dead(topic, limit=3))
            named = [str(letter.ref) for letter in letters if letter.ref is not None]
            assert outbox.redrive(topic, named[:1]).count
            assert outbox.redrive(topic, named[1:2], body=b"better").count
            item = self.batch_items[topic]
            assert outbox.redrive(topic, where=carrying(item)).count
            assert outbox.purge_dead(topic, limit=1).count
            (letter, *_) = outbox.dead(topic, limit=1)
            outbox.redrive(topic, [letter.id])
            assert self.app.outbox.tables.purges.purge([letter], "") == ["gone"]
            queue.purge(topic)
            assert outbox.purge_dead(topic).count
            self.app.mark()
            self.app.clock.advance(60)
            assert outbox.delete_topic(topic) == 0
        EMAILS.purge(queue).check()
        assert outbox.delete_topic("email", whole=True) == 0


def carrying(item: str) -> Callable[[DeadLetter], bool]:
    """Return whether a dead letter carries a batch item."""
    return lambda letter: riding(letter) == item


def riding(letter: DeadLetter) -> str | None:
    return None if letter.message is None else letter.message.batch_item


@pytest.fixture(scope="module")
def asked() -> dict[str, set[Asked]]:
    """Let everybody do what they do; return what they asked of the tables."""
    scene = Scene()
    with scene.recorder.as_one("Producer"):
        scene.produce()
    scene.app.mark()
    with scene.recorder.as_one("Consumer"):
        scene.consume()
    scene.outbox.add_many([scene.message("jobs", f"k{n}") for n in range(4)])
    scene.app.mark()
    with scene.recorder.as_one("Reader"):
        scene.read()
    with scene.recorder.as_one("Operator"):
        scene.operate()
    return scene.recorder.asked


ROLES = ("Producer", "Consumer", "Operator", "Reader")


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_its_calls_ask(
    role: str, asked: dict[str, set[Asked]], assembly: Assembly
) -> None:
    policy = Policy(assembly, role)
    assert asked[role]
    assert [one for one in asked[role] if not policy.allows(one)] == []


@pytest.mark.parametrize("role", ["Producer", "Consumer"])
def test_no_action_on_the_tables_is_allowed_that_nobody_asks_for(
    role: str, asked: dict[str, set[Asked]], assembly: Assembly
) -> None:
    allowed = {
        (plain(resource), action)
        for one in Policy(assembly, role).statements
        for resource in listed(one["Resource"])
        for action in listed(one["Action"])
        if action.startswith("dynamodb:")
    }
    unseen = {("Batches", "dynamodb:BatchGetItem")} if role == "Consumer" else set()
    # where an item's group and its batch are looked up together, as of one that is gone
    assert allowed == {(one.resource, one.action) for one in asked[role]} | unseen


def on_outbox(action: str, key: str, returns: str = "NONE") -> Asked:
    return Asked("Outbox", f"dynamodb:{action}", frozenset({key}), returns)


def test_a_producer_reads_no_message_and_changes_none(assembly: Assembly) -> None:
    policy = Policy(assembly, "Producer")
    assert policy.allows(on_outbox("PutItem", "ready#jobs#0#1"))
    for action in (*READS, "UpdateItem", "DeleteItem", "PartiQLUpdate", "PartiQLSelect"):
        assert not policy.allows(on_outbox(action, "ready#jobs#0#1")), action
    assert not policy.allows(on_outbox("PutItem", "ready#jobs#0#1", returns="ALL_OLD"))
    assert not policy.allows(on_outbox("PutItem", "config"))
    assert not policy.allows(Asked("Outbox", "dynamodb:Query"))
    assert not policy.actions & {"s3:GetObject", "s3:ListBucket", "dynamodb:Scan"}


def test_a_consumer_publishes_nothing_and_changes_no_topic(assembly: Assembly) -> None:
    policy = Policy(assembly, "Consumer")
    assert policy.allows(on_outbox("UpdateItem", "ready#jobs#0#1"))
    assert not policy.allows(on_outbox("PutItem", "ready#jobs#0#1"))
    for action in ("UpdateItem", "DeleteItem", "PutItem", "PartiQLUpdate"):
        assert not policy.allows(on_outbox(action, "config")), action
    assert not policy.allows(Asked("Deliveries", "dynamodb:Query", frozenset({"dead#jobs#0#1"})))
    batch = "0199c82c-c000-7611-a29f-000000000000"
    assert policy.allows(Asked("Batches", "dynamodb:PutItem", frozenset({f"{batch}#17"})))
    for action in ("UpdateItem", "PutItem", "DeleteItem"):  # its root: neither sealed nor ended
        assert not policy.allows(Asked("Batches", f"dynamodb:{action}", frozenset({batch})))
    assert "dynamodb:Scan" not in policy.actions


def test_a_reader_changes_nothing(assembly: Assembly) -> None:
    policy = Policy(assembly, "Reader")
    reads = {f"dynamodb:{action}" for action in READS}
    others = {"s3:GetObject", "s3:ListBucket", "execute-api:Invoke"}
    assert policy.actions == reads | others | EXAMINES
    for one in policy.statements:
        if "execute-api:Invoke" in listed(one["Action"]):
            assert all("/GET/" in plain(arn) for arn in listed(one["Resource"]))


def test_an_operator_changes_items_and_not_the_tables(assembly: Assembly) -> None:
    actions = Policy(assembly, "Operator").actions
    assert {f"dynamodb:{a}" for a in WRITES - {"PartiQLInsert"}} < actions
    assert not {a for a in actions if "Table" in a or "Backup" in a or a.endswith("*")} - EXAMINES
    assert not actions & {"s3:DeleteObject", "s3:DeleteBucket", "sqs:PurgeQueue"}


def test_the_reference_page_is_what_the_templates_say(
    assembly: Assembly, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write_iam.main(["--check", "--assembly", str(assembly.folder)]) == 0
    stale = tmp_path / "iam.md"
    stale.write_text(write_iam.PAGE.read_text() + "more\n")
    arguments = ["--check", "--assembly", str(assembly.folder), "--page", str(stale)]
    assert write_iam.main(arguments) == 1
    assert "stale" in capsys.readouterr().out
