"""Event source mappings of SQS queues: messages in batches, deleted on success.

A failed message stays in the queue until its visibility timeout has passed; nothing
shortens that. Groups of a FIFO queue and the redrive policy are the queue service's own.
"""

from __future__ import annotations

import base64
import json
import logging
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from local.triggers.answers import failed_messages
from local.triggers.properties import Properties, function_of
from local.triggers.streams import KIND, reports_failures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.functions.invoker import Invoker

log = logging.getLogger(__name__)

PAYLOAD_LIMIT: Final = 6 * 1024 * 1024
RECEIVE_LIMIT: Final = 10
DEFAULT_CONCURRENCY: Final = 5  # a new mapping starts with five batches at once
_ENTRY_BYTES: Final = 1024  # of one message in an event, beside body and attributes
_ATTRIBUTES: Final = (
    "ApproximateReceiveCount",
    "AWSTraceHeader",
    "SentTimestamp",
    "SequenceNumber",
    "MessageGroupId",
    "SenderId",
    "MessageDeduplicationId",
    "ApproximateFirstReceiveTimestamp",
    "DeadLetterQueueSourceArn",
)


@dataclass(frozen=True, kw_only=True)
class QueueMapping:
    """A queue's event source mapping as its resolved properties describe it; window in seconds."""

    source: str
    function: str
    batch_size: int = 10
    window: float = 0.0
    concurrency: int = DEFAULT_CONCURRENCY
    report: bool = False
    enabled: bool = True

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self.source.rsplit("/" if "://" in self.source else ":", maxsplit=1)[-1]

    @property
    def fifo(self) -> bool:
        """Whether the queue keeps order by group."""
        return self.source.endswith(".fifo")

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> QueueMapping:
        """Read the properties; raises `ValueError` naming what is missing, wrong or not known."""
        props = Properties(KIND, properties)
        source = props.text("EventSourceArn")
        fifo = source.endswith(".fifo")
        scaling = props.group("ScalingConfig")
        mapping = cls(
            source=source,
            function=function_of(props.text("FunctionName")),
            batch_size=props.integer("BatchSize", 10, low=1, high=10 if fifo else 10_000),
            window=float(
                props.integer("MaximumBatchingWindowInSeconds", 0, low=0, high=0 if fifo else 300)
            ),
            concurrency=scaling.integer(
                "MaximumConcurrency", DEFAULT_CONCURRENCY, low=2, high=1000
            ),
            report=reports_failures(props),
            enabled=props.flag("Enabled", True),
        )
        if mapping.batch_size > RECEIVE_LIMIT and not mapping.window:
            raise props.error(
                "MaximumBatchingWindowInSeconds", "is 0: expected 1 and more with that BatchSize"
            )
        if props.value("FilterCriteria", {}).get("Filters"):
            raise props.error("FilterCriteria", "is not known here for queues")
        props.ignore("Tags", "KmsKeyArn", "MetricsConfig")
        props.close()
        return mapping


