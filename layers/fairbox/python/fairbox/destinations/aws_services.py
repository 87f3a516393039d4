"""Services of AWS that take many messages a call: SQS, SNS, EventBridge and Kinesis."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

from fairbox.cloudevents import STRUCTURED_TYPE, attributes_of
from fairbox.destinations.batching import BatchDestination, Prepared, fitting
from fairbox.destinations.outcomes import of_entry, refused
from fairbox.dispatch.ports import TAKEN, Limits, Outcome
from fairbox.model.ids import LAST_MS, time_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.model.messages import Message
    from fairbox.tables.stored_messages import StoredMessage

_MIB: Final = 1024 * 1024
MAX_ATTRIBUTES: Final = 10
_NAME = re.compile(r"(?!aws\.|amazon\.)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.IGNORECASE)
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_NAME: Final = 256
_GROUP = re.compile(r"[!-~]{1,128}")  # letters, digits and punctuation
_MAX_SOURCE: Final = 256
_RESERVED: Final = "aws."
_MAX_DETAIL_TYPE: Final = 128
_TIME_BYTES: Final = 14


class Sqs(BatchDestination):
    """An SQS queue; its URL's suffix `.fifo` makes it one that keeps order by group."""

    limits = Limits(10, _MIB)
    pattern = re.compile(
        r"https?://[A-Za-z0-9.:\[\]-]+(?:/[^/\s?#]+)*/[A-Za-z0-9_-]{1,80}(\.fifo)?"
    )
    expected = "sqs: and the URL of a queue"

    def prepare(self, stored: StoredMessage) -> Prepared:
        """Return the message's entry."""
        return _entry(stored, "MessageBody", self)

    def call(self, entries: list[dict[str, Any]]) -> list[Outcome]:
        """Make one call of `SendMessageBatch`."""
        response = self.client.send_message_batch(QueueUrl=self.address, Entries=_named(entries))
        return _by_id(response, len(entries))


class Sns(BatchDestination):
    """An SNS topic; its name's suffix `.fifo` makes it one that keeps order by group."""

    limits = Limits(10, 256 * 1024)
    pattern = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?")
    expected = "sns: and the ARN of a topic"

    def prepare(self, stored: StoredMessage) -> Prepared:
        """Return the message's entry."""
        return _entry(stored, "Message", self)

    def call(self, entries: list[dict[str, Any]]) -> list[Outcome]:
        """Make one call of `PublishBatch`."""
        response = self.client.publish_batch(
            TopicArn=self.address, PublishBatchRequestEntries=_named(entries)
        )
        return _by_id(response, len(entries))


class EventBridge(BatchDestination):
    """A bus, by its name or ARN. `Detail` is the envelope, `Source` and `DetailType` from it.

    A source over 256 characters or of AWS's own (`aws.`), and a type over 128, stand in the
    envelope only: the entry then has `fairbox` and `fairbox.message`. EventBridge writes JSON
    anew, so the same value arrives, but not the same bytes; it keeps no order.
    """

    limits = Limits(10, 1_000_000)
    pattern = re.compile(
        r"(?:arn:aws[a-z-]*:events:[a-z0-9-]+:[0-9]{12}:event-bus/)?[A-Za-z0-9._/-]{1,256}"
    )
    expected = "events: and the name or ARN of an event bus"

    def prepare(self, stored: StoredMessage) -> Prepared:
        """Return the message's entry."""
        attributes = attributes_of(stored)
        source, kind = attributes["source"], attributes["type"]
        # PutEvents refuses a source that begins as AWS's own
        ours = len(source) <= _MAX_SOURCE and not source.startswith(_RESERVED)
        source = source if ours else "fairbox"
        kind = kind if len(kind) <= _MAX_DETAIL_TYPE else "fairbox.message"
        extra = len(source.encode()) + len(kind.encode()) + _TIME_BYTES
        detail = fitting(stored, self.limits.bytes - extra)
        entry: dict[str, Any] = {
            "EventBusName": self.address,
            "Source": source,
            "DetailType": kind,
            "Detail": detail.decode(),
        }

        time = time_of(stored.message.id)
        if time <= LAST_MS:  # past it the service takes no time
            entry["Time"] = time // 1000
        return Prepared(entry, len(detail) + extra)

    def call(self, entries: list[dict[str, Any]]) -> list[Outcome]:
        """Make one call of `PutEvents`."""
        response = self.client.put_events(Entries=entries)
        return _in_order(response.get("Entries", ()), len(entries))


