"""Custom metrics and log bytes of an hour: the functions' own handlers, by topics and setting.

CloudWatch bills a metric for each hour in which it is written, at a monthly price. The handlers run
over the in-memory engine, and what they print is read as CloudWatch reads it.
"""

from __future__ import annotations

import importlib.util
import io
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from fairbox import Message, Queue, Subscription, Topic
from fairbox.consumer.consumer import Consumer
from fairbox.dynamodb.definitions import batches_definition, table_definitions
from fairbox.model.ids import IdGenerator
from fairbox.runtime import application as runtime
from fairbox.runtime.application import Application
from fairbox.settings import METRICS_LEVELS, Settings
from fairbox.testing import ManualClock, MemoryDynamoDB

from benchmarks.figures import Figure
from local.functions.logs import metric_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

DOLLARS_PER_METRIC: Final = 0.30  # a month, of the first 10,000
DOLLARS_PER_GB: Final = 0.50  # of logs, ingested
MINUTES: Final = 43_800  # of a month
TOPICS: Final = (10, 100, 1_000)
SUBSCRIPTIONS: Final = (1, 3)
ENVIRONMENT: Final[Mapping[str, str]] = {
    "FAIRBOX_OUTBOX_TABLE": "outbox",
    "FAIRBOX_DELIVERIES_TABLE": "deliveries",
    "FAIRBOX_BATCHES_TABLE": "batches",
    "FAIRBOX_DOORBELL_QUEUE_URL": "https://sqs.test/now.fifo",
    "FAIRBOX_LATER_QUEUE_URL": "https://sqs.test/later",
    "FAIRBOX_ARCHIVE_STREAM": "archive",
    "FAIRBOX_ARCHIVE_BUCKET": "archive",
    "FAIRBOX_FAILURES_BUCKET": "failures",
    "FAIRBOX_ACK_QUEUE_URL": "https://sqs.test/acks",
}
_BATCH: Final = 100
_REFUSED: Final = {"Code": "InvalidMessageContents", "SenderFault": True, "Message": "no"}


@dataclass
class _Services:
    """SQS and Firehose, as far as the functions call them.

    Attributes:
        refuses: whether destinations refuse; the application's own queues never do.
        sent: bodies by queue.
    """

    refuses: bool = False
    sent: dict[str, list[str]] = field(default_factory=dict)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[Any]) -> dict[str, Any]:  # noqa: N803 - boto3's names
        if self.refuses and QueueUrl not in ENVIRONMENT.values():
            return {"Successful": [], "Failed": [{"Id": e["Id"]} | _REFUSED for e in Entries]}
        self.sent.setdefault(QueueUrl, []).extend(e["MessageBody"] for e in Entries)
        return {"Successful": [{"Id": e["Id"]} for e in Entries], "Failed": []}

    def put_record_batch(self, *, Records: list[Any], **_: Any) -> dict[str, Any]:  # noqa: N803
        return {"FailedPutCount": 0, "RequestResponses": [{"RecordId": "1"}] * len(Records)}


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return 600_000


