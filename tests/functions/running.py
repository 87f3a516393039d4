"""Runs the functions' own handlers over the in-memory engine, with clients that keep all."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from fairbox import Batches
from fairbox.batches.ack_messages import pack
from fairbox.errors import UnknownTopic
from fairbox.model.clock import SystemClock
from fairbox.runtime import function_application as wiring
from fairbox.runtime.function_application import Application
from fairbox.settings import Settings
from fairbox.tables.batch_records import read_image
from fairbox.tables.batch_values import COMPLETED_TOPIC
from fairbox.tables.definitions import batches_definition, feeds_definition, table_definitions
from fairbox.tables.stream_records import image_item
from fairbox.testing import ManualClock, MemoryDynamoDB

from local.engines.firehose import SLOW_DOWN, THROTTLED
from tests.functions.api_client import load_handler
from tests.support.deployment import environment, function_specifications, variable
from tests.support.feed_sockets import FakeSockets
from tests.support.iam.recording import Caller, Recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    import pytest
    from fairbox.client.outbox import Outbox
    from fairbox.model.clock import Clock
    from fairbox.runtime.feed_application import FeedsApplication


@dataclass
class FakeSqs:
    """Keeps entries by queue; `refusing` names queues that take nothing."""

    sent: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    refusing: set[str] = field(default_factory=set)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[Any]) -> dict[str, Any]:  # noqa: N803 - boto3's names
        if QueueUrl in self.refusing:
            failed = [
                {"Id": e["Id"], "Code": "InternalError", "SenderFault": True, "Message": "no"}
                for e in Entries
            ]
            return {"Successful": [], "Failed": failed}
        self.sent.setdefault(QueueUrl, []).extend(Entries)
        return {"Successful": [{"Id": e["Id"]} for e in Entries], "Failed": []}

    def create_queue(self, *, QueueName: str) -> dict[str, str]:  # noqa: N803
        url = f"https://sqs.test/{QueueName}"
        self.refusing.discard(url)
        self.sent.setdefault(url, [])
        return {"QueueUrl": url}

    def set_queue_attributes(self, **_: Any) -> None:
        """Take the policy of a queue."""

    def get_queue_attributes(self, *, QueueUrl: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        name = QueueUrl.rpartition("/")[2]
        return {"Attributes": {"QueueArn": f"arn:aws:sqs:us-east-1:123456789012:{name}"}}

    def receive_message(self, *, QueueUrl: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        messages = [{"Body": e["MessageBody"], "ReceiptHandle": "1"} for e in self.sent[QueueUrl]]
        return {"Messages": messages[:1]}

    def delete_message(self, *, QueueUrl: str, **_: Any) -> None:  # noqa: N803
        del self.sent[QueueUrl][0]

    def delete_queue(self, *, QueueUrl: str) -> None:  # noqa: N803
        del self.sent[QueueUrl]

    def bodies(self, url: str) -> list[dict[str, Any]]:
        return [json.loads(entry["MessageBody"]) for entry in self.sent.get(url, [])]


@dataclass
class FakeFirehose:
    """Keeps the archive's lines; takes none while it is `throttling`."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    throttling: bool = False

    def put_record_batch(
        self,
        *,
        DeliveryStreamName: str,  # noqa: N803 - boto3's names
        Records: list[dict[str, Any]],  # noqa: N803 - boto3's names
    ) -> dict[str, Any]:
        assert DeliveryStreamName == variable("FAIRBOX_ARCHIVE_STREAM")
        if self.throttling:
            raise ClientError(
                {"Error": {"Code": THROTTLED, "Message": SLOW_DOWN}}, "PutRecordBatch"
            )
        for record in Records:
            self.lines += [
                json.loads(text) for text in gzip.decompress(record["Data"]).splitlines()
            ]
        return {"FailedPutCount": 0, "RequestResponses": [{"RecordId": "1"}] * len(Records)}


