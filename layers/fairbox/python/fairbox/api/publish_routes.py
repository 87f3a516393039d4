"""`POST /topics/{topic}/messages`: its four forms, all validated before anything is written."""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from fairbox.api.models import MessageIn, Published
from fairbox.api.request import JSON_TYPE, Request, checked, member_text, parse_json, unsupported
from fairbox.cloudevents import BATCH_TYPE, STRUCTURED_TYPE, CloudEvent
from fairbox.cloudevents.parsing import parse_batch, parse_binary, parse_structured
from fairbox.errors import InvalidInput, MessagesNotWritten
from fairbox.model.messages import Message, check_topic
from fairbox.problems import FieldError, Refusal, malformed, refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.api.field_types import Encoding
    from fairbox.client.outbox import Outbox
    from fairbox.model.ids import IdGenerator

T = TypeVar("T")

MAX_BATCH: Final = 500


class Publisher:
    """Turns requests into messages and publishes them.

    Args:
        outbox: takes the messages.
        ids: makes their ids.
    """

    def __init__(self, outbox: Outbox, ids: IdGenerator) -> None:
        self._outbox = outbox
        self._ids = ids

    def publish(self, request: Request) -> Published:
        """Publish what a request carries.

        Raises:
            Refusal: the request is none of the four forms, or an event is malformed.
            FairboxError: as `Outbox.add` and `Outbox.add_many`.
        """
        topic = check_topic(request.params["topic"])
        # of all forms: a compressed body of any type would be stored as it is
        request.check_encoding()
        media_type = request.media_type

        if media_type == BATCH_TYPE:
            return self._publish_batch(topic, request.body)

        # the media type decides before the headers, as CloudEvents' binding to HTTP says
        if media_type == STRUCTURED_TYPE:
            message = self._event_message(topic, _parsed(lambda: parse_structured(request.body)))
        elif any(name.startswith("ce-") for name in request.headers):
            event = _parsed(lambda: parse_binary(request.headers, request.body))
            message = self._event_message(topic, event)
        elif media_type == JSON_TYPE:
            message = self._json_message(topic, request.body)
        else:
            expected = f"{JSON_TYPE}, {STRUCTURED_TYPE}, {BATCH_TYPE}, or headers ce-..."
            raise unsupported("content-type", expected)

        return Published(refs=[str(self._outbox.add(message))])

    def _publish_batch(self, topic: str, body: bytes) -> Published:
        events = _parsed(lambda: parse_batch(body))
        if len(events) > MAX_BATCH:
            raise InvalidInput("events", f"at most {MAX_BATCH} events")

        messages = []
        for number, event in enumerate(events):
            try:
                messages.append(self._event_message(topic, event))
            except InvalidInput as error:
                field = f"events[{number}].{error.field.removeprefix('ce.')}"
                raise InvalidInput(field, error.expected) from None

        if not messages:
            # an empty batch, too, is refused where there is no such topic
            self._outbox.topic(topic)

        try:
            # all were checked before: a malformed event refuses the whole batch
            refs = self._outbox.add_many(messages)
        except MessagesNotWritten as error:
            raise _not_written(error, messages) from error
        return Published(refs=[str(ref) for ref in refs])

    def _event_message(self, topic: str, event: CloudEvent) -> Message:
        message = event.to_message(topic, message_id=self._ids.next())
        # every event has a key, and most topics have no window for it
        return message if self._outbox.has_window(topic) else replace(message, dedup_key=None)

    def _json_message(self, topic: str, body: bytes) -> Message:
        given = checked(MessageIn, parse_json(body))
        content, content_type = body_bytes(given.body, given.body_encoding, body)

        return Message(
            topic=topic,
            body=content,
            partition_key=given.partition_key,
            content_type=content_type if given.content_type is None else given.content_type,
            headers=given.headers,
            delay=given.delay,
            dedup_key=given.dedup_key,
            fairness_key=given.fairness_key,
            direct=given.direct,
            batch_item=given.batch_item,
            after=given.after,
            id=self._id(given.after) if given.id is None else given.id,
        )

    def _id(self, after: str | None) -> str:
        """Return an id; what one caller names in `after` moves no id of others."""
        return self._ids.next() if after is None else self._ids.above(after)


def _parsed(parse: Callable[[], T]) -> T:
    """Return what a CloudEvents parser gives; an event that is none is a malformed request."""
    try:
        return parse()
    except InvalidInput as error:
        raise malformed(error.field, error.expected) from None


def body_bytes(given: object, encoding: Encoding | None, body: bytes) -> tuple[bytes, str]:
    """Return the bytes of a message's body, and their media type where none is given.

    Args:
        given: field `body`.
        encoding: field `body_encoding`.
        body: the request's, of which JSON is taken as it was written.

    Raises:
        InvalidInput: a field is not what it takes.
    """
    if not isinstance(given, str):
        if encoding is not None:
            raise InvalidInput("body_encoding", "none: the body is JSON, not text")
        # as written: exact numbers and the order of members survive
        return member_text(body, "body"), JSON_TYPE

    if encoding == "base64":
        try:
            # without `validate` Python drops characters that are not base64
            return base64.b64decode(given, validate=True), "application/octet-stream"
        except (binascii.Error, ValueError):
            raise InvalidInput("body", "base64 text (RFC 4648)") from None

    try:
        return given.encode(), "text/plain; charset=utf-8"
    # JSON may escape half of a surrogate pair, which UTF-8 has no bytes for
    except UnicodeEncodeError:
        raise InvalidInput("body", "text that is valid UTF-8") from None


def _not_written(error: MessagesNotWritten, messages: list[Message]) -> Refusal:
    refusal = refusal_of(error)
    missing = {ref.id for ref in error.missing}
    refusal.errors = [
        FieldError(f"events[{n}]", "to be sent again: it was not written")
        for n, message in enumerate(messages)
        if message.id in missing
    ]
    return refusal