class Hour:
    """A deployment, and what its functions print.

    Args:
        level: setting `metrics_detail`.
        environment: variables of the functions, over those that the benchmark needs.
    """

    def __init__(self, level: str, environment: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.engine = MemoryDynamoDB(self.clock)
        for definition in table_definitions(outbox="outbox", deliveries="deliveries"):
            self.engine.create_table(**definition)
        self.engine.create_table(**batches_definition("batches"))
        self.services = _Services()
        self.settings = Settings(
            {**(environment or {}), **ENVIRONMENT, "FAIRBOX_METRICS_DETAIL": level}
        )
        self.outbox = self._application().outbox
        self.lines: list[bytes] = []
        self._ids = IdGenerator(self.clock, Random(1).getrandbits)
        self._functions: dict[str, ModuleType] = {}
        self._after: str | None = None

    def _application(self) -> Application:
        clients = {"dynamodb": self.engine, "sqs": self.services, "firehose": self.services}
        application = Application(self.settings, clients.__getitem__)
        application.clock = self.clock  # type: ignore[assignment] # a clock by what it does
        return application

    def _load(self, name: str) -> ModuleType:
        """Return a function's handler, in a process of its own."""
        path = Path(__file__).parents[1] / "functions" / name / "handler.py"
        spec = importlib.util.spec_from_file_location(f"metrics_{name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        application = self._application()
        vars(module)["application"] = lambda: application
        return module

    def invoke(self, name: str, event: Mapping[str, Any]) -> int:
        """Invoke a function; return the number of bytes that it prints."""
        if name not in self._functions:
            self._functions[name] = self._load(name)
        out = io.StringIO()
        with (
            redirect_stdout(out),
            patch.object(runtime, "make_clients", lambda _: lambda *_, **__: self.services),
        ):
            self._functions[name].handler(event, _Context())
        printed = out.getvalue().encode()
        self.lines += printed.splitlines()
        return len(printed)

    def create(self, topics: int, subscriptions: int) -> list[str]:
        """Create topics, each with so many subscriptions to queues; return their names."""
        names = [f"service-{number:04d}-orders" for number in range(topics)]
        for name in names:
            self.outbox.create_topic(Topic(name, shards=1))
            for number in range(subscriptions):
                to = f"sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/{name}-{number}"
                self.outbox.add_subscription(Subscription(name, f"billing-{number}", to))
        self._records()
        return names

    def _records(self, *kinds: str) -> Iterator[list[dict[str, Any]]]:
        """Return batches of the stream's records of messages since the last call."""
        records = self.engine.stream("outbox").take(self._after)
        if records:
            self._after = records[-1]["dynamodb"]["SequenceNumber"]
        lying = [r for r in records if r["eventName"] in kinds and _is_message(r)]
        return (lying[start : start + _BATCH] for start in range(0, len(lying), _BATCH))

    def pass_messages(self, names: Sequence[str]) -> int:
        """Let a message of each topic be added, counted and delivered; return the count's bytes."""
        for name in names:
            self.outbox.add(Message(topic=name, body=b'{"order": 1}', id=self._ids.next()))
        inserted = list(self._records("INSERT"))
        for records in inserted:
            self.invoke("mark_delivered", {"Records": records})
        self.clock.advance(2)  # a message that is much older is left to the sweep
        printed = self.invoke("count_outstanding", {})
        for records in inserted:
            self.invoke("relay", {"Records": records})
        self._visit()
        for records in self._records("REMOVE"):
            self.invoke("mark_delivered", {"Records": records})
        return printed

    def _visit(self) -> None:
        """Let refused messages be sent again, when they are due."""
        self.services.refuses = False
        self.clock.advance(60)
        for body in self.services.sent.pop(ENVIRONMENT["FAIRBOX_LATER_QUEUE_URL"], []):
            record = {"messageId": "1", "body": body, "eventSourceARN": "arn:now.fifo"}
            self.invoke("deliver_shard", {"Records": [record]})

    def metrics(self) -> set[tuple[str, tuple[str, ...]]]:
        """Return the metrics of all lines: the name with its dimensions."""
        return {
            (datum["MetricName"], tuple(d["Value"] for d in datum["Dimensions"]))
            for line in self.lines
            for _, datum in metric_data(line)
        }


def _is_message(record: Mapping[str, Any]) -> bool:
    change = record["dynamodb"]
    return "z" in change.get("NewImage", change.get("OldImage", {}))


@dataclass(frozen=True, slots=True)
class Count:
    """The metrics of an hour, and the bytes of a minute.

    Attributes:
        metrics: names with their dimensions.
        count_bytes: bytes that `count_outstanding` prints in a minute in which every topic holds
            messages.
    """

    metrics: int
    count_bytes: int

    @property
    def dollars(self) -> float:
        """Dollars a month, if every hour writes so many, at the price of the first 10,000."""
        return self.metrics * DOLLARS_PER_METRIC

    @property
    def log_dollars(self) -> float:
        """Dollars a month for the lines of `count_outstanding`, if every minute is like this."""
        return log_dollars(self.count_bytes)


def log_dollars(bytes_a_minute: float) -> float:
    """Return the price of a month's ingestion of logs."""
    return bytes_a_minute * MINUTES / 1e9 * DOLLARS_PER_GB


def count(
    level: str,
    topics: int,
    subscriptions: int,
    *,
    refused: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Count:
    """Count an hour in which every topic's subscriptions take a message.

    Args:
        level: setting `metrics_detail`.
        topics: number of topics.
        subscriptions: of each topic.
        refused: whether every destination refuses its message once.
        environment: variables of the functions, over those that the benchmark needs.
    """
    hour = Hour(level, environment)
    names = hour.create(topics, subscriptions)
    hour.invoke("count_outstanding", {})  # ranks the topics
    hour.clock.advance(60)
    hour.services.refuses = refused
    printed = hour.pass_messages(names)
    return Count(len(hour.metrics()), printed)


def at_rest(level: str = "busiest") -> Count:
    """Count an hour without messages: a minute's lines of its scheduled functions."""
    hour = Hour(level)
    hour.create(1, 1)
    hour.invoke("count_outstanding", {})
    hour.clock.advance(60)
    printed = hour.invoke("count_outstanding", {}) + hour.invoke("sweep", {})
    hour.invoke("clean_orphans", {})
    return Count(len(hour.metrics()), printed)


def consumed(level: str, topics: int) -> int:
    """Count the metrics of an hour in which consumers handle a message of every pulled topic."""
    hour = Hour(level)
    names = hour.create(topics, 0)
    hour.invoke("count_outstanding", {})
    hour.clock.advance(60)
    before = hour.metrics()
    queue = Queue.over(hour.outbox)
    out = io.StringIO()
    with redirect_stdout(out):
        metrics = queue.metrics(hour.settings)
        for name in names:
            queue.send(Message(topic=name, body=b"{}"))
            Consumer(queue, name, lambda _: None, metrics=metrics).run_until_empty(limit=1)
    hour.lines += out.getvalue().encode().splitlines()
    return len(hour.metrics() - before)


def figures(topics: Sequence[int] = TOPICS) -> list[Figure]:
    """Return the figures of metrics: how many there are, and dollars a month."""
    rest = at_rest()
    found = [
        Figure("metrics.at_rest", "metrics", rest.metrics),
        Figure("metrics.at_rest.log", "bytes a minute", rest.count_bytes),
    ]
    for level in METRICS_LEVELS:
        for number in topics:
            for subscriptions in SUBSCRIPTIONS:
                name = f"metrics.{level}.{number}_topics.{subscriptions}_subscriptions"
                taken = count(level, number, subscriptions)
                refused = count(level, number, subscriptions, refused=True)
                found += [
                    Figure(name, "metrics", taken.metrics),
                    Figure(f"{name}.refused", "metrics", refused.metrics),
                    Figure(f"{name}.dollars", "$ a month", taken.dollars),
                    Figure(f"{name}.log", "bytes a minute", taken.count_bytes),
                ]
            name = f"metrics.{level}.{number}_topics.consumed"
            found.append(Figure(name, "metrics", consumed(level, number)))
    return found
