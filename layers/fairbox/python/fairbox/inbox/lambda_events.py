"""Messages as the events of Lambda functions bring them, and the signatures of requests."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.cloudevents import CloudEvent, parse_binary, parse_structured
from fairbox.cloudevents.parsing import member_texts
from fairbox.errors import InvalidInput, NotConfigured
from fairbox.model.event_attributes import REF
from fairbox.model.ids import parse_id
from fairbox.model.messages import MessageRef
from fairbox.model.webhook_signatures import signed_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from fairbox.model.bodies import BodyStore

Source = Literal["sqs", "sns", "kinesis", "eventbridge", "http", "invocation"]
_FIFO: Final = ".fifo"
_SOURCES: Final = (
    "an event of SQS, SNS, Kinesis, EventBridge, a function URL or API Gateway, or an envelope"
)
MAX_AGE: Final = 300
"""Seconds by which a signature's time may differ from the receiver's."""
SIGNATURE: Final = "webhook-signature"


@dataclass(frozen=True, slots=True)
class Content:
    """A message that could be read: its id, its topic, and the CloudEvent."""

    message_id: str
    topic: str
    cloudevent: CloudEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A message, as one record of a Lambda event brought it.

    A record that is no message is an `Event` too, so that a batch can report it: everything but
    the attributes below raises `InvalidInput` for it.

    Attributes:
        source: `sqs`, `sns`, `kinesis`, `eventbridge`, `http` or `invocation`.
        record_id: the record's name in `batchItemFailures`; None: the source reports no records.
        group: records of one group arrive in order, so after a failure the later ones must wait;
            None: the record has no order.
    """

    source: Source
    record_id: str | None = None
    group: str | None = None
    content: Content | InvalidInput = field(repr=False)

    @property
    def message_id(self) -> str:
        """The message's id in Fairbox, the same in every delivery; of a webhook, the signed one."""
        return self._read().message_id

    @property
    def topic(self) -> str:
        """The message's topic. The signature of a webhook does not cover it."""
        return self._read().topic

    @property
    def cloudevent(self) -> CloudEvent:
        """The envelope. The signature of a webhook covers its data, and no attribute."""
        return self._read().cloudevent

    def body(self, bodies: BodyStore | None = None) -> bytes:
        """Return the message's body.

        Args:
            bodies: the store of offloaded bodies (`fairbox.aws.s3_bodies.S3Bodies`), for messages
                whose body did not fit the destination.

        Raises:
            InvalidInput: the record is no message, or its body lies in another bucket.
            NotConfigured: the body is offloaded, and there are no `bodies`.
            Unavailable: the body could not be read.
        """
        event = self.cloudevent
        uri = event.extensions.get("dataref")
        if uri is None:
            return event.data
        if bodies is None:
            raise NotConfigured(f"bodies: the body lies at {uri}")
        root = f"s3://{bodies.bucket}/"
        # the envelope may name any object: only bodies of this bucket are read
        if not uri.startswith(root):
            raise InvalidInput("ce.dataref", f"an object of bucket {bodies.bucket}")
        return bodies.get(bodies.bucket, uri.removeprefix(root))

    def _read(self) -> Content:
        if isinstance(self.content, InvalidInput):
            raise self.content
        return self.content


def read_events(event: Mapping[str, Any], *, keys: Sequence[bytes], now: float) -> Iterator[Event]:
    """Yield the messages of a Lambda event, in its order.

    Args:
        event: as Lambda hands it to the function.
        keys: to check a webhook's signature with; a request needs at least one.
        now: seconds since 1970 UTC, for the age of a signature.

    Raises:
        InvalidInput: the event is of another kind; the field is `event`.
    """
    if not isinstance(event, dict):
        raise InvalidInput("event", _SOURCES)
    if "Records" in event:
        for record in event["Records"]:
            yield _record(record)
    elif "detail" in event and "detail-type" in event:
        yield Event(source="eventbridge", content=_tried(lambda: _of_value(event["detail"])))
    elif "headers" in event and "body" in event:
        yield Event(source="http", content=_tried(lambda: _request(event, keys, now)))
    elif "specversion" in event:
        yield Event(source="invocation", content=_tried(lambda: _of_value(event)))
    else:
        raise InvalidInput("event", _SOURCES)


def ref_of(event: CloudEvent) -> MessageRef:
    """Return the ref that Fairbox wrote into the envelope.

    Raises:
        InvalidInput: there is none; the field is `ce.fairboxref` or a part of the ref.
    """
    text = event.extensions.get(REF)
    if text is None:
        raise InvalidInput(f"ce.{REF}", "the ref of a message of Fairbox")
    return MessageRef.parse(text)