def queue_record(message: dict[str, Any], *, queue_arn: str, region: str) -> dict[str, Any]:
    """Return a message of `ReceiveMessage` as Lambda's events show it."""
    given = message.get("Attributes", {})
    record: dict[str, Any] = {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": {name: given[name] for name in _ATTRIBUTES if name in given},
        "messageAttributes": {
            name: _attribute(value) for name, value in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": region,
    }
    if "MD5OfMessageAttributes" in message:
        record["md5OfMessageAttributes"] = message["MD5OfMessageAttributes"]
    return record


def _attribute(value: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "stringListValues": [],
        "binaryListValues": [],
        "dataType": value["DataType"],
    }
    if "StringValue" in value:
        shown["stringValue"] = value["StringValue"]
    if "BinaryValue" in value:
        shown["binaryValue"] = base64.b64encode(value["BinaryValue"]).decode()
    return shown


class QueueTrigger:
    """Runs one mapping: a thread that receives, and as many invocations as the mapping allows."""

    def __init__(
        self,
        name: str,
        mapping: QueueMapping,
        *,
        client: Any,
        invoker: Invoker,
        rng: random.Random,
        region: str = "us-east-1",
        repeat_share: float = 0.0,
        poll_interval: float = 0.1,
        most_invocations: int = 20,
    ) -> None:
        """`client` is a boto3 client of SQS; `most_invocations` bounds what one machine runs."""
        self.name = name
        self.counts: Counter[str] = Counter()
        self._mapping = mapping
        self._client = client
        self._invoker = invoker
        self._rng = random.Random(rng.getrandbits(64))  # noqa: S311 - no secret
        self._region = region
        self._repeat_share = repeat_share
        self._poll_interval = poll_interval
        self._workers = min(mapping.concurrency, most_invocations)
        self._free = threading.Semaphore(self._workers)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._url = ""
        self._arn = ""

    def start(self) -> None:
        """Start receiving; raises what the client raises if there is no such queue."""
        if self._thread is not None or not self._mapping.enabled:
            return
        self._url = self._client.get_queue_url(QueueName=self._mapping.queue)["QueueUrl"]
        answer = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        self._arn = answer["Attributes"]["QueueArn"]
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop receiving and let the invocations under way finish."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        with ThreadPoolExecutor(self._workers, thread_name_prefix=self.name) as pool:
            while not self._stopping.is_set():
                if not self._free.acquire(timeout=0.5):
                    continue
                messages: list[dict[str, Any]] = []
                try:
                    messages = self._gather()
                except Exception:
                    log.exception("A queue could not be read.", extra={"trigger": self.name})
                    self._stopping.wait(1.0)
                if messages:
                    pool.submit(self._handle, messages)
                else:
                    self._free.release()
                    self._stopping.wait(self._poll_interval)

    def _gather(self) -> list[dict[str, Any]]:
        """Receive one batch: what is there, or what comes within the window."""
        mapping = self._mapping
        messages = self._receive(min(RECEIVE_LIMIT, mapping.batch_size))
        if not messages or not mapping.window:
            return messages
        until = time.monotonic() + mapping.window
        size = _size(messages)
        while len(messages) < mapping.batch_size and not self._stopping.is_set():
            room = (PAYLOAD_LIMIT - size) // (1024 * 1024 + _ENTRY_BYTES)  # a message has 1 MiB
            wanted = min(RECEIVE_LIMIT, mapping.batch_size - len(messages), room)
            left = until - time.monotonic()
            if wanted < 1 or left <= 0:
                break
            more = self._receive(wanted)
            messages += more
            size += _size(more)
            if not more:
                self._stopping.wait(min(left, self._poll_interval))
        return messages

    def _receive(self, limit: int) -> list[dict[str, Any]]:
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=limit,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
            WaitTimeSeconds=0,
        )
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        return messages

    def _handle(self, messages: list[dict[str, Any]]) -> None:
        try:
            for part in fitting(messages, PAYLOAD_LIMIT):
                self._deliver(part)
        except Exception:
            log.exception("A batch of a queue was not finished.", extra={"trigger": self.name})
        finally:
            self._free.release()

    def _deliver(self, messages: list[dict[str, Any]]) -> None:
        records = [queue_record(one, queue_arn=self._arn, region=self._region) for one in messages]
        failed = self._invoke(records)
        self._count("invocations", 1)
        self._count("failed_messages", len(failed))
        if not failed:
            self._repeat(records)
        self._delete([one for one in messages if one["MessageId"] not in failed])

    def _invoke(self, records: list[dict[str, Any]]) -> set[str]:
        event = json.dumps({"Records": records}, ensure_ascii=False).encode()
        result = self._invoker.invoke(self._mapping.function, event)
        ids = [record["messageId"] for record in records]
        return failed_messages(result, ids, report=self._mapping.report)

    def _repeat(self, records: list[dict[str, Any]]) -> None:
        """Deliver a share of the successful batches again, sometimes only a part of a batch."""
        with self._lock:
            if self._rng.random() >= self._repeat_share:
                return
            first = self._rng.randrange(len(records)) if self._rng.random() < 0.5 else 0
        again = []
        for record in records[first:]:
            count = int(record["attributes"].get("ApproximateReceiveCount", "1")) + 1
            attributes = record["attributes"] | {"ApproximateReceiveCount": str(count)}
            again.append(record | {"attributes": attributes})
        self._count("repeats", 1)
        self._invoke(again)

    def _delete(self, messages: list[dict[str, Any]]) -> None:
        for start in range(0, len(messages), RECEIVE_LIMIT):
            entries = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(messages[start : start + RECEIVE_LIMIT])
            ]
            answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            self._count("deleted", len(answer.get("Successful", [])))

    def _count(self, what: str, number: int) -> None:
        with self._lock:
            self.counts[what] += number


def fitting(messages: list[dict[str, Any]], limit: int) -> list[list[dict[str, Any]]]:
    """Return the messages in order, cut into parts that fit a payload of `limit` bytes."""
    parts: list[list[dict[str, Any]]] = []
    room = 0
    for message in messages:
        room -= _size([message])
        if not parts or room < 0:
            parts.append([])
            room = limit - _size([message])
        parts[-1].append(message)
    return parts


def _size(messages: list[dict[str, Any]]) -> int:
    return sum(len(json.dumps(one["Body"])) + _ENTRY_BYTES for one in messages)
