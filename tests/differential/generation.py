"""Requests at random on the tables of the pair, and the library's own with changed values."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.differential.expressions import (
    ATTRIBUTES,
    Draft,
    KeyValues,
    condition,
    key_condition,
    projection,
    update,
)
from tests.differential.pair import ITEMS, NUMBERS, Request, plain_numbers, short
from tests.differential.recording import Recorded, recorded
from tests.differential.values import ANY, LARGE, mostly, value_of

Item = dict[str, Any]

_TEXT_KEYS = KeyValues(
    st.sampled_from([{"S": "a"}, {"S": "b"}]), st.sampled_from([{"S": s} for s in "123"])
)
_BAD_TEXT_KEYS = st.sampled_from(
    [{"S": ""}, {"N": "1"}, {"S": "x" * 2049}, {"S": "x" * 1025}, {"B": b"a"}, {"SS": ["a"]}]
)
_OTHER_KEYS = KeyValues(
    st.sampled_from([{"B": b"\x00"}, {"B": b"\xff"}]),
    st.sampled_from([{"N": n} for n in ("1", "10", "9", "-1", "1.0", "1e1", "0.5")]),
)
_BAD_OTHER_KEYS = st.sampled_from(
    [{"B": b""}, {"S": "1"}, {"N": "x"}, {"B": b"x" * 2049}, {"N": "1" * 39}]
)


@dataclass(frozen=True)
class Shape:
    """A table: the values of its keys, and its indexes with their keys and projections."""

    name: str
    keys: KeyValues
    bad: st.SearchStrategy[Any]
    indexes: dict[str, tuple[str, str | None, KeyValues]]


_DUE = KeyValues(value_of("S"), value_of("N"))
SHAPES = (
    Shape(ITEMS, _TEXT_KEYS, _BAD_TEXT_KEYS, {"due": ("q", "k", _DUE), "by_q": ("q", None, _DUE)}),
    Shape(
        NUMBERS,
        _OTHER_KEYS,
        _BAD_OTHER_KEYS,
        {"by_s": ("s", "sk", KeyValues(value_of("S"), _OTHER_KEYS.range_values))},
    ),
)


@dataclass(frozen=True)
class Case:
    """Items that both engines begin with, and the requests to make on them."""

    before: dict[str, list[Item]]
    requests: list[Request]

    def __repr__(self) -> str:
        return f"Case(\nbefore={short(self.before)!r},\nrequests={self.requests!r})"


@st.composite
def cases(draw: Any) -> Case:
    """Return free requests on two tables; what the library sends has no part in the draws."""
    before = {
        shape.name: draw(st.lists(items(shape, good=True), max_size=4, unique_by=_identity))
        for shape in SHAPES
    }
    return Case(before, draw(st.lists(requests(), min_size=1, max_size=8)))


def _identity(item: Item) -> str:
    """Return a text that two items with the same key share."""
    return repr([plain_numbers(item.get(name)) for name in ("pk", "sk")])


@st.composite
def keys(draw: Any, shape: Shape, *, good: bool = False) -> Item:
    """Return a key; once of thirty one that is refused."""
    key = {"pk": draw(shape.keys.hash_values), "sk": draw(shape.keys.range_values)}
    if good or draw(st.integers(0, 29)) != 29:
        return key
    match draw(st.integers(0, 3)):
        case 0:
            del key[draw(st.sampled_from(["pk", "sk"]))]
        case 1:
            key["more"] = {"S": "x"}
        case _:
            key[draw(st.sampled_from(["pk", "sk"]))] = draw(shape.bad)
    return key


@st.composite
def items(draw: Any, shape: Shape, *, good: bool = False) -> Item:
    """Return an item, whose attributes mostly have their usual kinds."""
    item: Item = dict(draw(keys(shape, good=good)))
    names = draw(st.lists(st.sampled_from(sorted(ATTRIBUTES)), max_size=6, unique=True))
    for name in names:
        usual = value_of(ATTRIBUTES[name])
        if name in ("q", "s"):
            usual = st.sampled_from([{"S": "a"}, {"S": "b"}, {"S": "c"}])
        item[name] = draw(usual if good else mostly(usual, ANY))
    if not good and draw(st.integers(0, 19)) == 19:
        item["b"] = draw(LARGE)
    return item


@st.composite
def requests(draw: Any) -> Request:
    """Return one request of any operation."""
    make = draw(
        st.sampled_from(
            [
                _put, _put, _update, _update, _update, _delete, _get, _query, _query, _query,
                _scan, _batch_get, _batch_write, _transact_write, _transact_write, _transact_get,
                _statements, _statements,
            ]
        )
    )  # fmt: skip
    draft = Draft(draw)
    shape = SHAPES[1] if draft.chance(3) else SHAPES[0]
    request: Request = make(draft, shape)
    if draft.chance(60):
        return _to_no_table(request)
    return request


def _to_no_table(request: Request) -> Request:
    arguments = copy.deepcopy(request.arguments)
    if "TableName" in arguments:
        arguments["TableName"] = "differential-none"
    return Request(request.method, arguments)


def _capacity(draft: Draft) -> dict[str, str]:
    mode = draft.one([None, "INDEXES", "TOTAL", "NONE"])
    return {} if mode is None else {"ReturnConsumedCapacity": mode}


def _guard(draft: Draft) -> dict[str, Any]:
    """Return a condition and what is shown when it fails, in half of the writes."""
    if draft.chance(2):
        return {}
    shown = draft.one([None, "ALL_OLD", "NONE"])
    more = {} if shown is None else {"ReturnValuesOnConditionCheckFailure": shown}
    return {"ConditionExpression": condition(draft), **more}


def _write(draft: Draft, shape: Shape, kind: str) -> dict[str, Any]:
    """Return a write as a single call and as an action of a transaction have it."""
    arguments: dict[str, Any] = {"TableName": shape.name}
    if kind == "Put":
        arguments["Item"] = draft.draw(items(shape))
    else:
        arguments["Key"] = draft.draw(keys(shape))
    if kind == "Update" and not draft.chance(20):
        arguments["UpdateExpression"] = update(draft)
    guard = _guard(draft) if kind != "ConditionCheck" else {"ConditionExpression": condition(draft)}
    return {**arguments, **guard, **draft.arguments()}


def _put(draft: Draft, shape: Shape) -> Request:
    returned = draft.one([{}, {"ReturnValues": "ALL_OLD"}, {"ReturnValues": "NONE"}])
    return Request("put_item", {**_write(draft, shape, "Put"), **returned, **_capacity(draft)})


def _update(draft: Draft, shape: Shape) -> Request:
    kinds = ["NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"]
    returned = {"ReturnValues": draft.one(kinds)}
    return Request(
        "update_item", {**_write(draft, shape, "Update"), **returned, **_capacity(draft)}
    )


def _delete(draft: Draft, shape: Shape) -> Request:
    returned = draft.one([{}, {"ReturnValues": "ALL_OLD"}, {"ReturnValues": "ALL_NEW"}])
    return Request(
        "delete_item", {**_write(draft, shape, "Delete"), **returned, **_capacity(draft)}
    )


def _shown(draft: Draft) -> dict[str, str]:
    return {"ProjectionExpression": projection(draft)} if draft.chance(3) else {}


def _get(draft: Draft, shape: Shape) -> Request:
    arguments = {"TableName": shape.name, "Key": draft.draw(keys(shape))}
    shown = _shown(draft)
    consistent = draft.one([{}, {"ConsistentRead": True}])
    names = {k: v for k, v in draft.arguments().items() if k == "ExpressionAttributeNames"}
    return Request("get_item", {**arguments, **shown, **consistent, **names, **_capacity(draft)})


def _page(draft: Draft) -> dict[str, Any]:
    page: dict[str, Any] = _shown(draft)
    if draft.chance(3):
        page["FilterExpression"] = condition(draft, 1)
    if draft.chance(5):
        page["Select"] = draft.one(
            ["COUNT", "ALL_ATTRIBUTES", "SPECIFIC_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES"]
        )
    if draft.chance(5):
        page["ConsistentRead"] = True
    return page


def _query(draft: Draft, shape: Shape) -> Request:
    arguments: dict[str, Any] = {"TableName": shape.name}
    if draft.chance(3):
        name = draft.one(sorted(shape.indexes))
        arguments["IndexName"] = name if not draft.chance(20) else "none"
        hash_name, range_name, values = shape.indexes[name]
    else:
        hash_name, range_name, values = "pk", "sk", shape.keys
    if draft.chance(20):
        hash_name = "n"
    text = key_condition(draft, hash_name, range_name, values)
    page = {"KeyConditionExpression": text, **_page(draft)}
    if draft.chance(3):
        page["ScanIndexForward"] = False
    if draft.chance(3):
        page["Limit"] = draft.draw(st.integers(1, 3))
    if draft.chance(6) and "IndexName" not in arguments:
        page["ExclusiveStartKey"] = draft.draw(keys(shape))
    return Request("query", {**arguments, **page, **draft.arguments(), **_capacity(draft)})


def _scan(draft: Draft, shape: Shape) -> Request:
    arguments: dict[str, Any] = {"TableName": shape.name}
    if draft.chance(3):
        arguments["IndexName"] = draft.one(sorted(shape.indexes))
    if draft.chance(10):
        arguments |= draft.one(
            [{"Segment": 0}, {"TotalSegments": 2}, {"Segment": 2, "TotalSegments": 2}]
        )
    return Request("scan", {**arguments, **_page(draft), **draft.arguments(), **_capacity(draft)})


def _batch_get(draft: Draft, shape: Shape) -> Request:
    wanted = draft.draw(st.lists(keys(shape), min_size=1, max_size=4))
    part: dict[str, Any] = {"Keys": wanted, **_shown(draft)}
    if draft.chance(3):
        part["ConsistentRead"] = True
    names = {k: v for k, v in draft.arguments().items() if k == "ExpressionAttributeNames"}
    return Request(
        "batch_get_item", {"RequestItems": {shape.name: part | names}, **_capacity(draft)}
    )


def _batch_write(draft: Draft, shape: Shape) -> Request:
    entry = st.one_of(
        items(shape).map(lambda item: {"PutRequest": {"Item": item}}),
        keys(shape).map(lambda key: {"DeleteRequest": {"Key": key}}),
    )
    entries = draft.draw(st.lists(entry, min_size=1, max_size=4))
    return Request("batch_write_item", {"RequestItems": {shape.name: entries}, **_capacity(draft)})


def _transact_write(draft: Draft, shape: Shape) -> Request:
    actions = []
    for _ in range(draft.draw(st.integers(1, 4))):
        kind = draft.one(["Put", "Update", "Delete", "ConditionCheck"])
        action = _write(Draft(draft.draw), shape, kind)
        if kind == "Update" and "UpdateExpression" not in action:
            action["UpdateExpression"] = "REMOVE gone"  # botocore asks for one here
        actions.append({kind: action})
    return Request("transact_write_items", {"TransactItems": actions, **_capacity(draft)})


def _transact_get(draft: Draft, shape: Shape) -> Request:
    gets = []
    for _ in range(draft.draw(st.integers(1, 3))):
        inner = Draft(draft.draw)
        get = {"TableName": shape.name, "Key": draft.draw(keys(shape)), **_shown(inner)}
        names = {k: v for k, v in inner.arguments().items() if k == "ExpressionAttributeNames"}
        gets.append({"Get": get | names})
    return Request("transact_get_items", {"TransactItems": gets, **_capacity(draft)})


def _statements(draft: Draft, shape: Shape) -> Request:
    distinct = st.lists(keys(shape), min_size=1, max_size=3, unique_by=_identity)
    entries = [_statement(draft, shape, key) for key in draft.draw(distinct)]
    return Request("batch_execute_statement", {"Statements": entries, **_capacity(draft)})


def _statement(draft: Draft, shape: Shape, key: Item) -> dict[str, Any]:
    """Return an update or delete in the forms that the library writes.

    The keys of one call differ: DynamoDB refuses a repeated key as a whole, DynamoDB Local after it
    has carried out the statements.
    """
    parameters: list[Any] = []

    def parameter(strategy: st.SearchStrategy[Any]) -> str:
        parameters.append(draft.draw(strategy))
        return "?"

    kinds = {name: kind for name, kind in ATTRIBUTES.items() if name != "a-b"}
    verb, clauses = f'DELETE FROM "{shape.name}"', ""  # noqa: S608 - a constant
    if not draft.chance(3):
        verb = f'UPDATE "{shape.name}"'
        names = draft.draw(
            st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=3, unique=True)
        )
        for name in names:
            if draft.chance(3):
                clauses += f' REMOVE "{name}"'
            elif draft.chance(4):
                clauses += f' SET "{name}" = "{name}" + {parameter(value_of("N"))}'
            else:
                clauses += f' SET "{name}" = {parameter(mostly(value_of(kinds[name]), ANY))}'
    wheres = [f'"{name}" = {parameter(st.just(value))}' for name, value in key.items()]
    for _ in range(draft.draw(st.integers(0, 2))):
        name = draft.one(sorted(kinds))
        wheres.append(
            draft.one([f'"{name}" IS MISSING', f'"{name}" IS NOT MISSING', f'"{name}" = '])
        )
        if wheres[-1].endswith("= "):
            wheres[-1] += parameter(value_of(kinds[name]))
    entry = {"Statement": " ".join([verb + clauses, "WHERE", " AND ".join(wheres)])}
    shown = draft.one([None, "ALL_OLD", "NONE"])
    more = {} if shown is None else {"ReturnValuesOnConditionCheckFailure": shown}
    return {**entry, "Parameters": parameters, **more}


@st.composite
def library_cases(draw: Any) -> Case:
    """Return one of the library's requests as it was, then again with a few values changed."""
    by_shape = recorded()
    samples = by_shape[draw(st.sampled_from(sorted(by_shape)))]
    sample: Recorded = draw(st.sampled_from(samples))
    arguments = copy.deepcopy(sample.request.arguments)
    places = list(_places(arguments))
    changed = [sample.request] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 2))):
        holder, name = draw(st.sampled_from(places)) if places else ({}, "")
        if places:
            kind = next(iter(holder[name]))
            holder[name] = draw(mostly(value_of(kind), ANY))
    again = Request(sample.request.method, arguments | _capacity(Draft(draw)))
    count = draw(st.integers(1, 2))
    return Case(sample.before, [*changed, *([again] * count)])


def _places(value: Any) -> Any:
    """Yield where attribute values stand in the arguments: their holder and name there."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in entries:
        if isinstance(inner, dict) and len(inner) == 1 and next(iter(inner)) in _KINDS:
            yield value, name
        elif isinstance(inner, dict | list):
            yield from _places(inner)


_KINDS = frozenset({"S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "L", "M"})