@dataclass
class FakeS3:
    """The objects of every bucket, and their tags, by key; `refusing` buckets take none."""

    objects: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, Any] = field(default_factory=dict)
    times: dict[str, datetime] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    refusing: set[str] = field(default_factory=set)

    def get_paginator(self, operation: str) -> FakeS3:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:  # noqa: N803
        assert Bucket == variable("FAIRBOX_FAILURES_BUCKET")
        stamp = datetime.fromtimestamp(self.clock.now(), UTC)
        keys = [k for k in self.objects if k.startswith(Prefix)]
        yield {"Contents": [{"Key": k, "LastModified": self.times.get(k, stamp)} for k in keys]}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, **_: str) -> None:  # noqa: N803
        if Bucket in self.refusing:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject")
        self.objects[Key] = Body

    def put_object_tagging(self, *, Key: str, Tagging: dict[str, Any], **_: str) -> None:  # noqa: N803
        self.tags[Key] = Tagging["TagSet"]

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        return {"Body": _Body(self.objects[Key])}

    def delete_object(self, *, Bucket: str, Key: str) -> None:  # noqa: N803
        self.objects.pop(Key, None)  # S3 deletes what is not there in silence


@dataclass
class FakeSecrets:
    """The versions of one secret by stage; with none, it answers as where it is refused."""

    versions: dict[str, str] = field(default_factory=lambda: {"AWSCURRENT": "k" * 64})

    def put(self, value: str) -> None:
        """Make a value today's, and today's the one before."""
        self.versions = {"AWSCURRENT": value, "AWSPREVIOUS": self.versions["AWSCURRENT"]}

    def get_secret_value(self, *, SecretId: str, VersionStage: str) -> dict[str, Any]:  # noqa: N803
        assert SecretId == variable("FAIRBOX_FEEDS_SECRET")
        if VersionStage not in self.versions:
            code = "ResourceNotFoundException" if self.versions else "AccessDeniedException"
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "GetSecretValue")
        value = self.versions[VersionStage]
        return {"SecretString": value, "VersionId": f"version of {value[:5]}"}


@dataclass(frozen=True)
class _Body:
    content: bytes

    def read(self, size: int = -1) -> bytes:
        return self.content if size < 0 else self.content[:size]


@dataclass(frozen=True)
class Context:
    """The context that Lambda gives an invocation."""

    milliseconds: int

    @classmethod
    def of(cls, name: str) -> Context:
        """Return the context of an invocation that has just begun: all of the time limit."""
        return cls(round(function_specifications()[name].timeout * 1000))

    def get_remaining_time_in_millis(self) -> int:
        return self.milliseconds


def _asks(image: dict[str, Any]) -> bool:
    return read_image(image) != (None, None)


def ack_event(*messages: Sequence[str] | str) -> dict[str, Any]:
    """Return an event of the ack queue: ids make one message, a text is a body as it is."""
    bodies = [m if isinstance(m, str) else pack(m)[0] for m in messages]
    return {"Records": [{"messageId": f"m{n}", "body": body} for n, body in enumerate(bodies)]}


