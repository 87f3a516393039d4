"""Other outboxes: the layouts of their rows, which of them wait, and how they leave."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import InvalidInput
from fairbox.model.ids import parse_id
from fairbox.model.messages import Message
from fairbox.tables.calls import Calls, Rows
from fairbox.tables.write_expressions import WriteExpressions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.tables.keys import Item

Value = str | int | float | bool | None
_VALUES: Final = (str, int, float, bool, type(None))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICKS_OF_EPOCH: Final = 621_355_968_000_000_000
"""Ticks of .NET, 100 ns since the year 1, at the beginning of 1970."""
_UNITS: Final = ((10**11, 10**9), (10**14, 10**6), (10**17, 1000))
"""Below a number, a time since 1970 is in seconds, in milliseconds, in microseconds; its ns."""


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """The layout of the rows of an outbox that a team has built, in a table of DynamoDB.

    Attributes:
        waiting: attributes and the values that they have in a row that was not sent yet; None: the
            row does not have the attribute.
        moved: attributes and the values that a row gets once its message is in Fairbox; None: the
            attribute is removed. `$iso`, `$s`, `$ms` and `$ticks` (of .NET) stand for the time.
            Without any, the row is deleted.
        body: attribute with the body: binary, text, or anything else, which becomes JSON.
        topic: attribute with the topic's name.
        to: the topic of all messages, in place of `topic`.
        id: attribute with the row's id: a UUIDv7 is the message's id too. Any other message gets
            one of the time of `created` and the row's key.
        partition_key, content_type: attributes with the message's field of this name.
        created: attribute with the time of the row: ISO 8601, or a number of s, ms, us since 1970
            or of ticks. Rows move in its order.
        headers: by name of a header (`ce-type` is the type of the event) the attribute with it.
        bag: attribute with more headers: a map, or a JSON object.

    Raises:
        InvalidInput: a field has an invalid value; the error names it.
    """

    waiting: Mapping[str, Value]
    moved: Mapping[str, Value] = field(default_factory=dict)
    body: str = "body"
    topic: str = ""
    to: str = ""
    id: str = ""
    partition_key: str = ""
    content_type: str = ""
    created: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    bag: str = ""

    def __post_init__(self) -> None:
        for name in ("waiting", "moved", "headers"):
            found = getattr(self, name)
            values = found.values() if isinstance(found, Mapping) else [found]
            if not all(isinstance(value, _VALUES) for value in values):
                raise InvalidInput(
                    name, "an object by names, of text, numbers, true, false or null"
                )

        if not self.waiting:
            raise InvalidInput("waiting", "one attribute or more, by which rows that wait are told")

        for name in (
            "body",
            "topic",
            "to",
            "id",
            "partition_key",
            "content_type",
            "created",
            "bag",
        ):
            if not isinstance(getattr(self, name), str):
                raise InvalidInput(name, "the name of an attribute")

        if not (self.topic or self.to):
            raise InvalidInput("topic", "an attribute with the topic's name, or a topic in `to`")

    @classmethod
    def brighter(cls) -> RowLayout:
        """Return the layout of Brighter's DynamoDB outbox, versions 9 and 10."""
        return cls(
            waiting={"DeliveryTime": None},
            # as Brighter marks what it has sent
            moved={"DeliveryTime": "$ticks", "DeliveredAt": "$iso", "OutstandingCreatedTime": None},
            body="Body",
            topic="Topic",
            id="MessageId",
            partition_key="PartitionKey",
            content_type="ContentType",
            created="CreatedTime",
            headers={
                "ce-type": "Type",
                "ce-source": "Source",
                "ce-subject": "Subject",
                "ce-dataschema": "DataSchema",
                "traceparent": "TraceParent",
                "tracestate": "TraceState",
                "baggage": "Baggage",
                "correlation-id": "CorrelationId",
                "message-type": "MessageType",
                "reply-to": "ReplyTo",
            },
            bag="HeaderBag",
        )

    @classmethod
    def of(cls, values: object) -> RowLayout:
        """Return the layout that a JSON object describes, by the names of the fields.

        Raises:
            InvalidInput: it is no object, has another field, or a field has an invalid value.
        """
        if not isinstance(values, Mapping):
            raise InvalidInput("layout", "a JSON object")

        known = {one.name for one in fields(cls)}
        for name in values:
            if name not in known:
                raise InvalidInput(str(name), f"one of the fields {', '.join(sorted(known))}")
        return cls(**{"waiting": {}, **values})

    def message(self, row: Item, key: Item, now: int) -> Message:
        """Return the message of a row.

        Args:
            row: as DynamoDB gives it.
            key: its key.
            now: the time in ms; its id's is no later.

        Raises:
            InvalidInput: a value that a message needs is missing or invalid; the error names the
                attribute.
            BodyTooLarge: over 64 MiB.
        """
        values = {name: _plain(value) for name, value in row.items()}
        body, media = _body(values.get(self.body), self.body)
        headers = dict(_bag(values.get(self.bag), self.bag)) if self.bag else {}
        headers |= {name: values.get(attribute) for name, attribute in self.headers.items()}

        topic = self.to or values.get(self.topic)
        if not isinstance(topic, str):
            raise InvalidInput(self.topic, "the topic's name as text")

        return Message(
            topic=topic,
            body=body,
            partition_key=_text(values.get(self.partition_key)) or None,
            content_type=_text(values.get(self.content_type)) or media,
            headers={name: text for name, value in headers.items() if (text := _text(value))},
            id=self._id(row, key, now),
        )

    def created_ns(self, row: Item) -> int:
        """Return the time of a row in ns since 1970; 0: it has none.

        Raises:
            InvalidInput: the attribute is no time.
        """
        if not self.created or self.created not in row:
            return 0

        value = _plain(row[self.created])
        if value is None:
            return 0

        try:
            # numbers may be written as text
            if isinstance(value, str) and not value.isdecimal():
                moment = datetime.fromisoformat(value)
                moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                return (moment - _EPOCH) // timedelta(microseconds=1) * 1000

            number = Decimal(value)
            for below, ns in _UNITS:
                if number < below:
                    return int(number * ns)
            return (int(number) - _TICKS_OF_EPOCH) * 100
        except (TypeError, ValueError, ArithmeticError):
            raise InvalidInput(self.created, "a time: ISO 8601, s, ms, us or ticks") from None

    def _id(self, row: Item, key: Item, now: int) -> str:
        # without one it is made of time and key: a row that is moved again gets the same id
        with suppress(InvalidInput, KeyError):
            return parse_id(_plain(row[self.id]))

        # an id of the future is refused, or its message is taken for young until then
        latest = now * 1_000_000
        ms, rest = divmod(max(0, min(self.created_ns(row) or latest, latest)), 1_000_000)
        # RFC 9562, 6.2, method 3: the first random bits are the fraction of the millisecond
        low = int.from_bytes(hashlib.sha256(text_of(key).encode()).digest()[:8], "big") >> 2
        high = (ms << 80) | (7 << 76) | ((rest * 4096 // 1_000_000) << 64)
        return str(uuid.UUID(int=high | (2 << 62) | low))


class OtherOutbox(Rows):
    """A table whose rows move into this outbox.

    Raises:
        UnknownTable: there is no such table.
    """

    def __init__(self, calls: Calls, table: str, layout: RowLayout) -> None:
        super().__init__(calls, table)
        self._layout = layout

        schema = calls.call("describe_table", TableName=table)["Table"]["KeySchema"]
        parts = sorted(schema, key=lambda part: part["KeyType"])  # the hash key first
        self._keys: list[str] = [part["AttributeName"] for part in parts]

    def waiting(self, topic: str | None) -> Iterator[tuple[Item, Item]]:
        """Yield the key of each row of a topic (None: any) that waits, and its key and time."""
        waits = self._waits()
        if topic is not None:
            waits.same("t", self._layout.topic, {"S": topic})

        # each once: the time may be the table's sort key
        wanted = dict.fromkeys(filter(None, (*self._keys, self._layout.created)))
        shown = {f"#k{n}": name for n, name in enumerate(wanted)}

        pages = self._calls.pages(
            "scan",
            TableName=self._table,
            ConsistentRead=True,
            FilterExpression=waits.condition,
            ProjectionExpression=", ".join(shown),
            ExpressionAttributeNames=waits.names | shown,
            **waits.bound,
        )
        for page in pages:
            for row in page["Items"]:
                yield {name: row[name] for name in self._keys}, row

    def get(self, key: Item) -> Item | None:
        """Return a row (consistent); None: it is gone."""
        return self._calls.get(self._table, key)

    def leaving(self, key: Item, now: int) -> dict[str, Any]:
        """Return the action that makes a row leave at a time (ms), if it still waits."""
        write = self._waits()
        # rows may wait by lacking an attribute, and one that is gone lacks all of them
        write.conditions.insert(0, "attribute_exists(#k)")
        write.names["#k"] = self._keys[0]

        for n, (attribute, value) in enumerate(self._layout.moved.items()):
            write.put(f"m{n}", attribute, _attribute(_at(value, now)))

        action = {"TableName": self._table, "Key": key, **write.expressions, **write.bound}
        return {"Update" if self._layout.moved else "Delete": action}

    def _waits(self) -> WriteExpressions:
        """Return the condition that a row waits."""
        waits = WriteExpressions()
        for n, (attribute, value) in enumerate(self._layout.waiting.items()):
            # some mappers, boto3's among them, write NULL where a value is missing
            if value is None:
                waits.names[f"#w{n}"] = attribute
                waits.values[":null"] = {"S": "NULL"}
                waits.conditions.append(
                    f"(attribute_not_exists(#w{n}) OR attribute_type(#w{n}, :null))"
                )
            else:
                waits.same(f"w{n}", attribute, _attribute(value))

        return waits


def text_of(key: Item) -> str:
    """Return a row's key as text."""
    return json.dumps(key, sort_keys=True, default=bytes.hex)


def _at(value: Value, now: int) -> Value:
    """Return a value, or the time for which it stands."""
    match value:
        case "$iso":
            moment = datetime.fromtimestamp(now / 1000, UTC)
            return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case "$s":
            return now // 1000
        case "$ms":
            return now
        case "$ticks":
            return now * 10_000 + _TICKS_OF_EPOCH
    return value


def _attribute(value: Value) -> dict[str, Any] | None:
    """Return a value as an attribute."""
    if value is None:
        return None
    if isinstance(value, bool):
        return {"BOOL": value}
    return {"S": value} if isinstance(value, str) else {"N": str(value)}


def _plain(attribute: Mapping[str, Any]) -> Any:
    """Return an attribute's value: numbers as Decimal, sets as lists."""
    ((kind, value),) = attribute.items()
    match kind:
        case "N":
            return Decimal(value)
        case "NS":
            return sorted(map(Decimal, value))
        case "NULL":
            return None
        case "M":
            return {name: _plain(part) for name, part in value.items()}
        case "L":
            return [_plain(part) for part in value]
    return sorted(value) if kind in ("SS", "BS") else value


def _body(value: Any, attribute: str) -> tuple[bytes, str]:
    """Return a body and its media type."""
    if value is None:
        raise InvalidInput(attribute, "the body")
    if isinstance(value, bytes):
        return value, "application/octet-stream"
    if not isinstance(value, str):
        return _json(value).encode(), "application/json"

    try:
        # no attribute says what the text is
        json.loads(value)
    except ValueError:
        return value.encode(), "text/plain; charset=utf-8"
    return value.encode(), "application/json"


def _bag(value: Any, attribute: str) -> Mapping[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = value
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InvalidInput(attribute, "a map, or a JSON object")
    return found


def _text(value: Any) -> str:
    """Return a value as text: JSON unless it is text already; nothing for none."""
    return value if isinstance(value, str) else "" if value is None else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_jsonable)


def _jsonable(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    raise InvalidInput("body", f"no {type(value).__name__} inside of other values")
