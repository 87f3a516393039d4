"""Messages, and the refs that name them."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, Literal

from fairbox.errors import BodyTooLarge, InvalidInput
from fairbox.model import event_attributes
from fairbox.model.ids import LAST_MS, check_item, new_id, parse_id, time_of

Lane = Literal["ready", "later", "dead"]
OpenLane = Literal["ready", "later"]
Shard = tuple[str, int, int]
"""Topic, epoch and number of a shard."""
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
MAX_KEY_BYTES: Final = 256
MAX_HEADERS: Final = 64
MAX_HEADERS_BYTES: Final = 16 * 1024
MAX_DELAY_SECONDS: Final = 366 * 24 * 3600
_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_CONTENT_TYPE = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,254}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_REF_PARTS: Final = (4, 5)
_ATTRIBUTES: Final = {name: f"ce-{name}" for name in ("type", "source", "subject", "dataschema")}
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def check_topic(name: str, *, field_name: str = "topic") -> str:
    """Return the topic's name when it is one.

    Raises:
        InvalidInput: it is empty, over 120 characters, or has others than letters, digits, `._-`;
            the error names the field.
    """
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise InvalidInput(
            field_name, "1 to 120 letters, digits, '.', '_' or '-', the first a letter or digit"
        )
    return name


def check_text(field_name: str, value: str | None, *, limit: int = MAX_KEY_BYTES) -> str | None:
    """Return a key-like text when it is one: UTF-8, no control characters, `limit` bytes at most.

    Raises:
        InvalidInput: it is not; the error names the field.
    """
    if value is None:
        return None

    expected = f"text of at most {limit} bytes of UTF-8 without control characters"
    # in headers a tab is allowed, so the pattern leaves it out
    if not isinstance(value, str) or _CONTROL.search(value) or "\t" in value:
        raise InvalidInput(field_name, expected)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput(field_name, expected) from None
    if size > limit:
        raise InvalidInput(field_name, expected)
    return value


def _check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    total = 0
    if not isinstance(headers, Mapping):
        raise InvalidInput("headers", f"a mapping, got {type(headers).__name__}")
    if len(headers) > MAX_HEADERS:
        raise InvalidInput("headers", f"at most {MAX_HEADERS} headers")

    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise InvalidInput("headers", f"names that are HTTP tokens, got {name!r}")
        if not isinstance(value, str) or _CONTROL.search(value):
            raise InvalidInput(f"headers.{name}", "text without line breaks or control characters")
        try:
            total += len(name) + len(value.encode())
        except UnicodeEncodeError:
            raise InvalidInput(f"headers.{name}", "text that is valid UTF-8") from None

    if total > MAX_HEADERS_BYTES:
        raise InvalidInput("headers", f"at most {MAX_HEADERS_BYTES} bytes in all")
    # a copy that nobody can change: the message is checked once
    return MappingProxyType(dict(headers))


def check_delay(delay: float) -> float:
    """Return seconds of a delay, in whole milliseconds, if they are 0 to 366 days.

    Raises:
        InvalidInput: they are not.
    """
    number = isinstance(delay, int | float) and not isinstance(delay, bool)
    if not number or not 0 <= delay <= MAX_DELAY_SECONDS:
        raise InvalidInput("delay", f"seconds from 0 to {MAX_DELAY_SECONDS}")
    return round(delay, 3)


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A message that a producer publishes.

    Attributes:
        topic: the topic's name, up to 120 characters.
        body: bytes, up to 64 MiB; compressed and offloaded as needed when it is stored.
        partition_key: messages of one key share a shard, and on ordered topics their order.
        content_type: media type of the body.
        headers: names and values that travel with the message, 16 KiB in all.
        type, source, subject, dataschema: attributes of the CloudEvent that destinations get, and
            headers `ce-type` and so on: given as one, they are the other too. An argument wins
            over a header. None: `fairbox.message`, `/fairbox/topics/TOPIC`, none, none.
        delay: seconds until it is due.
        dedup_key: the caller's own name for it, on topics with a deduplication window.
        fairness_key: the tenant that its share of its topic is counted for.
        direct: it goes before other messages, as a reply or a notice does; see the explanation of
            fairness. On ordered topics it keeps its place.
        batch_item: the batch item (`batch:group:index`) that its delivery acks, its death fails
            and its redrive puts back.
        after: an id that this one must sort above (hybrid clock across hosts).
        id: a UUIDv7; made here unless it is given.

    Raises:
        InvalidInput: a field has an invalid value; the error names it.
    """

    topic: str
    body: bytes = field(repr=False)
    partition_key: str | None = None
    content_type: str = "application/octet-stream"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0
    dedup_key: str | None = None
    fairness_key: str | None = None
    batch_item: str | None = None
    direct: bool = False
    after: str | None = field(default=None, compare=False, repr=False)
    id: str = ""
    # as headers have them, so that these alone are compared
    type: str | None = field(default=None, compare=False, repr=False)
    source: str | None = field(default=None, compare=False, repr=False)
    subject: str | None = field(default=None, compare=False, repr=False)
    dataschema: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_topic(self.topic)
        if not isinstance(self.body, bytes):
            raise InvalidInput("body", f"bytes, got {type(self.body).__name__}")
        if len(self.body) > MAX_BODY_BYTES:
            raise BodyTooLarge(len(self.body), MAX_BODY_BYTES)

        for name in ("partition_key", "dedup_key", "fairness_key"):
            check_text(name, getattr(self, name))
        if self.batch_item is not None:
            check_item(self.batch_item)
        if not isinstance(self.direct, bool):
            raise InvalidInput("direct", "true or false")
        if not isinstance(self.content_type, str) or not _CONTENT_TYPE.fullmatch(self.content_type):
            raise InvalidInput("content_type", "a media type of at most 255 ASCII characters")

        headers = self._with_attributes()
        object.__setattr__(self, "headers", _check_headers(headers) if headers else _NO_HEADERS)
        object.__setattr__(self, "delay", check_delay(self.delay))

        if self.id:
            parse_id(self.id)
            if self.after is not None and self.id <= parse_id(self.after, field="after"):
                raise InvalidInput("id", "an id that sorts above after")
        else:
            object.__setattr__(self, "id", new_id(self.after))

    def _with_attributes(self) -> Mapping[str, str]:
        """Return the headers with the event's attributes; set attributes that only headers give."""
        headers = self.headers or {}
        if not isinstance(headers, Mapping):
            return headers  # refused later

        for name, header in _ATTRIBUTES.items():
            value = getattr(self, name)
            if value is not None:
                if not isinstance(value, str):
                    raise InvalidInput(name, f"text, got {builtins.type(value).__name__}")
                if (expected := event_attributes.expected(name, value)) is not None:
                    raise InvalidInput(name, expected)
                if headers.get(header) != value:
                    # names of headers are the same in any case: the argument replaces all spellings
                    others = {k: v for k, v in headers.items() if str(k).lower() != header}
                    headers = others | {header: value}
                continue
            value = headers.get(header)
            # a header that is no valid attribute stays a header
            if isinstance(value, str) and event_attributes.expected(name, value) is None:
                object.__setattr__(self, name, value)

        return headers

    def with_content(
        self,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Message:
        """Return the message with other content; None: as it is.

        The attributes of its event are those of the headers.
        """
        return replace(
            self,
            body=self.body if body is None else body,
            headers=self.headers if headers is None else headers,
            content_type=self.content_type if content_type is None else content_type,
            # the new headers decide: an old argument would win over them
            type=None,
            source=None,
            subject=None,
            dataschema=None,
        )

    @property
    def time(self) -> datetime:
        """The id's time, UTC; the last that there is, where the id's year is beyond 9999."""
        return datetime.fromtimestamp(min(time_of(self.id), LAST_MS) / 1000, UTC)

    @property
    def due(self) -> int | None:
        """The time when a delayed message is due, in ms since 1970 UTC; None: it has no delay."""
        return time_of(self.id) + round(self.delay * 1000) if self.delay else None

    @property
    def shard_key(self) -> str:
        """The key that chooses the shard: the partition key, or the id without one."""
        return self.id if self.partition_key is None else self.partition_key


@dataclass(frozen=True, order=True, slots=True)
class MessageRef:
    """Names one message: topic, epoch, shard, id, and of a delayed one its due time (ms)."""

    topic: str
    epoch: int
    shard: int
    id: str
    due: int | None = None

    @property
    def place(self) -> Shard:
        """The shard in which the message lies."""
        return self.topic, self.epoch, self.shard

    def __str__(self) -> str:
        tail = "" if self.due is None else f"/{self.due}"
        return f"{self.topic}/{self.epoch}/{self.shard}/{self.id}{tail}"

    @classmethod
    def parse(cls, text: str) -> MessageRef:
        """Return the ref that `str` wrote.

        Raises:
            InvalidInput: the text is not `topic/epoch/shard/id` with `/due` for a delayed message.
        """
        parts = text.split("/") if isinstance(text, str) else []
        if len(parts) not in _REF_PARTS:
            raise InvalidInput("ref", "topic/epoch/shard/id, and /due for a delayed message")
        due = _whole("ref.due", parts[4]) if len(parts) == _REF_PARTS[1] else None
        return cls(
            check_topic(parts[0]),
            _whole("ref.epoch", parts[1]),
            _whole("ref.shard", parts[2]),
            parse_id(parts[3], field="ref.id"),
            due,
        )


def _whole(field_name: str, text: str) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,14}", text):
        raise InvalidInput(field_name, "a whole number without sign or leading zeros")
    return int(text)
