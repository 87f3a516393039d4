"""Records of Lambda events, and the message in each."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, Final

from fairbox.cloudevents import CloudEvent, parse_binary, parse_structured
from fairbox.cloudevents.parsing import member_texts
from fairbox.errors import InvalidInput
from fairbox.inbox.lambda_events import Content, Event
from fairbox.inbox.webhooks import check_signature
from fairbox.model.event_attributes import REF
from fairbox.model.messages import MessageRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_FIFO: Final = ".fifo"
_SOURCES: Final = (
    "an event of SQS, SNS, Kinesis, EventBridge, a function URL or API Gateway, or an envelope"
)


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


def _record(record: Any) -> Event:
    # SNS begins it with a capital letter
    source = record.get("eventSource", record.get("EventSource")) if _is_map(record) else None
    if source == "aws:sqs":
        return Event(
            source="sqs",
            record_id=record["messageId"],
            group=_fifo_group(record),
            content=_tried(lambda: _of_text(record["body"])),
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
        return Event(source="sns", content=_tried(lambda: _of_text(record["Sns"]["Message"])))
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


def _of_text(text: str) -> Content:
    return _of_bytes(text.encode())


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
    if not _is_map(value):
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


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)