def check_signature(
    headers: Mapping[str, str], body: bytes, keys: Sequence[bytes], now: float
) -> str:
    """Return the message id of a request that one of the keys signed.

    Args:
        headers: names in lower case.
        body: as it was sent.
        keys: those of `parse_secret`; several while a key is being changed.
        now: seconds since 1970 UTC.

    Raises:
        InvalidInput: the request is not signed with one of the keys, or not within `MAX_AGE`; the
            field is `webhook-signature`. Or the signed id is no message's.
    """
    given = headers.get(SIGNATURE, "").split(" ")
    stamp = headers.get("webhook-timestamp", "")
    # few digits: Python takes long for a long number, or refuses it
    seconds = int(stamp) if stamp.isascii() and stamp.isdigit() and len(stamp) < 16 else 0
    message = headers.get("webhook-id", "")
    expected = signed_headers(message, seconds, body, keys) if message.isascii() else {}
    # all of them, each in constant time: how long it takes tells nothing of a key
    genuine = [
        hmac.compare_digest(mine.encode(), theirs.encode(errors="surrogatepass"))
        for mine in expected.get(SIGNATURE, "").split(" ")
        for theirs in given
        if mine
    ]
    if not any(genuine):
        raise InvalidInput(SIGNATURE, "a signature with a key of the subscription")
    if abs(now - seconds) > MAX_AGE:
        raise InvalidInput(SIGNATURE, f"a time within {MAX_AGE} s of the receiver's")
    return parse_id(headers["webhook-id"], field="webhook-id")


def _record(record: Any) -> Event:
    # SNS begins it with a capital letter
    source = (
        record.get("eventSource", record.get("EventSource")) if isinstance(record, dict) else None
    )
    if source == "aws:sqs":
        return Event(
            source="sqs",
            record_id=record["messageId"],
            group=_fifo_group(record),
            content=_tried(lambda: _of_bytes(record["body"].encode())),
        )
    if source == "aws:kinesis":
        kinesis = record["kinesis"]
        return Event(
            source="kinesis",
            record_id=kinesis["sequenceNumber"],
            group=record.get("eventSourceARN", "stream"),  # a batch is of one shard, in order
            content=_tried(lambda: _of_bytes(_decoded(kinesis["data"], "record.data"))),
        )
    if source == "aws:sns":
        return Event(
            source="sns", content=_tried(lambda: _of_bytes(record["Sns"]["Message"].encode()))
        )
    raise InvalidInput("event", _SOURCES)


def _fifo_group(record: Mapping[str, Any]) -> str | None:
    if not str(record.get("eventSourceARN", "")).endswith(_FIFO):
        return None  # the group of a standard queue has no order
    group: str | None = record.get("attributes", {}).get("MessageGroupId")
    return group


def _tried(read: Callable[[], Content]) -> Content | InvalidInput:
    """Return the content, or the error: one bad record must not fail its batch."""
    try:
        return read()
    except InvalidInput as error:
        return error
    except (KeyError, TypeError, AttributeError, UnicodeError) as error:
        return InvalidInput("record", f"the members of its source ({type(error).__name__})")


def _of_bytes(body: bytes) -> Content:
    """Read an envelope, also one in a notification of SNS or an event of EventBridge."""
    try:
        event = parse_structured(body, exact=True)
    except InvalidInput:
        inner = _wrapped(body)
        if inner is None:
            raise
        event = parse_structured(inner, exact=True)
    return _content(event)


def _wrapped(body: bytes) -> bytes | None:
    """Return the envelope without the wrapper of SNS or EventBridge; None: there is no wrapper."""
    try:
        outer = member_texts(body)
        if outer.get("Type") == '"Notification"' and "Message" in outer:
            return str(json.loads(outer["Message"])).encode()
    except (InvalidInput, UnicodeError):
        return None
    # the text as it came: parsing would round the numbers of the body
    return outer["detail"].encode() if {"detail-type", "detail"} <= outer.keys() else None


def _of_value(value: Any) -> Content:
    """Read an envelope that Lambda or EventBridge parsed: the same values, not the same bytes."""
    if not isinstance(value, dict):
        raise InvalidInput("ce", "one JSON object")
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _content(parse_structured(text.encode()))


def _content(event: CloudEvent) -> Content:
    ref = ref_of(event)
    return Content(ref.id, ref.topic, event)


def _request(event: Mapping[str, Any], keys: Sequence[bytes], now: float) -> Content:
    headers = {str(name).lower(): str(value) for name, value in event["headers"].items()}
    # of a request without a body it is null
    text = event["body"] or ""
    body = _decoded(text, "body") if event.get("isBase64Encoded") else text.encode()
    message_id = check_signature(headers, body, keys, now)
    cloudevent = parse_binary(headers, body)
    if "dataref" in cloudevent.extensions:  # unsigned: it could lead to any object
        raise InvalidInput("ce.dataref", "the body in the request")
    return Content(message_id, ref_of(cloudevent).topic, cloudevent)


def _decoded(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(field, "base64 text (RFC 4648)") from None