def figures(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the figures written over all topics since the last look."""
    lines = [json.loads(t) for t in capsys.readouterr().out.splitlines() if '"_aws"' in t]
    return {k: v for line in lines if "topic" not in line for k, v in line.items()}


def application_of(module: ModuleType) -> type[Application | FeedsApplication]:
    """Return the application that a handler's module has."""
    kind: type[Application | FeedsApplication] = vars(module).get("FeedsApplication", Application)
    return kind


class Functions:
    """The functions, each in a process of its own as far as it can tell: nothing is shared.

    Each gets the variables that the template gives it; `settings` are those of a deployment that
    has set them otherwise, None for one that is missing.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, wrap: Callable[[Any], Any] = lambda client: client
    ) -> None:
        self._monkeypatch = monkeypatch
        self.settings: dict[str, str | None] = {}
        self.clock = ManualClock()
        self.rng = random.Random(0)
        self.engine = MemoryDynamoDB(self.clock)
        self.tables = {
            name: variable(f"FAIRBOX_{name.upper()}_TABLE")
            for name in ("outbox", "deliveries", "batches", "feeds")
        }
        outbox, deliveries, batches, feeds = self.tables.values()
        self.now = variable("FAIRBOX_DOORBELL_QUEUE_URL")
        self.later = variable("FAIRBOX_LATER_QUEUE_URL")
        self.apart = variable("FAIRBOX_APART_QUEUE_URL")
        for definition in table_definitions(outbox=outbox, deliveries=deliveries):
            self.engine.create_table(**definition)
        self.engine.create_table(**batches_definition(batches))
        self.engine.create_table(**feeds_definition(feeds))
        self.sqs, self.firehose, self.s3 = FakeSqs(), FakeFirehose(), FakeS3()
        self.secrets, self.sockets = FakeSecrets(), FakeSockets()
        self.clients: dict[str, Any] = {
            "dynamodb": wrap(self.engine),
            "sqs": self.sqs,
            "firehose": self.firehose,
            "s3": self.s3,
            "secretsmanager": self.secrets,
            "apigatewaymanagementapi": self.sockets,
        }
        self.caller = Caller()
        self.clients = {
            service: Recorded(client, service, self.caller)
            for service, client in self.clients.items()
        }
        self._client: Callable[..., Any] = lambda service, **_: self.clients[service]
        monkeypatch.setattr(
            wiring, "make_clients", lambda _: lambda service, **_: self.clients[service]
        )
        self.outbox: Outbox = self._application("api").outbox
        self.batches = Batches(
            self.engine,
            table=batches,
            outbox_table=outbox,
            deliveries_table=deliveries,
            clock=self.clock,
        )

    def batch(self, *sizes: int, seal: bool = True, **fields: Any) -> str:
        """Open a batch with a group of each size; return its id."""
        batch = self.batches.open(**fields).id
        for number, size in enumerate(sizes):
            self.batches.add(batch, size, request_id=f"r{number}")
        if seal:
            self.batches.seal(batch)
        return batch

    def announced(self, topic: str = COMPLETED_TOPIC) -> list[dict[str, Any]]:
        """Return the messages of a topic of batches."""
        try:
            return [json.loads(m.body) for m in self.outbox.outstanding(topic)]
        except UnknownTopic:
            return []

    def stream(self, after: str | None = None) -> dict[str, Any]:
        """Return the batches' stream as one event, without what the mapping filters."""
        records = self.engine.stream(self.tables["batches"]).take(after)
        images = [r for r in records if "NewImage" in r["dynamodb"]]
        return {"Records": [r for r in images if _asks(r["dynamodb"]["NewImage"])]}

    def _application(self, name: str, kind: Any = Application) -> Any:
        values = environment(name) | self.settings
        settings = Settings({k: v for k, v in values.items() if v is not None})
        application = kind(settings, self._client)
        application.clock = self.clock
        application.rng = self.rng
        return application

    def load(self, name: str) -> ModuleType:
        """Return a handler's module, fresh as at a cold start."""
        module = load_handler(name)
        kind: Any = application_of(module)
        self._monkeypatch.setattr(kind, "from_env", lambda: self._application(name, kind))
        handle = module.handler

        def handler(event: dict[str, Any], context: Any) -> Any:
            with self.caller.as_one(name):
                return handle(event, context)

        module.handler = handler  # type: ignore[attr-defined] # a module has what it is given
        return module

    def invoke(self, name: str, event: dict[str, Any], context: Context | None = None) -> Any:
        """Return what a fresh process of the function answers."""
        return self.load(name).handler(event, context or Context.of(name))

    def put_images(self, records: Sequence[dict[str, Any]]) -> None:
        """Put what a stream says was inserted into the table, at the time it says."""
        for record in records:
            if record["eventName"] == "INSERT":
                self.clock.set(record["dynamodb"]["ApproximateCreationDateTime"])
                item = image_item(record["dynamodb"]["NewImage"])
                self.engine.put_item(TableName=self.tables["outbox"], Item=item)
