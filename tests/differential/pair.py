"""The in-memory engine and DynamoDB Local side by side: one request to both, answers compared."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Context, Decimal, InvalidOperation
from pprint import pformat
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ParamValidationError
from fairbox.dynamodb.definitions import batches_definition, table_definitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ITEMS = "differential-items"
NUMBERS = "differential-numbers"
OUTBOX, DELIVERIES, BATCHES = (
    f"differential-{name}" for name in ("outbox", "deliveries", "batches")
)
SHOWN = 400
"""Longest binary value that is printed whole, in bytes."""
_EXACT = Context(prec=60)
_SETS = frozenset({"SS", "NS", "BS"})


@dataclass(frozen=True, slots=True)
class Request:
    """One call of the low-level client."""

    method: str
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        return (
            f"client.{self.method}(**{pformat(short(self.arguments), width=96, sort_dicts=False)})"
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in a form that can be compared: sets and unordered lists are sorted.

    Attributes:
        body: of a call that succeeded; and of an error the fields beside `Error`.
        code: of an error; empty: none. `ParamValidationError` for what botocore refuses itself.
        message: of an error.
    """

    body: dict[str, Any] = field(default_factory=dict)
    code: str = ""
    message: str = ""

    def __repr__(self) -> str:
        shown = pformat(short(self.body), width=96, sort_dicts=False)
        return shown if not self.code else f"{self.code}: {self.message}\n{shown}"


def definitions() -> list[dict[str, Any]]:
    """Return `create_table` arguments: the library's tables, and two with other kinds of keys."""
    library = [
        *table_definitions(outbox=OUTBOX, deliveries=DELIVERIES),
        batches_definition(BATCHES),
    ]
    for definition in library:
        definition.pop("StreamSpecification", None)  # slow in DynamoDB Local, and not compared
    items = {
        "TableName": ITEMS,
        "KeySchema": _schema("pk", "sk"),
        "AttributeDefinitions": _types(pk="S", sk="S", q="S", k="N"),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "due",
                "KeySchema": _schema("q", "k"),
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["n", "m"]},
            },
            {
                "IndexName": "by_q",
                "KeySchema": _schema("q"),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            },
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }
    numbers = {
        "TableName": NUMBERS,
        "KeySchema": _schema("pk", "sk"),
        "AttributeDefinitions": _types(pk="B", sk="N", s="S"),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "by_s",
                "KeySchema": _schema("s", "sk"),
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }
    return [items, numbers, *library]


def _schema(hash_name: str, *range_names: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": hash_name, "KeyType": "HASH"},
        *({"AttributeName": name, "KeyType": "RANGE"} for name in range_names),
    ]


def _types(**kinds: str) -> list[dict[str, str]]:
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()]


class Pair:
    """Both engines with the same tables and, unless they differ, the same items."""

    def __init__(self, memory: Any, local: Any) -> None:
        self.memory = memory
        self.local = local
        self.requests = 0
        self.failed = False
        self._dirty = True  # an engine of the session may have the tables from another test
        self.tables: dict[str, dict[str, Any]] = {}
        known = local.list_tables()["TableNames"]
        for definition in definitions():
            self.tables[definition["TableName"]] = definition
            memory.create_table(**definition)
            if definition["TableName"] not in known:
                local.create_table(**definition)

    def begin(self, items: Mapping[str, Sequence[dict[str, Any]]]) -> None:
        """Empty both engines and put these items into both, by table."""
        for table in self.tables:
            for engine in (self.memory, self.local):
                found = (
                    _scan(engine, table)
                    if self._dirty
                    else self.memory.items(table)
                    if engine is self.local
                    else []
                )
                _write(engine, table, [{"DeleteRequest": {"Key": _key(i)}} for i in found])
            if not self._dirty:
                left = self.memory.items(table)
                _write(self.memory, table, [{"DeleteRequest": {"Key": _key(i)}} for i in left])
            for engine in (self.memory, self.local):
                _write(engine, table, [{"PutRequest": {"Item": i}} for i in items.get(table, ())])
        self._dirty = False

    def ask(self, request: Request) -> tuple[Answer, Answer]:
        """Make the call on both; the in-memory engine's answer first."""
        self.requests += 1
        return answer_of(self.memory, request), answer_of(self.local, request)

    def contents(self, table: str, index: str | None = None) -> tuple[list[Any], list[Any]]:
        """Return all items of a table, or of one of its indexes, in both."""
        place = {"ConsistentRead": True} if index is None else {"IndexName": index}
        found = [_scan(engine, table, **place) for engine in (self.memory, self.local)]
        mine, theirs = (ordered(canonical(items)) for items in found)
        return mine, theirs

    def indexes(self, table: str) -> list[str]:
        """Return the names of a table's indexes."""
        return [index["IndexName"] for index in self.tables[table]["GlobalSecondaryIndexes"]]

    def spoil(self) -> None:
        """Note that the engines may differ, so that the next `begin` looks at both."""
        self._dirty = True


