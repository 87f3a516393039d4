"""The known differences of DynamoDB Local, by name: where it is not DynamoDB.

The in-memory engine stands where AWS stands, so where both differ and the documentation decides for
it, the difference has a name here. A name whose example no longer differs fails the test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.differential.pair import (
    ITEMS,
    NUMBERS,
    Answer,
    Request,
    definitions,
    plain_numbers,
)
from tests.differential.values import deep

if TYPE_CHECKING:
    from collections.abc import Callable

Pair = tuple[Answer, Answer]


@dataclass(frozen=True)
class Difference:
    """One way in which the engines differ.

    Attributes:
        name: of the difference.
        reason: why the in-memory engine is right, and its source.
        level: makes two answers equal in this respect, if the difference explains it.
        example: requests whose last one shows it.
    """

    name: str
    reason: str
    level: Callable[[Request, Answer, Answer], Pair]
    example: tuple[Request, ...]


def levelled(request: Request, ours: Answer, theirs: Answer) -> tuple[Answer, Answer, set[str]]:
    """Take the known differences out of two answers; return them and the names that applied."""
    applied = set()
    for difference in DIFFERENCES:
        before = (ours, theirs)
        ours, theirs = difference.level(request, ours, theirs)
        if (ours, theirs) != before:
            applied.add(difference.name)
    return ours, theirs, applied


def _numbers(_request: Request, ours: Answer, theirs: Answer) -> Pair:
    return ours, replace(theirs, body=plain_numbers(theirs.body))


def _without_capacity(ours: Answer, theirs: Answer) -> Pair:
    bodies = [
        {key: value for key, value in answer.body.items() if key != "ConsumedCapacity"}
        for answer in (ours, theirs)
    ]
    return replace(ours, body=bodies[0]), replace(theirs, body=bodies[1])


def _capacity_of(*methods: str) -> Callable[[Request, Answer, Answer], Pair]:
    def level(request: Request, ours: Answer, theirs: Answer) -> Pair:
        differ = ours.body.get("ConsumedCapacity") != theirs.body.get("ConsumedCapacity")
        if request.method in methods and differ:
            return _without_capacity(ours, theirs)
        return ours, theirs

    return level


def _empty_page(request: Request, ours: Answer, theirs: Answer) -> Pair:
    consumed = theirs.body.get("ConsumedCapacity")
    empty = theirs.body.get("ScannedCount") == 0
    if request.method in ("query", "scan") and empty and consumed and not consumed["CapacityUnits"]:
        return _without_capacity(ours, theirs)
    return ours, theirs


def _missing_keys(request: Request, ours: Answer, theirs: Answer) -> Pair:
    if request.method != "batch_get_item" or ours.code or theirs.code:
        return ours, theirs
    asked = sum(len(part["Keys"]) for part in request.arguments["RequestItems"].values())
    found = sum(len(items) for items in theirs.body["Responses"].values())
    if found < asked and "ConsumedCapacity" in theirs.body:
        return _without_capacity(ours, theirs)
    return ours, theirs


def _reasons(_request: Request, ours: Answer, theirs: Answer) -> Pair:
    def plain(answer: Answer) -> Answer:
        reasons = answer.body.get("CancellationReasons")
        if reasons is None:
            return answer
        bare = [
            {k: v for k, v in reason.items() if k != "Message" or reason["Code"] == "None"}
            for reason in reasons
        ]
        return replace(answer, body={**answer.body, "CancellationReasons": bare})

    return plain(ours), plain(theirs)


def _token(_request: Request, ours: Answer, theirs: Answer) -> Pair:
    if ours.code == theirs.code == "IdempotentParameterMismatchException":
        return replace(ours, message=""), replace(theirs, message="")
    return ours, theirs


def _table(_request: Request, ours: Answer, theirs: Answer) -> Pair:
    if ours.code == theirs.code == "ResourceNotFoundException":
        return replace(ours, message=""), replace(theirs, message="")
    return ours, theirs


def _statements(request: Request, ours: Answer, theirs: Answer) -> Pair:
    def plain(answer: Answer) -> Answer:
        bare = [
            {"Error": {"Code": part["Error"]["Code"]}}
            if part.get("Error", {}).get("Code") == "ValidationError"
            else part
            for part in answer.body.get("Responses", [])
        ]
        return replace(answer, body={**answer.body, "Responses": bare})

    if request.method != "batch_execute_statement" or ours.code or theirs.code:
        return ours, theirs
    return plain(ours), plain(theirs)


def _batched_deletes(request: Request, ours: Answer, theirs: Answer) -> Pair:
    if request.method != "batch_write_item" or ours.code or theirs.code:
        return ours, theirs
    return _without_capacity(ours, theirs) if "DeleteRequest" in repr(request) else (ours, theirs)


def _half_keys(request: Request, ours: Answer, theirs: Answer) -> Pair:
    differ = ours.body.get("ConsumedCapacity") != theirs.body.get("ConsumedCapacity")
    if (
        not differ
        or ours.code
        or request.method
        not in (
            "put_item",
            "update_item",
            "batch_write_item",
        )
    ):
        return ours, theirs
    if request.method == "update_item" or any(map(_is_half, _items(request))):
        return _without_index_units(ours, theirs)
    return ours, theirs


def _items(request: Request) -> list[dict[str, Any]]:
    if request.method == "put_item":
        return [request.arguments["Item"]]
    entries = [e for part in request.arguments["RequestItems"].values() for e in part]
    return [entry["PutRequest"]["Item"] for entry in entries if "PutRequest" in entry]


def _is_half(item: dict[str, Any]) -> bool:
    """Whether an item has one key of an index and lacks the other."""
    return any(0 < len(names & item.keys()) < len(names) for names in _INDEX_KEYS)


def _without_index_units(ours: Answer, theirs: Answer) -> Pair:
    """Leave the units of the table itself, where they are reported apart."""

    def table(answer: Answer) -> Answer:
        consumed = answer.body["ConsumedCapacity"]
        units = [c.get("Table") for c in (consumed if isinstance(consumed, list) else [consumed])]
        return replace(answer, body={**answer.body, "ConsumedCapacity": units})

    return table(ours), table(theirs)


def _unasked(request: Request, ours: Answer, theirs: Answer) -> Pair:
    asked = request.arguments.get("ReturnConsumedCapacity", "NONE") != "NONE"
    if request.method != "delete_item" or asked:
        return ours, theirs
    return _without_capacity(ours, theirs)


def _refused_whole(request: Request, ours: Answer, theirs: Answer) -> Pair:
    """Take a refusal of the whole and a cancellation with a ValidationError for the same."""
    codes = {ours.code, theirs.code}
    if not request.method.startswith("transact") or codes != {
        "ValidationException",
        "TransactionCanceledException",
    }:
        return ours, theirs
    cancelled = ours if ours.code == "TransactionCanceledException" else theirs
    reasons = {reason["Code"] for reason in cancelled.body.get("CancellationReasons", [])}
    repeated = "multiple operations on one item" in ours.message
    if not reasons or "ValidationError" in reasons or repeated:
        return theirs, theirs
    return ours, theirs


def _index_keys(request: Request, ours: Answer, theirs: Answer) -> Pair:
    writes = ("transact_write_items", "update_item", "batch_execute_statement")
    if request.method not in writes or theirs.code:
        return ours, theirs
    errors = [part.get("Error", {}) for part in ours.body.get("Responses", [])]
    reasons = [*ours.body.get("CancellationReasons", []), *errors, {"Message": ours.message}]
    named = ("for Index Key", "IndexKey:")
    refused = any(word in reason.get("Message", "") for reason in reasons for word in named)
    return (theirs, theirs) if refused else (ours, theirs)


def _depth(request: Request, ours: Answer, theirs: Answer) -> Pair:
    refused = ours.message.startswith("Nesting Levels")
    if request.method == "batch_execute_statement" and refused:
        return theirs, theirs
    return ours, theirs


def _operand_depth(_request: Request, ours: Answer, theirs: Answer) -> Pair:
    refused = ours.message.startswith("Nesting Levels")
    return (theirs, theirs) if refused and theirs.code != "ValidationException" else (ours, theirs)


def _end_of_range(_request: Request, ours: Answer, theirs: Answer) -> Pair:
    if "LastEvaluatedKey" in ours.body and "LastEvaluatedKey" not in theirs.body:
        rest = {k: v for k, v in ours.body.items() if k != "LastEvaluatedKey"}
        return replace(ours, body=rest), theirs
    return ours, theirs


def _start_at_bound(request: Request, ours: Answer, theirs: Answer) -> Pair:
    refused = theirs.message.endswith("starting key does not match the range key predicate")
    if request.method == "query" and refused and ours.body.get("ScannedCount") == 0:
        return theirs, theirs
    return ours, theirs


def _long_start(request: Request, ours: Answer, theirs: Answer) -> Pair:
    refused = "has exceeded the size limit" in ours.message
    return (
        (theirs, theirs) if refused and "ExclusiveStartKey" in request.arguments else (ours, theirs)
    )


def _order_of_checks(_request: Request, ours: Answer, theirs: Answer) -> Pair:
    other = {"ResourceNotFoundException", "IdempotentParameterMismatchException"}
    codes = {ours.code, theirs.code}
    late = "part of the key" in ours.message and theirs.code == "ConditionalCheckFailedException"
    if late or ("ValidationException" in codes and codes & other):
        return theirs, theirs
    return ours, theirs


def _equal_numbers(request: Request, ours: Answer, theirs: Answer) -> Pair:
    repeated = ("contains duplicates", "multiple operations on one item")
    if request.method in _MANY_KEYS and ours.message.endswith(repeated):
        return theirs, theirs
    return ours, theirs


_MANY_KEYS = {
    "batch_execute_statement",
    "batch_get_item",
    "batch_write_item",
    "transact_get_items",
    "transact_write_items",
}


def _put(item: dict[str, Any]) -> Request:
    return Request("put_item", {"TableName": ITEMS, "Item": {**KEY, **item}})


KEY = {"pk": {"S": "a"}, "sk": {"S": "1"}}


def _range(condition: str, **more: Any) -> Request:
    values = {":p": KEY["pk"], ":v": KEY["sk"]}
    arguments = {
        "TableName": ITEMS,
        "KeyConditionExpression": f"pk = :p AND {condition}",
        "ExpressionAttributeValues": values,
        **more,
    }
    return Request("query", arguments)


_INDEX_KEYS = [
    {key["AttributeName"] for key in index["KeySchema"]}
    for definition in definitions()
    for index in definition["GlobalSecondaryIndexes"]
]
_DELETE = f'DELETE FROM "{ITEMS}" WHERE "pk" = ? AND "sk" = ?'  # noqa: S608 - a constant
_UPDATE = f'UPDATE "{ITEMS}" SET "l" = ? WHERE "pk" = ? AND "sk" = ?'  # noqa: S608 - a constant
_TOKEN = {"ClientRequestToken": "differential"}
_CONDITION = {"ConditionExpression": "attribute_exists(pk)"}
INDEXES = {"ReturnConsumedCapacity": "INDEXES"}

INDEX_KEYS = "index keys that an update writes"
DEPTH = "depth of a statement's values"
OPERAND_DEPTH = "depth of an operand"
EQUAL_NUMBERS = "repeated keys that are equal numbers"
DIVERGING = frozenset({INDEX_KEYS, DEPTH, OPERAND_DEPTH, EQUAL_NUMBERS})
"""The differences after which the engines may hold different items."""

DIFFERENCES = (
    Difference(
        "numbers in documents",
        "DynamoDB stores and returns every number in one form (developer guide, data types); "
        "DynamoDB Local keeps the text of a number in a document, and of one set by PartiQL.",
        _numbers,
        (
            _put({"l": {"L": [{"N": "1.50"}]}}),
            Request("get_item", {"TableName": ITEMS, "Key": KEY}),
        ),
    ),
    Difference(
        "units of transactions",
        "A transactional write costs 2 units a KB, a read 2 (developer guide, transactions); "
        "DynamoDB Local reports those of plain calls, and doubles those of indexes.",
        _capacity_of("transact_write_items", "transact_get_items"),
        (
            Request(
                "transact_write_items",
                {"TransactItems": [{"Put": {"TableName": ITEMS, "Item": KEY}}] * 1, **INDEXES},
            ),
        ),
    ),
    Difference(
        "units of statements",
        "BatchExecuteStatement reports ConsumedCapacity by table (API reference); DynamoDB Local "
        "reports none.",
        _capacity_of("batch_execute_statement"),
        (
            Request(
                "batch_execute_statement",
                {
                    "Statements": [
                        {
                            "Statement": _DELETE,
                            "Parameters": list(KEY.values()),
                        }
                    ],
                    **INDEXES,
                },
            ),
        ),
    ),
    Difference(
        "units of empty pages",
        "A query that finds nothing costs the smallest read (developer guide, read consumption); "
        "DynamoDB Local reports 0.",
        _empty_page,
        (Request("scan", {"TableName": ITEMS, **INDEXES}),),
    ),
    Difference(
        "units of missing keys",
        "A key without an item costs the smallest read (developer guide, read consumption); "
        "DynamoDB Local reports 0 in BatchGetItem.",
        _missing_keys,
        (Request("batch_get_item", {"RequestItems": {ITEMS: {"Keys": [KEY]}}, **INDEXES}),),
    ),
    Difference(
        "units of batched deletes",
        "Deleting an item that is not there costs 1 unit (developer guide, write consumption); "
        "DynamoDB Local reports 2 in BatchWriteItem, and 1 alone.",
        _batched_deletes,
        (
            Request(
                "batch_write_item",
                {"RequestItems": {ITEMS: [{"DeleteRequest": {"Key": KEY}}]}, **INDEXES},
            ),
        ),
    ),
    Difference(
        "units of half an index key",
        "An item without all keys of an index has no entry there, and its change costs nothing "
        "(developer guide, secondary indexes); DynamoDB Local reports 1 unit if an item that had "
        "the one key gets the other in its place.",
        _half_keys,
        (
            _put({"k": {"N": "1"}}),
            Request(
                "put_item",
                {"TableName": ITEMS, "Item": {**KEY, "q": {"S": "a"}}, **INDEXES},
            ),
        ),
    ),
    Difference(
        "units nobody asked for",
        "ConsumedCapacity comes when it is asked for (API reference); DynamoDB Local reports it of "
        "a delete without an item.",
        _unasked,
        (Request("delete_item", {"TableName": ITEMS, "Key": KEY}),),
    ),
    Difference(
        "refusals of a transaction, whole or by action",
        "DynamoDB refuses the whole for repeated items (API reference) and cancels it, with the "
        "reason ValidationError, for updates that an item does not admit (aws-sdk-net#1292) and "
        "for keys of another type (dynamodb-conformance#46, #60, recorded on AWS); DynamoDB Local "
        "looks at conditions before repeated items, and refuses the whole for some updates and "
        "reads. Nothing is written either way.",
        _refused_whole,
        (
            Request(
                "transact_write_items",
                {
                    "TransactItems": [
                        {
                            "Update": {
                                "TableName": ITEMS,
                                "Key": KEY,
                                "UpdateExpression": "SET x = gone",
                            }
                        }
                    ]
                },
            ),
        ),
    ),
    Difference(
        INDEX_KEYS,
        "An index key of another type, or an empty one, is refused (developer guide, secondary "
        "indexes); DynamoDB Local lets updates write it.",
        _index_keys,
        (
            Request(
                "transact_write_items",
                {
                    "TransactItems": [
                        {
                            "Update": {
                                "TableName": ITEMS,
                                "Key": KEY,
                                "UpdateExpression": "SET q = :v",
                                "ExpressionAttributeValues": {":v": {"N": "1"}},
                            }
                        }
                    ]
                },
            ),
        ),
    ),
    Difference(
        DEPTH,
        "A value over 32 levels deep is refused (developer guide, quotas); DynamoDB Local inserts "
        "it by PartiQL, and looks for the item before it refuses an update.",
        _depth,
        (
            Request(
                "batch_execute_statement",
                {
                    "Statements": [
                        {"Statement": _UPDATE, "Parameters": [deep(32), *KEY.values()]},
                    ]
                },
            ),
        ),
    ),
    Difference(
        OPERAND_DEPTH,
        "A value over 32 levels deep is refused (developer guide, quotas); DynamoDB Local compares "
        "operands of one level more, which no item may hold.",
        _operand_depth,
        (
            Request(
                "delete_item",
                {
                    "TableName": ITEMS,
                    "Key": KEY,
                    "ConditionExpression": "l = :v",
                    "ExpressionAttributeValues": {":v": deep(32)},
                },
            ),
        ),
    ),
    Difference(
        "end of a range",
        "A LastEvaluatedKey does not mean that there is more (API reference); DynamoDB Local has "
        "none where a page ends at the closing bound of the range.",
        _end_of_range,
        (_put({}), _range("sk <= :v", Limit=1)),
    ),
    Difference(
        "start key at the closing bound",
        "For the same reason DynamoDB Local, and DynamoDB (aws-sdk-ruby#2456), refuse this start "
        "key; in memory, which gives it out, the page is empty.",
        _start_at_bound,
        (_put({}), _range("sk <= :v", ExclusiveStartKey=KEY)),
    ),
    Difference(
        "long start keys",
        "A sort key has 1,024 bytes at most (developer guide, quotas); DynamoDB Local takes a "
        "longer one to start at.",
        _long_start,
        (_range("sk <= :v", ExclusiveStartKey=KEY | {"sk": {"S": "x" * 1025}}),),
    ),
    Difference(
        EQUAL_NUMBERS,
        "A key given twice is refused (API reference), and numbers equal by value; DynamoDB "
        "Local compares their text.",
        _equal_numbers,
        (
            Request(
                "batch_get_item",
                {
                    "RequestItems": {
                        NUMBERS: {
                            "Keys": [
                                {"pk": {"B": b"a"}, "sk": {"N": "1"}},
                                {"pk": {"B": b"a"}, "sk": {"N": "1.0"}},
                            ]
                        }
                    }
                },
            ),
        ),
    ),
    Difference(
        "order of checks",
        "Of two faults, such as an invalid value for a table that is not there, each engine names "
        "the one that it looks at first; nothing is documented.",
        _order_of_checks,
        (
            Request(
                "delete_item",
                {"TableName": "differential-none", "Key": KEY, "ReturnValues": "ALL_NEW"},
            ),
        ),
    ),
    Difference(
        "words of a missing table",
        "Both name the code; DynamoDB Local words it as `Cannot do operations on a non-existent "
        "table`.",
        _table,
        (Request("get_item", {"TableName": "differential-none", "Key": KEY}),),
    ),
    Difference(
        "words of refused statements",
        "Both answer ValidationError; the words are those of plain calls in memory, and DynamoDB "
        "Local adds the table.",
        _statements,
        (
            Request(
                "batch_execute_statement",
                {
                    "Statements": [
                        {
                            "Statement": _DELETE,
                            "Parameters": [{"S": "x" * 2049}, KEY["sk"]],
                        }
                    ]
                },
            ),
        ),
    ),
    Difference(
        "words of cancellation reasons",
        "The code is what programs read; the words of both engines differ by a full stop and more.",
        _reasons,
        (
            Request(
                "transact_write_items",
                {
                    "TransactItems": [
                        {"ConditionCheck": {"TableName": ITEMS, "Key": KEY, **_CONDITION}}
                    ]
                },
            ),
        ),
    ),
    Difference(
        "words of a mismatched token",
        "DynamoDB says what a token is for; DynamoDB Local sends no message.",
        _token,
        (
            Request(
                "transact_write_items",
                {"TransactItems": [{"Put": {"TableName": ITEMS, "Item": KEY}}], **_TOKEN},
            ),
            Request(
                "transact_write_items",
                {"TransactItems": [{"Delete": {"TableName": ITEMS, "Key": KEY}}], **_TOKEN},
            ),
        ),
    ),
)
