"""The calls of each kind of user against its managed policy: enough, and no more."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import (
    Consumer,
    Feed,
    Feeds,
    Message,
    Outbox,
    PartitionedQueue,
    Queue,
    RetryPolicy,
    Subscription,
    Topic,
)
from fairbox.aws.s3_bodies import S3Bodies
from fairbox.aws.sqs_queues import SqsAcks, SqsDoorbells
from fairbox.aws.token_keys import SecretKeys
from fairbox.batches.ack_messages import pack
from fairbox.client.purge import Purges
from fairbox.doctor import aws
from fairbox.testing.application import BATCHES, DELIVERIES, FEEDS, OUTBOX
from fairbox_cdk.api import ROUTES

from scripts import write_iam
from scripts.marked_parts import ROOT
from tests.functions.running import FakeS3, FakeSecrets, FakeSqs
from tests.stacks.assembly import listed
from tests.support.deployment import RecordedApplication, variable
from tests.support.iam.deployment import Deployment
from tests.support.iam.exceptions import UNUSED_BY_USERS
from tests.support.iam.policy import decide, grants_of
from tests.support.iam.recording import Log, Recorded, Seen
from tests.support.iam.requests import (
    ATTRIBUTES,
    LEADING_KEYS,
    RETURN_VALUES,
    SELECT,
    Request,
    shape_of_key,
)
from tests.support.iam.review import missing, unused, without_grant, without_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox import DeadLetter

    from tests.stacks.assembly import Assembly

LARGE = random.Random(0).randbytes(400_000)  # no item holds it
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

    def __init__(self, log: Log) -> None:
        self.app = RecordedApplication(log)
        self.caller = self.app.caller
        queues = Recorded(FakeSqs(), "sqs", self.caller)
        objects = Recorded(FakeS3(), "s3", self.caller)
        now, later = (variable(f"FAIRBOX_{n}_QUEUE_URL") for n in ("DOORBELL", "LATER"))
        self.outbox = Outbox(
            self.app.client,
            table=OUTBOX,
            deliveries_table=DELIVERIES,
            batches_table=BATCHES,
            bodies=S3Bodies(objects, variable("FAIRBOX_BODIES_BUCKET")),
            doorbells=SqsDoorbells(queues, now, later, clock=self.app.clock),
            clock=self.app.clock,
            rng=self.app.rng,
        )
        self.queue = Queue.over(self.outbox)
        self.acks = SqsAcks(queues, variable("FAIRBOX_ACK_QUEUE_URL"))
        secrets = Recorded(FakeSecrets(), "secretsmanager", self.caller)
        keys = SecretKeys(lambda: secrets, variable("FAIRBOX_FEEDS_SECRET"), self.app.clock)
        self.feeds = Feeds(
            self.app.client, table=FEEDS, clock=self.app.clock, rng=self.app.rng, keys=keys
        )
        self.feeds.create(Feed("prices"))
        self.feeds.create(Feed("inbox", "private", limit=1, keep=60))
        self.batch_items: dict[str, str] = {}
        retry = RetryPolicy(max_attempts=2, base=1, cap=1)
        for name, more in (
            ("jobs", {}),
            ("ordered", {"ordering": "key"}),
            ("once", {"dedup_window": 600}),
            ("limited", {"max_outstanding": 9}),
            ("pushed", {}),
        ):
            self.outbox.create_topic(Topic(name, shards=2, retry=retry, **more))
        EMAILS.create(self.outbox, shards=1)
        self.outbox.add_subscription(Subscription("pushed", "billing", "sqs:http://q/billing"))

    def message(self, topic: str, key: str | None = None, **more: Any) -> Message:
        given = {"body": b"x"} | more
        return Message(topic=topic, partition_key=key, id=self.app.ids.next(), **given)

    def produce(self) -> None:
        self.app.clock.advance(60)  # its copies of the topics are old
        self.outbox.add(self.message("jobs", body=LARGE))
        self.outbox.add_many([self.message("ordered", f"k{n}") for n in range(9)])
        self.outbox.add(self.message("once", dedup_key="a"))
        self.outbox.add(self.message("once", dedup_key="a"))
        self.outbox.transact([], self.message("pushed"), self.message("once", dedup_key="b"))
        self.outbox.add(self.message("limited"))
        self.queue.send(self.message("jobs", delay=5))
        self.queue.send_many([self.message("jobs", delay=n) for n in range(9)])
        self.queue.send_many([self.message("jobs")], new=True)
        EMAILS.send_many(self.queue, [self.message("email", f"k{n}") for n in range(5)])
        self.app.client.transact_write_items(
            TransactItems=self.outbox.transact_items(self.message("jobs", delay=3))
        )

        for _ in range(2):  # the first message expires, and the second one takes its place
            self.feeds.publish("prices", "eur", b"1")
            self.feeds.publish("inbox", "u7", b"1")
            self.app.clock.advance(61)

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
            with self.caller.as_one(""):
                for message in range(12):
                    self.outbox.add(self.message(topic, f"n{message}"))
            self.app.clock.advance(1)
            for received in receive(topic, 4) + receive(topic, 4):
                self.queue.bury(received.receipt, "never")
            consumer = Consumer(self.queue, topic, lambda _: None, now=self.app.clock.now)
            self.app.clock.advance(61)
            assert consumer.run_until_empty().acked
            self.bury_items(topic)
            self.acks.put(pack([self.batch_items[topic]]))
            self.queue.stats(topic)
            self.queue.topic(topic)

        self.wait()

    def wait(self) -> None:
        """Let more keys of an ordered shard wait than its row lists, and come back."""
        with self.caller.as_one(""):
            self.outbox.create_topic(Topic("waiting", shards=1, ordering="key"))
        for _ in range(2):
            with self.caller.as_one(""):
                self.outbox.add_many([self.message("waiting", f"k{n}") for n in range(20)])
            self.app.clock.advance(61)
            for received in self.queue.receive("waiting", 20):
                self.queue.nack(received.receipt, 3_000)
            assert self.queue.receive("waiting") == []
        self.app.clock.advance(3_000)
        assert self.queue.receive("waiting")

    def bury_items(self, topic: str) -> None:
        """Give up messages whose items are pending, failed, ended, of an add in flight, unknown."""
        for item in self.items(topic):
            with self.caller.as_one(""):
                self.queue.purge(topic)
                self.outbox.add(self.message(topic, item, batch_item=item))
                self.app.clock.advance(61)
            (received,) = self.queue.receive(topic)
            self.queue.bury(received.receipt, "never")

    def items(self, topic: str) -> list[str]:
        with self.caller.as_one(""):
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
        with self.caller.as_one(""):
            large = self.outbox.add(self.message("jobs", body=LARGE))
        assert self.outbox.get(large) is not None
        (first, *_) = list(self.outbox.outstanding("jobs"))
        ref = self.outbox.topic("jobs").ref(first)
        assert self.outbox.get(ref) is not None
        self.outbox.get_many([ref])
        (dead, *_) = self.outbox.dead("jobs")
        assert dead.ref is not None
        assert self.outbox.get(dead.ref) is not None
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

    def track(self) -> None:
        """Do what opens, fills, settles and ends batches."""
        batches = self.app.batches
        batch = batches.open(metadata={"a": 1}).id
        (group,) = batches.add(batch, 40, request_id="r")
        batches.add(batch, 97, request_id="large", group_size=1)
        first, second, *_ = group.item_ids()
        batches.fail([first])
        batches.retry([first])
        batches.ack([first])
        batches.seal(batch)
        batches.cancel(batch)
        self.acks.put(pack([second]))

    def settle_by_ref(self, topic: str) -> None:
        refs = self.outbox.add_many([self.message(topic, f"k{n}") for n in range(4)])
        self.app.clock.advance(61)
        self.queue.receive(topic, 100)
        self.queue.release(refs[0])
        self.queue.reset(refs[1])
        self.queue.bury(refs[2], "never")
        self.queue.delete(refs[3])

    def operate(self) -> None:
        self.produce()
        self.consume()
        self.read()
        self.track()
        outbox, queue = self.outbox, self.queue
        outbox.create_topic(Topic("new"))
        outbox.create_topic(Topic("new", retention=3600))
        outbox.add_subscription(Subscription("new", "billing", "sqs:http://q/billing"))
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
        large = outbox.add(self.message("jobs", body=LARGE))
        assert outbox.get(large) is not None
        outbox.cancel([large])
        queue.edit(refs[0], body=LARGE)
        queue.edit(refs[0], body=b"y")
        queue.reschedule(refs[2], 600)
        queue.reschedule(refs[3], 0)
        outbox.cancel([refs[1]], reason="by mistake")
        outbox.mark_delivered([refs[0]])
        outbox.sweep(older_than=0)
        for topic in ("jobs", "ordered"):
            self.settle_by_ref(topic)
            assert queue.purge(topic)
            letters = list(outbox.dead(topic, limit=3))
            named = [str(letter.ref) for letter in letters if letter.ref is not None]
            assert outbox.redrive(topic, named[:1]).count
            assert outbox.redrive(topic, named[1:2], body=b"better").count
            item = self.batch_items[topic]
            assert outbox.redrive(topic, where=carrying(item)).count
            queue.ack(received.receipt for received in queue.receive(topic, 1, dead=True))
            assert outbox.purge_dead(topic, limit=1).count
            (letter, *_) = outbox.dead(topic, limit=1)
            outbox.redrive(topic, [letter.id])
            assert Purges(self.outbox.tables).purge([letter], "") == ["gone"]
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
def seen() -> list[Seen]:
    """Let everybody do what they do; return what they asked of AWS."""
    log = Log()
    scene = Scene(log)
    with scene.caller.as_one("Producer"):
        scene.produce()
    scene.app.mark()
    with scene.caller.as_one("Consumer"):
        scene.consume()
    scene.outbox.add_many([scene.message("jobs", f"k{n}") for n in range(4)])
    scene.app.mark()
    with scene.caller.as_one("Reader"):
        scene.read()
        assert [feed.name for feed in scene.feeds.feeds()] == ["inbox", "prices"]
        scene.feeds.topic("inbox", "u7")
    with scene.caller.as_one("Operator"):
        scene.operate()
        scene.feeds.create(Feed("trades", "ring"))
        scene.feeds.token("u7", ["trades/*"])
        scene.feeds.delete("trades")
    with scene.caller.as_one("TokenIssuer"):
        scene.app.clock.advance(61)  # it reads the key itself
        scene.feeds.token("u7", ["inbox/u7"])
    return [Seen(who, one, "the scene") for who, all_ in log.asked.items() for one in all_]


@pytest.fixture(scope="module")
def deployment(local_assembly: Assembly) -> Deployment:
    """A deployment with feeds, without a key of its own."""
    return Deployment(local_assembly.folder)


@pytest.fixture(scope="module")
def keyed_deployment(keyed: Assembly) -> Deployment:
    return Deployment(keyed.folder)


REFUSED = {("Consumer", "s3:ListBucket")}
"""A consumer may not list bodies, whose keys name every topic. To a consumer, a body that is gone
looks like one that may not be read; the library handles both alike."""


def test_a_user_may_do_what_his_calls_ask(
    seen: list[Seen], deployment: Deployment, keyed_deployment: Deployment
) -> None:
    assert {one.who for one in seen} == set(deployment.users)
    asked = [one for one in seen if (one.who, one.request.action) not in REFUSED]
    for deployed in (deployment, keyed_deployment):
        assert "\n".join(missing(deployed, asked)) == ""


def test_no_user_may_do_what_no_call_asks_but_where_it_has_its_reason(
    seen: list[Seen], keyed_deployment: Deployment
) -> None:
    left = {
        who: {g for g in grants if g.action not in EXAMINES and "execute-api" not in g.action}
        for who, grants in unused(keyed_deployment, seen, keyed_deployment.users).items()
    }
    assert "\n".join(without_reason(keyed_deployment, left, UNUSED_BY_USERS)) == ""
    assert "\n".join(without_grant(keyed_deployment, left, UNUSED_BY_USERS)) == ""


def test_every_route_that_a_user_may_call_is_one_of_the_api(deployment: Deployment) -> None:
    paths = [f"{method}{re.sub(r'{.+?}', '0', path)}" for method, path in ROUTES]
    for who, statements in deployment.users.items():
        granted = {g for g in grants_of(statements) if g.action == "execute-api:Invoke"}
        (stage,) = {grant.resource.partition("$default/")[0] + "$default/" for grant in granted}
        asked = [Request("execute-api:Invoke", stage + path) for path in paths]
        assert granted == {g for one in asked for g in decide(statements, one).grants}, who


class Policy:
    """The managed policy of one kind of user."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self.deployment = deployment
        self.statements = deployment.users[name]

    @property
    def actions(self) -> set[str]:
        return {grant.action for grant in grants_of(self.statements)}

    def allows(
        self, action: str, table: str, key: str = "", returns: str = "", only: str = ""
    ) -> bool:
        """Whether it allows an action on an item of a table, or on these attributes of it."""
        context: list[tuple[str, tuple[str, ...]]] = []
        context += [(LEADING_KEYS, (shape_of_key(key),))] if key else []
        context += [(RETURN_VALUES, (returns,))] if returns else []
        if only:
            context += [(ATTRIBUTES, tuple(only.split())), (SELECT, ("SPECIFIC_ATTRIBUTES",))]
        resource = self.deployment.resources[table]
        return decide(
            self.statements, Request(f"dynamodb:{action}", resource, tuple(context))
        ).allowed