class Kinesis(BatchDestination):
    """A stream, in order by partition key: the message's, without one the message id."""

    limits = Limits(500, 10 * _MIB)
    pattern = re.compile(
        r"arn:aws[a-z-]*:kinesis:[a-z0-9-]+:[0-9]{12}:stream/[A-Za-z0-9_.-]{1,128}"
    )
    expected = "kinesis: and the ARN of a stream"

    @property
    def alone(self) -> int:
        """Bytes of one record that a stream takes unless it was set up for larger ones."""
        return _MIB

    def prepare(self, stored: StoredMessage) -> Prepared:
        """Return the message's record."""
        key = stored.message.shard_key or stored.message.id
        extra = len(key.encode())
        # the partition key counts against the limit of the record
        data = fitting(stored, self.alone - extra)
        return Prepared({"Data": data, "PartitionKey": key}, len(data) + extra)

    def call(self, entries: list[dict[str, Any]]) -> list[Outcome]:
        """Make one call of `PutRecords`."""
        response = self.client.put_records(StreamARN=self.address, Records=entries)
        return _in_order(response.get("Records", ()), len(entries))


def _entry(stored: StoredMessage, member: str, destination: Sqs | Sns) -> Prepared:
    """Return a message's entry without its `Id`; `member` names the one that holds the envelope.

    FIFO: the group is the partition key, without one the message id; the deduplication id is the
    same for every attempt. Standard: the group of a fair queue is the fairness key.
    """
    message = stored.message
    attributes, extra = _message_attributes(message)
    # attributes count against the limit of the message
    body = fitting(stored, destination.limits.bytes - extra)
    result: dict[str, Any] = {member: body.decode(), "MessageAttributes": attributes}
    if destination.address.endswith(".fifo"):
        result["MessageGroupId"] = _group_name(message.shard_key)
        # with the topic's hash: one queue may take a message of two topics
        topic = hashlib.sha256(message.topic.encode()).hexdigest()[:16]
        result["MessageDeduplicationId"] = f"{message.id}-{topic}"
    elif message.fairness_key is not None:
        result["MessageGroupId"] = _group_name(message.fairness_key)
    return Prepared(result, len(body) + extra)


def _group_name(key: str) -> str:
    """Return the key as a message group: itself, or its SHA-256 in hex where it is not legal."""
    return key if _GROUP.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()


def _message_attributes(message: Message) -> tuple[dict[str, dict[str, str]], int]:
    """Return the attributes, and the bytes that they take: names, types and values.

    The first is `content-type`, the envelope's; then come the headers that are no attributes of
    the envelope (`ce-`), in their order, where name and value are legal. The envelope has them all.
    """
    values = {"content-type": STRUCTURED_TYPE}
    seen = {"content-type"}
    # SQS takes ten attributes, and SNS drops a message for SQS that has more
    for name, value in message.headers.items():
        if len(values) == MAX_ATTRIBUTES:
            break
        legal = len(name) <= _MAX_NAME and _NAME.fullmatch(name) and value
        # names are told apart by case at the services, and not in headers
        if name.lower().startswith("ce-") or name.lower() in seen or not legal:
            continue
        if _NOT_IN_XML.search(value) is None:
            values[name] = value
            seen.add(name.lower())

    size = sum(len(n) + len("String") + len(v.encode()) for n, v in values.items())
    return {n: {"DataType": "String", "StringValue": v} for n, v in values.items()}, size


def _named(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"Id": str(n), **one} for n, one in enumerate(entries)]


def _by_id(response: Mapping[str, Any], count: int) -> list[Outcome]:
    """Return the outcomes of entries called `0` to `count - 1` (SQS and SNS)."""
    outcomes = {entry["Id"]: TAKEN for entry in response.get("Successful", ())}
    for failed in response.get("Failed", ()):
        code, text = failed.get("Code", "error"), failed.get("Message", "")
        outcomes[failed["Id"]] = of_entry(str(code), str(text))
    # an entry without an answer may have been taken: tried again, and never lost
    return [outcomes.get(str(n), refused("the answer leaves it out")) for n in range(count)]


def _in_order(results: Sequence[Mapping[str, Any]], count: int) -> list[Outcome]:
    """Return the outcomes of entries that are answered in their order (EventBridge, Kinesis)."""
    outcomes = [
        of_entry(str(result["ErrorCode"]), str(result.get("ErrorMessage", "")))
        if result.get("ErrorCode")
        else TAKEN
        for result in results[:count]
    ]
    return outcomes + [refused("the answer leaves it out")] * (count - len(outcomes))