def _key(item: dict[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in ("pk", "sk")}


def _scan(engine: Any, table: str, **place: Any) -> list[dict[str, Any]]:
    """Return all items, over pages of 1 MB: each engine has its own order."""
    page = engine.scan(TableName=table, **place)
    items: list[dict[str, Any]] = page["Items"]
    while start := page.get("LastEvaluatedKey"):
        page = engine.scan(TableName=table, ExclusiveStartKey=start, **place)
        items += page["Items"]
    return items


def _write(engine: Any, table: str, entries: list[dict[str, Any]]) -> None:
    for start in range(0, len(entries), 25):
        engine.batch_write_item(RequestItems={table: entries[start : start + 25]})


def answer_of(engine: Any, request: Request) -> Answer:
    """Make the call on one engine."""
    try:
        response = getattr(engine, request.method)(**request.arguments)
    except ParamValidationError as error:
        return Answer(code="ParamValidationError", message=str(error))
    except ClientError as error:
        whole: Any = error.response
        rest = {k: v for k, v in whole.items() if k in ("Item", "CancellationReasons")}
        return Answer(canonical(rest), whole["Error"]["Code"], whole["Error"].get("Message", ""))
    response = canonical({k: v for k, v in response.items() if k != "ResponseMetadata"})
    if request.method == "scan" and "Items" in response:
        response["Items"] = ordered(response["Items"])  # each engine has its own order of hashes
    if request.method == "batch_get_item":
        response["Responses"] = {t: ordered(i) for t, i in response["Responses"].items()}
    if isinstance(response.get("ConsumedCapacity"), list):
        response["ConsumedCapacity"] = ordered(response["ConsumedCapacity"])
    return Answer(response)


def short(value: Any) -> Any:
    """Return a copy to print, in which long binary values stand as their beginnings and sizes."""
    if isinstance(value, dict):
        return {key: short(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [short(inner) for inner in value]
    long = isinstance(value, bytes) and len(value) > SHOWN
    return f"{value[:1]!r} and so on, {len(value)} bytes" if long else value


def canonical(value: Any) -> Any:
    """Return a copy of which equal attribute values are equal: sets in one order."""
    if isinstance(value, dict):
        return {
            key: sorted(inner) if key in _SETS and isinstance(inner, list) else canonical(inner)
            for key, inner in value.items()
        }
    return [canonical(inner) for inner in value] if isinstance(value, list) else value


def plain_numbers(value: Any) -> Any:
    """Return a copy with every number in its normal form."""
    if isinstance(value, list):
        return [plain_numbers(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"N"} and isinstance(value["N"], str):
        return {"N": _normal(value["N"])}
    if value.keys() == {"NS"} and isinstance(value["NS"], list):
        return {"NS": sorted(map(_normal, value["NS"]))}
    return {key: plain_numbers(inner) for key, inner in value.items()}


def _normal(text: str) -> str:
    try:
        number = Decimal(text).normalize(_EXACT)
    except InvalidOperation:  # of a value that the service refuses
        return text
    return format(number or Decimal(0), "f")


def ordered(values: Iterable[Any]) -> list[Any]:
    """Return values in an order that both engines share."""
    return sorted(values, key=lambda value: json.dumps(value, sort_keys=True, default=repr))


def tables_of(request: Request) -> set[str]:
    """Return the names of the tables that a request names."""
    text = repr(request.arguments)
    return {name for name in (ITEMS, NUMBERS, OUTBOX, DELIVERIES, BATCHES) if name in text}