def test_a_producer_reads_no_message_and_changes_none(deployment: Deployment) -> None:
    policy = Policy(deployment, "Producer")
    assert policy.allows("PutItem", "Outbox", "ready#jobs#0#1")
    for action in (*READS, "UpdateItem", "DeleteItem", "PartiQLUpdate", "PartiQLSelect"):
        assert not policy.allows(action, "Outbox", "ready#jobs#0#1"), action
    assert policy.allows("BatchGetItem", "Outbox", "ready#jobs#0#1", only="pk sk rc lc")
    assert not policy.allows("BatchGetItem", "Outbox", "ready#jobs#0#1", only="pk sk b")
    assert not policy.allows("PutItem", "Outbox", "ready#jobs#0#1", returns="ALL_OLD")
    assert not policy.allows("PutItem", "Outbox", "config")
    assert not policy.allows("Query", "Outbox")
    assert not policy.actions & {"s3:GetObject", "s3:ListBucket", "dynamodb:Scan"}
    for action in ("Query", "PutItem", "UpdateItem"):  # connections, leases; the feeds
        assert not policy.allows(action, "Feeds", "c#0")
        assert not policy.allows(action, "Feeds", "config")


def test_a_consumer_publishes_nothing_and_changes_no_topic(deployment: Deployment) -> None:
    policy = Policy(deployment, "Consumer")
    assert policy.allows("UpdateItem", "Outbox", "ready#jobs#0#1")
    assert not policy.allows("PutItem", "Outbox", "ready#jobs#0#1")
    for action in ("UpdateItem", "DeleteItem", "PutItem", "PartiQLUpdate"):
        assert not policy.allows(action, "Outbox", "config"), action
    assert not policy.allows("Query", "Deliveries", "dead#jobs#0#1")
    batch = "0199c82c-c000-7611-a29f-000000000000"
    assert policy.allows("PutItem", "Batches", f"{batch}#17")
    for action in ("UpdateItem", "PutItem", "DeleteItem"):  # its root: neither sealed nor ended
        assert not policy.allows(action, "Batches", batch)
    assert "dynamodb:Scan" not in policy.actions


def test_a_reader_changes_nothing(deployment: Deployment) -> None:
    policy = Policy(deployment, "Reader")
    reads = {f"dynamodb:{action}" for action in READS}
    others = {"s3:GetObject", "s3:ListBucket", "execute-api:Invoke", "ssm:GetParameter"}
    assert policy.actions == reads | others | EXAMINES
    for one in policy.statements:
        if "execute-api:Invoke" in listed(one["Action"]):
            assert all("/GET/" in arn for arn in listed(one["Resource"]))


def test_an_operator_changes_items_and_not_the_tables(deployment: Deployment) -> None:
    actions = Policy(deployment, "Operator").actions
    assert {f"dynamodb:{a}" for a in WRITES} < actions
    assert not {a for a in actions if "Table" in a or "Backup" in a or a.endswith("*")} - EXAMINES
    assert not actions & {"s3:DeleteObject", "s3:DeleteBucket", "sqs:PurgeQueue"}


def test_the_reference_page_is_what_the_templates_say(local_assembly: Assembly) -> None:
    shown = "\n".join(write_iam.policies(local_assembly.folder)).strip()
    assert shown in (ROOT / write_iam.PAGE).read_text(encoding="utf-8")
