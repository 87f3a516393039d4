"""The stage of the end-to-end tests: one running application, and the services around it."""

from __future__ import annotations

import gzip
import itertools
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import boto3
from botocore.config import Config
from fairbox import Message, MessageRef, Outbox, RetryPolicy, Subscription, Topic
from fairbox.aws.s3_bodies import S3Bodies
from fairbox.cloudevents import parse_structured

from local.triggers import attach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from fairbox.tables.ledger import Delivery
    from fairbox.tables.shard_rows import ShardRow

    from local.application import LocalApplication
    from local.triggers.attach import TriggerSettings
    from tests.e2e.sink import Sink

BUSINESS_TABLE = "Business"
_ARCHIVE = "ArchiveBucket"
PATIENCE = 120.0  # s; what a slow machine needs, never what a test asserts
SOON = RetryPolicy(max_attempts=10, base=0.05, cap=0.5)


class Attaching(Protocol):
    """`attach` with settings of a test's own."""

    def __call__(self, *positional: Any, **named: Any) -> Any:
        """Return the triggers."""


def hard(settings: TriggerSettings) -> Attaching:
    """Return an `attach` that makes triggers of these settings."""
    return partial(attach, settings=settings)


def eventually(
    what: Callable[[], bool], *, failing: Callable[[], object], seconds: float = PATIENCE
) -> None:
    """Poll until it holds; the failure tells what `failing` says."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"still after {seconds:g} s: {failing()}"
        time.sleep(0.1)


def _detail(text: str) -> str:
    """Return the bytes that a bus was sent, which it hands on as a JSON value."""
    return json.dumps(json.loads(text)["detail"], separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True)
class Arrived:
    """One CloudEvent that came out of a queue, and when the queue took it (s since 1970)."""

    ref: MessageRef
    body: bytes
    at: float


@dataclass
class Queue:
    """A test's own queue: `all` holds what came so far, in the order of arrival."""

    client: Any
    url: str
    unwrap: Callable[[str], str] = lambda text: text
    all: list[Arrived] = field(default_factory=list)

    @property
    def arn(self) -> str:
        asked = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])
        return str(asked["Attributes"]["QueueArn"])

    def read(self) -> list[Arrived]:
        """Take what is there and return all that came so far."""
        while True:
            answer = self.client.receive_message(
                QueueUrl=self.url, MaxNumberOfMessages=10, AttributeNames=["SentTimestamp"]
            )
            messages = answer.get("Messages", [])
            if not messages:
                return self.all
            for message in messages:
                event = parse_structured(self.unwrap(message["Body"]).encode(), exact=True)
                ref = MessageRef.parse(event.extensions["fairboxref"])
                at = float(message["Attributes"]["SentTimestamp"]) / 1000
                self.all.append(Arrived(ref, event.data, at))
            self.client.delete_message_batch(
                QueueUrl=self.url,
                Entries=[
                    {"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]}
                    for n, m in enumerate(messages)
                ],
            )

    def times(self) -> Counter[MessageRef]:
        """Return how often each message came."""
        return Counter(arrived.ref for arrived in self.read())

    def wait_for(self, refs: Iterable[MessageRef], *, seconds: float = PATIENCE) -> None:
        wanted = set(refs)
        eventually(
            lambda: wanted <= set(self.times()),
            failing=lambda: f"{len(wanted - set(self.times()))} of {len(wanted)} have not come",
            seconds=seconds,
        )


class Stage:
    """An application, an outbox over its tables, a sink, and names that no other test has.

    Args:
        app: the running application.
        sink: takes webhooks.
        logs: the folder of the functions' logs.
    """

    def __init__(self, app: LocalApplication, sink: Sink, logs: Path) -> None:
        self.app = app
        self.logs = logs
        self.sink = sink
        self._names = itertools.count(1)
        self.dynamodb = boto3.client(
            "dynamodb",
            endpoint_url=app.dynamodb.endpoint,
            region_name=app.env["AWS_REGION"],
            aws_access_key_id=app.env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=app.env["AWS_SECRET_ACCESS_KEY"],
            config=Config(connect_timeout=60, read_timeout=60, retries={"total_max_attempts": 1}),
        )
        self.outbox = Outbox(
            self.dynamodb,
            table=app.env["FAIRBOX_OUTBOX_TABLE"],
            deliveries_table=app.env["FAIRBOX_DELIVERIES_TABLE"],
            bodies=S3Bodies(app.clients["s3"], app.env["FAIRBOX_BODIES_BUCKET"]),
        )
        self.tables = self.outbox.tables
        app.clients["dynamodb"].create_table(
            TableName=BUSINESS_TABLE,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )

    def forget_feeds(self) -> None:
        """Delete all rows of feeds: their demo begins with empty ones."""
        table = self.app.env["FAIRBOX_FEEDS_TABLE"]
        for page in self.dynamodb.get_paginator("scan").paginate(TableName=table):
            for item in page["Items"]:
                row = {"pk": item["pk"], "sk": item["sk"]}
                self.dynamodb.delete_item(TableName=table, Key=row)

    def topic(self, name: str, **settings: Any) -> str:
        """Make a topic; return its name, which no other test has."""
        chosen: dict[str, Any] = {"shards": 4, "retry": SOON} | settings
        topic = Topic(f"{name}-{next(self._names)}", **chosen)
        self.outbox.create_topic(topic)
        return topic.name

    def subscribe(self, topic: str, destinations: dict[str, str], **settings: Any) -> None:
        """Subscribe destinations by the subscriptions' names; in force on return."""
        self.outbox.add_subscriptions(
            Subscription(topic, name, address, **settings) for name, address in destinations.items()
        )

    def queue(self, unwrap: Callable[[str], str] = lambda text: text) -> Queue:
        sqs = self.app.clients["sqs"]
        url = sqs.create_queue(QueueName=f"queue-{next(self._names)}")["QueueUrl"]
        return Queue(sqs, url, unwrap)

    def sns(self) -> tuple[str, Queue]:
        """Return an SNS topic's ARN and a queue that is subscribed to it."""
        sns = self.app.clients["sns"]
        arn = sns.create_topic(Name=f"topic-{next(self._names)}")["TopicArn"]
        queue = self.queue(lambda text: str(json.loads(text)["Message"]))
        sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue.arn)
        return str(arn), queue

    def bus(self) -> tuple[str, Queue]:
        """Return an event bus's name and a queue that gets all that it is sent."""
        events = self.app.clients["events"]
        name = f"bus-{next(self._names)}"
        queue = self.queue(_detail)
        events.create_event_bus(Name=name)
        pattern = json.dumps({"source": [{"prefix": ""}]})
        events.put_rule(Name=name, EventBusName=name, EventPattern=pattern)
        events.put_targets(
            Rule=name, EventBusName=name, Targets=[{"Id": "queue", "Arn": queue.arn}]
        )
        return name, queue

    def transact(self, message: Message, **rest: Any) -> MessageRef:
        """Write a business row of the message's id and the message, in one transaction."""
        row = {"id": {"S": message.id}, "topic": {"S": message.topic}}
        put = {"Put": {"TableName": BUSINESS_TABLE, "Item": row}}
        return self.outbox.transact([put], message, **rest)[0]

    def deliveries(self, topic: str) -> list[Delivery]:
        return list(self.outbox.delivered(topic))

    def wait_recorded(self, topic: str, wanted: Iterable[tuple[str, str]]) -> None:
        """Wait until the ledger has every (id, subscription)."""
        expected = set(wanted)

        def lacking() -> set[tuple[str, str]]:
            return expected - {(d.id, d.subscription) for d in self.deliveries(topic)}

        eventually(lambda: not lacking(), failing=lambda: f"not in the ledger: {lacking()}")

    def rows(self, topic: str) -> list[ShardRow]:
        """Return the topic's shard rows, whether the index lists them or not."""
        shards = [(topic, *shard) for shard in self.outbox.topic(topic).shards()]
        return self.tables.rows.get_many(shards)

    def wait_counted(self, topic: str) -> None:
        """Wait until the rows' counts are the true counts of every shard."""

        def wrong() -> list[tuple[ShardRow | tuple[int, int], int, int]]:
            rows = {(row.epoch, row.shard): row for row in self.rows(topic)}
            lanes = self.outbox.tables.lanes
            found: list[tuple[ShardRow | tuple[int, int], int, int]] = []
            for place in self.outbox.topic(topic).shards():
                ready = lanes.count("ready", topic, *place, limit=None)
                later = lanes.count("later", topic, *place, limit=None)
                row = rows.get(place)
                counted = (row.ready, row.later) if row else (0, 0)
                if counted != (ready, later):
                    found.append((row or place, ready, later))
            return found

        eventually(lambda: not wrong(), failing=lambda: f"row, ready, later: {wrong()}")

    def wait_unlisted(self, topic: str) -> None:
        """Wait until the index lists no shard of the topic."""

        def listed() -> list[ShardRow]:
            return [row for row in self.outbox.listed() if row.topic == topic]

        eventually(lambda: not listed(), failing=listed)

    def function(self, start: str) -> str:
        """Return the function whose logical id starts so."""
        (name,) = (n for n in self.app.invoker.functions() if n.startswith(start))
        return name

    def invoke(self, start: str, event: dict[str, Any] | None = None) -> Any:
        """Invoke a function and return its answer."""
        result = self.app.invoker.invoke(self.function(start), json.dumps(event or {}).encode())
        assert result.function_error is None, result.payload
        return json.loads(result.payload)

    def archive(self, topic: str) -> list[dict[str, Any]]:
        """Return the archive's lines of one topic, each event once, in the order of time."""
        self.app.firehose.flush()
        s3 = self.app.clients["s3"]
        buckets = self.app.template.of_type("AWS::S3::Bucket")
        (bucket,) = (self.app.template.ref(n) for n in buckets if n.startswith(_ARCHIVE))
        lines: dict[str, dict[str, Any]] = {}
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="archive/"):
            for found in page.get("Contents", []):
                body = s3.get_object(Bucket=bucket, Key=found["Key"])["Body"].read()
                for text in gzip.decompress(body).splitlines():
                    line = json.loads(text)
                    if line["topic"] == topic:
                        lines[line["event_id"]] = line
        return sorted(lines.values(), key=lambda line: line["at"])
