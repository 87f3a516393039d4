"""Answers in the database's wire format, and batches without some of their entries."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = tuple[int, list[tuple[str, str]], bytes]  # status, headers, body

_PREFIX: Final = "com.amazonaws.dynamodb.v20120810#"
CONSUMING: Final = frozenset(
    {
        "BatchExecuteStatement",
        "BatchGetItem",
        "BatchWriteItem",
        "DeleteItem",
        "GetItem",
        "PutItem",
        "Query",
        "Scan",
        "TransactWriteItems",
        "UpdateItem",
    }
)
_ONGOING: Final = "Transaction is ongoing for the item"


def entries(operation: str, request: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the place of each entry of a batch: its table (or nothing) and index in the list."""
    if operation == "BatchExecuteStatement":
        return [("", number) for number in range(len(request["Statements"]))]
    lists = {
        table: given if operation == "BatchWriteItem" else given["Keys"]
        for table, given in request["RequestItems"].items()
    }
    return [(table, number) for table, given in lists.items() for number in range(len(given))]


def _filtered(
    operation: str, request: dict[str, Any], keep: Callable[[int], bool]
) -> dict[str, Any]:
    """Return `RequestItems` with only the entries whose place in the whole batch is kept."""
    kept: dict[str, Any] = {}
    for place, (table, number) in enumerate(entries(operation, request)):
        if not keep(place):
            continue
        given = request["RequestItems"][table]
        if operation == "BatchWriteItem":
            kept.setdefault(table, []).append(given[number])
        else:
            kept.setdefault(table, given | {"Keys": []})["Keys"].append(given["Keys"][number])
    return kept


def only(operation: str, request: dict[str, Any], left_out: set[int]) -> bytes:
    """Return the request without the entries left out."""
    if operation == "BatchExecuteStatement":
        statements = [s for n, s in enumerate(request["Statements"]) if n not in left_out]
        return json.dumps(request | {"Statements": statements}).encode()
    kept = _filtered(operation, request, lambda place: place not in left_out)
    return json.dumps(request | {"RequestItems": kept}).encode()


def merged(
    operation: str, request: dict[str, Any], answer: dict[str, Any], left_out: set[int]
) -> dict[str, Any]:
    """Return the engine's answer with the left-out entries reported as unprocessed."""
    if operation == "BatchExecuteStatement":
        answered = iter(answer["Responses"])
        error = {"Error": {"Code": "ThrottlingError", "Message": "Request rate is too high."}}
        number = len(request["Statements"])
        merged = [error if n in left_out else next(answered) for n in range(number)]
        return answer | {"Responses": merged}
    name = "UnprocessedItems" if operation == "BatchWriteItem" else "UnprocessedKeys"
    unprocessed = _filtered(operation, request, lambda place: place in left_out)
    for table, given in answer.get(name, {}).items():
        if table not in unprocessed:
            unprocessed[table] = given
        elif operation == "BatchWriteItem":
            unprocessed[table] += given
        else:
            unprocessed[table]["Keys"] += given["Keys"]
    return answer | {name: unprocessed}


def conflict() -> Answer:
    """Return a conflict of a single write with a transaction."""
    return _error(400, "TransactionConflictException", _ONGOING)


def cancelled(number: int, hit: set[int]) -> Answer:
    """Return a transaction of `number` entries cancelled by conflicts of those in `hit`."""
    reasons = [
        {"Code": "TransactionConflict", "Message": _ONGOING} if n in hit else {"Code": "None"}
        for n in range(number)
    ]
    codes = ", ".join(reason["Code"] for reason in reasons)
    text = (
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    )
    body = {
        "__type": f"{_PREFIX}TransactionCanceledException",
        "CancellationReasons": reasons,
        "Message": f"{text} [{codes}]",
    }
    return json_answer(400, body)


def throttled(provisioned: bool) -> Answer:
    """Return one of the database's two throttling errors."""
    if provisioned:
        text = "The level of configured provisioned throughput for the table was exceeded."
        return _error(400, "ProvisionedThroughputExceededException", text)
    text = "Throughput exceeds the current capacity of your table or index."
    return _error(400, "ThrottlingException", text)


def failed() -> Answer:
    """Return an error of the database itself."""
    return _error(500, "InternalServerError", "Internal server error")


def json_answer(
    status: int, body: dict[str, Any], headers: list[tuple[str, str]] | None = None
) -> Answer:
    """Return an answer with its checksum; `headers` replaces the content type."""
    text = json.dumps(body).encode()
    given = headers or [("Content-Type", "application/x-amz-json-1.0")]
    return status, [*given, ("x-amz-crc32", str(zlib.crc32(text)))], text


def _error(status: int, code: str, message: str) -> Answer:
    return json_answer(status, {"__type": f"{_PREFIX}{code}", "message": message})
