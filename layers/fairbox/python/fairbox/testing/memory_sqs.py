"""A model of SQS: the calls of boto3's client on queues in memory, with a clock that the test sets.

It stands in the place of AWS, under the library's own adapters: messages are checked, limited,
deduplicated, delayed, grouped, hidden and given again as by the service. Contract tests run
against the model and against a server. A trigger is the event source mapping of a function: it
gives batches of messages, and deletes them on success.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from fairbox.testing.sqs_queue import MemoryQueue, QueueMessage, Settings, size

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from fairbox.model.clock import Clock

ACCOUNT: Final = "123456789012"
REGION: Final = "us-east-1"
_ENTRIES: Final = 10
_BATCH_BYTES: Final = 1024 * 1024
_LONGEST_DELAY: Final = 900
_LONGEST_VISIBILITY: Final = 43_200
_INVALID: Final = "InvalidParameterValue"
_BATCH: Final = "AWS.SimpleQueueService."
_RECEIPT: Final = "Value {} for parameter ReceiptHandle is invalid. Reason: {}"
_QUEUE_TYPE: Final = (
    "Value {} for parameter {} is invalid. Reason: The request include parameter that is not valid "
    "for this queue type."
)

Entry = dict[str, Any]
Record = dict[str, Any]


@dataclass(slots=True)
class SqsFaults:
    """Faults of the service, each a probability per occasion.

    Attributes:
        entries: of each entry of a batch that is sent, that it alone fails.
        duplicates: of each message that a standard queue gives, that it gives it once more.
        disorder: of each receive from a standard queue, that it takes messages out of their order.
    """

    entries: float = 0.0
    duplicates: float = 0.0
    disorder: float = 0.0


@dataclass
class MemorySqs:
    """SQS in memory: a client as boto3 makes it, and the queues behind it.

    A receive does not wait, even with `WaitTimeSeconds`: time moves with the clock alone.

    Attributes:
        clock: the time of delays, visibility, deduplication and retention.
        rng: every chance: ids, faults, order.
        faults: rates of faults; none by default.
        failing: how many of the next entries fail.
        calls: how many calls were made, by operation.
        queues: by name.

    Example:
        ```python
        sqs = MemorySqs(ManualClock(), random.Random(0))
        url = sqs.create_queue(QueueName="jobs.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        sqs.send_message_batch(
            QueueUrl=url,
            Entries=[
                {
                    "Id": "0",
                    "MessageBody": "x",
                    "MessageGroupId": "a",
                    "MessageDeduplicationId": "1",
                }
            ],
        )
        (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        ```
    """

    clock: Clock
    rng: random.Random
    faults: SqsFaults = field(default_factory=SqsFaults)
    failing: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    queues: dict[str, MemoryQueue] = field(default_factory=dict)

    def create_queue(
        self,
        *,
        QueueName: str,  # noqa: N803 - the SDK's
        Attributes: Mapping[str, str] | None = None,  # noqa: N803
        tags: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> dict[str, str]:
        """Make a queue; return its URL."""
        settings = Settings.of(Attributes or {})
        if settings.fifo != QueueName.endswith(".fifo"):
            raise _error(
                _INVALID, "The name of a FIFO queue can only end in '.fifo'.", "CreateQueue"
            )
        self.queues.setdefault(QueueName, MemoryQueue(QueueName, settings, self.clock, self.rng))
        return {"QueueUrl": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{QueueName}"}

    def get_queue_url(self, *, QueueName: str) -> dict[str, str]:  # noqa: N803
        """Return the URL of a queue."""
        queue = self._queue(QueueName, "GetQueueUrl")
        return {"QueueUrl": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{queue.name}"}

    def get_queue_attributes(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        AttributeNames: Sequence[str] = ("All",),  # noqa: N803
    ) -> dict[str, dict[str, str]]:
        """Return counts and the ARN of a queue."""
        queue = self._queue(QueueUrl, "GetQueueAttributes")
        ready, delayed, flying = queue.counts()
        found = {
            "QueueArn": arn(queue.name),
            "ApproximateNumberOfMessages": str(ready),
            "ApproximateNumberOfMessagesDelayed": str(delayed),
            "ApproximateNumberOfMessagesNotVisible": str(flying),
            "VisibilityTimeout": str(queue.settings.visibility),
        }
        wanted = found.keys() if "All" in AttributeNames else AttributeNames
        return {"Attributes": {name: found[name] for name in wanted if name in found}}

    def send_message(self, *, QueueUrl: str, **entry: Any) -> dict[str, Any]:  # noqa: N803
        """Send one message."""
        queue = self._begin(QueueUrl, "SendMessage")
        if refusal := _refusal(queue, entry):
            raise _error(*refusal, "SendMessage")
        return _sent(queue.send(entry))

    def send_message_batch(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        Entries: Sequence[Entry],  # noqa: N803
    ) -> dict[str, Any]:
        """Send up to ten messages; each fails for itself."""
        operation = "SendMessageBatch"
        queue = self._begin(QueueUrl, operation)
        _check_batch(Entries, operation)
        # the whole call counts against the limit of one message, so ten messages share 1 MiB
        total = sum(size(entry) for entry in Entries)
        if total > _BATCH_BYTES:
            text = f"Batch requests cannot be longer than {_BATCH_BYTES} bytes, not {total}."
            raise _error(f"{_BATCH}BatchRequestTooLong", text, operation)

        def put(entry: Entry) -> Entry:
            if refusal := _refusal(queue, entry):
                raise _error(*refusal, operation)
            # behind the checks: a fault of the service strikes only entries that it would take
            if self.failing or self._strikes(self.faults.entries):
                self.failing = max(0, self.failing - 1)
                raise _error("InternalError", "We encountered an internal error.", operation)
            return _sent(queue.send(entry))

        return _each(Entries, put)

    def receive_message(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        MaxNumberOfMessages: int = 1,  # noqa: N803
        VisibilityTimeout: int | None = None,  # noqa: N803
        **_: Any,
    ) -> dict[str, Any]:
        """Receive messages that are visible, and hide them; of a FIFO queue, of free groups."""
        queue = self._begin(QueueUrl, "ReceiveMessage")
        if not 1 <= MaxNumberOfMessages <= _ENTRIES:
            text = (
                f"Value {MaxNumberOfMessages} for parameter MaxNumberOfMessages is invalid. "
                f"Reason: Must be between 1 and {_ENTRIES}, if provided."
            )
            raise _error(_INVALID, text, "ReceiveMessage")

        # a full FIFO queue answers with no messages, and no error
        if not queue.settings.fifo and queue.full:
            text = "Too many messages in flight."
            raise _error("OverLimit", text, "ReceiveMessage")

        taken = queue.receive(
            MaxNumberOfMessages,
            VisibilityTimeout,
            disorder=self._strikes(self.faults.disorder),
            repeats=lambda: self._strikes(self.faults.duplicates),
            bury=self._bury,
        )
        # an empty answer has no list of messages at all
        return {"Messages": [_received(message) for message in taken]} if taken else {}

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> dict[str, Any]:  # noqa: N803
        """Delete a message by its latest receipt; an older one deletes nothing."""
        self._delete(self._begin(QueueUrl, "DeleteMessage"), ReceiptHandle, "DeleteMessage")
        return {}

    def delete_message_batch(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        Entries: Sequence[Entry],  # noqa: N803
    ) -> dict[str, Any]:
        """Delete up to ten messages; each fails for itself."""
        queue = self._begin(QueueUrl, "DeleteMessageBatch")
        _check_batch(Entries, "DeleteMessageBatch")

        def delete(entry: Entry) -> Entry:
            self._delete(queue, entry["ReceiptHandle"], "DeleteMessageBatch")
            return {}

        return _each(Entries, delete)

    def change_message_visibility(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        ReceiptHandle: str,  # noqa: N803
        VisibilityTimeout: int,  # noqa: N803
    ) -> dict[str, Any]:
        """Make a message in flight visible so many seconds from now."""
        operation = "ChangeMessageVisibility"
        queue = self._begin(QueueUrl, operation)
        if not 0 <= VisibilityTimeout <= _LONGEST_VISIBILITY:
            text = f"Value {VisibilityTimeout} for parameter VisibilityTimeout is invalid."
            raise _error(_INVALID, text, operation)
        message = queue.by_receipt(ReceiptHandle)
        # a message that is visible again is nobody's: the next receive may have it
        if message is None or message.visible_at <= self.clock.now():
            text = _RECEIPT.format(ReceiptHandle, "Message is not available for a change.")
            raise _error(_INVALID, text, operation)
        message.visible_at = self.clock.now() + VisibilityTimeout
        return {}

    def _begin(self, url: str, operation: str) -> MemoryQueue:
        self.calls[operation] += 1
        return self._queue(url, operation)

    def _queue(self, url: str, operation: str) -> MemoryQueue:
        queue = self.queues.get(url.rsplit("/", maxsplit=1)[-1])
        if queue is None:
            text = "The specified queue does not exist."
            raise _error(f"{_BATCH}NonExistentQueue", text, operation)
        return queue

    def _strikes(self, share: float) -> bool:
        return share > 0 and self.rng.random() < share

    def _delete(self, queue: MemoryQueue, receipt: str, operation: str) -> None:
        if not queue.delete(receipt):
            text = _RECEIPT.format(receipt, "The receipt handle has expired.")
            raise _error(_INVALID, text, operation)

    def _bury(self, message: QueueMessage, target: str) -> None:
        """Move a message that was received too often into the dead-letter queue."""
        self.queues[target.rsplit(":", maxsplit=1)[-1]].take_in(message)


class SqsTrigger:
    """Invokes a function with the batches of its queues, of the first one that has any.

    A message that failed, or whose invocation raised, stays hidden until its visibility ends.

    Args:
        urls: the queues; a batch is from one of them.
        batch: messages of one invocation at most.
    """

    def __init__(self, sqs: MemorySqs, *urls: str, batch: int = 10) -> None:
        self._sqs = sqs
        self._urls = urls
        self._batch = batch

    def receive(self) -> list[Record]:
        """Take a batch out of a queue; return it as the records of an event."""
        for url in self._urls:
            answer = self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=self._batch)
            # messages of two queues never share an invocation
            if "Messages" in answer:
                return [_record(message, url) for message in answer["Messages"]]
        return []

    def settle(
        self, records: Sequence[Record], answer: Mapping[str, Sequence[Mapping[str, str]]]
    ) -> None:
        """Delete the records that a function handled; failed ones come again."""
        failed = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        entries = [
            {"Id": str(n), "ReceiptHandle": record["receiptHandle"]}
            for n, record in enumerate(records)
            if record["messageId"] not in failed
        ]
        # an empty batch is refused by the service
        if entries:
            name = records[0]["eventSourceARN"].rpartition(":")[2]
            self._sqs.delete_message_batch(QueueUrl=name, Entries=entries)

    def invoke(
        self, function: Callable[[list[Record]], Mapping[str, Sequence[Mapping[str, str]]]]
    ) -> int:
        """Invoke a function with the next batch; return how many messages it got."""
        records = self.receive()
        if records:
            self.settle(records, function(records))
        return len(records)


def _each(entries: Sequence[Entry], work: Callable[[Entry], Entry]) -> dict[str, Any]:
    """Handle the entries of a batch one by one; return which succeeded and which failed."""
    done: list[Entry] = []
    failed: list[Entry] = []
    for entry in entries:
        try:
            done.append({"Id": entry["Id"], **work(entry)})
        except ClientError as error:
            told = error.response["Error"]

            # after a fault of the service itself, a caller sends the entry again
            theirs = told["Code"] != "InternalError"
            failed.append({"Id": entry["Id"], "SenderFault": theirs, **told})

    answer = {"Successful": done, "Failed": failed}
    # the service leaves an empty list out
    return {name: found for name, found in answer.items() if found}


def arn(name: str) -> str:
    """Return the ARN of a queue in memory."""
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"


def _error(code: str, text: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": text}}, operation)


def _check_batch(entries: Sequence[Entry], operation: str) -> None:
    ids = [entry["Id"] for entry in entries]
    if not ids:
        text = "There should be at least one entry in the request."
        raise _error(f"{_BATCH}EmptyBatchRequest", text, operation)
    if len(ids) > _ENTRIES:
        text = f"Maximum number of entries per request are {_ENTRIES}. You have sent {len(ids)}."
        raise _error(f"{_BATCH}TooManyEntriesInBatchRequest", text, operation)
    if len(set(ids)) < len(ids):
        text = "Two or more batch entries have the same Id."
        raise _error(f"{_BATCH}BatchEntryIdsNotDistinct", text, operation)


def _refusal(queue: MemoryQueue, entry: Entry) -> tuple[str, str] | None:
    """Return why a queue takes no such message, as code and text; None: it takes it."""
    if not entry.get("MessageBody"):
        return "MissingParameter", "The request must contain the parameter MessageBody."
    if size(entry) > _BATCH_BYTES:
        return _INVALID, f"Message must be shorter than {_BATCH_BYTES} bytes."
    return _fifo_refusal(queue, entry) if queue.settings.fifo else _standard_refusal(entry)


def _fifo_refusal(queue: MemoryQueue, entry: Entry) -> tuple[str, str] | None:
    # a FIFO queue has one delay, its own
    if entry.get("DelaySeconds"):
        return _INVALID, _QUEUE_TYPE.format(entry["DelaySeconds"], "DelaySeconds")
    if not entry.get("MessageGroupId"):
        return "MissingParameter", "The request must contain the parameter MessageGroupId."
    if not (entry.get("MessageDeduplicationId") or queue.settings.by_content):
        return _INVALID, (
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly"
        )
    return None


def _standard_refusal(entry: Entry) -> tuple[str, str] | None:
    delay = entry.get("DelaySeconds", 0)
    # a group without an id is taken: by it a standard queue shares fairly among tenants
    if "MessageDeduplicationId" in entry:
        named = entry["MessageDeduplicationId"]
        return _INVALID, _QUEUE_TYPE.format(named, "MessageDeduplicationId")
    if not (isinstance(delay, int) and 0 <= delay <= _LONGEST_DELAY):
        text = "Value {} for parameter DelaySeconds is invalid. Reason: must be 0 to {}."
        return _INVALID, text.format(delay, _LONGEST_DELAY)
    return None


def _sent(message: QueueMessage) -> dict[str, Any]:
    answer = {"MessageId": message.id, "MD5OfMessageBody": message.md5}
    return answer | ({"SequenceNumber": message.sequence} if message.sequence else {})


def _received(message: QueueMessage) -> dict[str, Any]:
    attributes = {
        "SentTimestamp": str(round(message.sent * 1000)),
        "ApproximateReceiveCount": str(message.receives),
        "ApproximateFirstReceiveTimestamp": str(round(message.first_received * 1000)),
        "SenderId": "AIDAMODEL",
    }
    if message.group:
        attributes["MessageGroupId"] = message.group
    if message.sequence:
        attributes["MessageDeduplicationId"] = message.deduplication
        attributes["SequenceNumber"] = message.sequence

    return {
        "MessageId": message.id,
        "ReceiptHandle": message.receipt,
        "MD5OfBody": message.md5,
        "Body": message.body,
        "Attributes": attributes,
        **({"MessageAttributes": message.attributes} if message.attributes else {}),
    }


def redrive(dead_letters: str, receives: int) -> str:
    """Return a `RedrivePolicy` that moves a message to a queue, by name, after so many receives."""
    return json.dumps({"deadLetterTargetArn": arn(dead_letters), "maxReceiveCount": receives})


def _record(message: dict[str, Any], url: str) -> Record:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": message.get("MessageAttributes", {}),
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": arn(url.rpartition("/")[2]),
        "awsRegion": REGION,
    }
