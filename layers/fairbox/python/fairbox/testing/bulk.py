"""BatchGetItem and BatchWriteItem: many items a call, no conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.testing.units import read_units

from .memory_tables import base_units
from .operation_requests import Bill, Request, Response, projection_of
from .refusals import invalid, parameter_error
from .values import copy_item
from .writes import Write

if TYPE_CHECKING:
    from .memory_tables import Engine
    from .stores import Position

MAX_WRITES: Final = 25
MAX_READS: Final = 100
MAX_READ_BYTES: Final = 16 * 1024 * 1024


def batch_write_item(engine: Engine, request: Request) -> Response:
    """BatchWriteItem: all are checked before any is written."""
    requested = request["RequestItems"]
    count = sum(len(entries) for entries in requested.values())
    if count > MAX_WRITES:
        raise invalid("Too many items requested for the BatchWriteItem call")
    if not all(requested.values()) or not requested:
        raise parameter_error("Invalid length for parameter RequestItems, valid min length: 1")

    bill = Bill(request.get("ReturnConsumedCapacity"))
    # all are prepared before the first is written: one wrong key refuses the whole call
    writes = [
        _prepared(engine, table, entry) for table, entries in requested.items() for entry in entries
    ]
    seen: set[tuple[str, Position]] = {(write.table.name, write.key) for write in writes}
    # a batch has no order, so two writes of one item would have no certain outcome
    if len(seen) != len(writes):
        raise invalid("Provided list of item keys contains duplicates")

    for write in writes:
        old = write.table.store.get(write.key)
        indexes = engine.write(write.table, write.key, old, write.row)
        if bill.wanted:
            bill.add(write.table.name, base_units(old, write.row), indexes)

    return bill.added({"UnprocessedItems": {}})


def _prepared(engine: Engine, table: str, entry: dict[str, Any]) -> Write:
    if entry.keys() == {"PutRequest"}:
        return Write(engine.table(table), "Put", entry["PutRequest"])
    if entry.keys() == {"DeleteRequest"}:
        return Write(engine.table(table), "Delete", entry["DeleteRequest"])
    raise invalid(
        "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the "
        "supported datatypes"
        if len(entry) > 1
        else "A batch write entry has a PutRequest or a DeleteRequest"
    )


def batch_get_item(engine: Engine, request: Request) -> Response:
    """BatchGetItem: keys beyond 16 MB come back unprocessed."""
    requested = request["RequestItems"]
    count = sum(len(part["Keys"]) for part in requested.values())
    if count > MAX_READS:
        raise invalid("Too many items requested for the BatchGetItem call")

    bill = Bill(request.get("ReturnConsumedCapacity"))
    responses: dict[str, list[Any]] = {}
    unprocessed: dict[str, Any] = {}
    total = 0

    for name, part in requested.items():
        table = engine.table(name)
        projection = projection_of(part)
        keys = [table.key_from(key)[0] for key in part["Keys"]]
        if not keys:
            raise parameter_error(
                "Invalid length for parameter Keys, value: 0, valid min length: 1"
            )
        if len(set(keys)) != len(keys):
            raise invalid("Provided list of item keys contains duplicates")

        found = responses.setdefault(name, [])
        left: list[Any] = []
        for key, given in zip(keys, part["Keys"], strict=True):
            row = table.store.get(key)
            size = row.size if row is not None else 0
            if left or total + size > MAX_READ_BYTES:
                left.append(copy_item(given))
                continue
            total += size
            # each key is rounded up for itself, one without an item to the smallest read
            bill.add(name, read_units(size, consistent=part.get("ConsistentRead", False)))
            if row is not None:
                found.append(projection.keep(row.item) if projection else copy_item(row.item))

        if left:
            # with its projection and consistency: a caller sends it again as it is
            unprocessed[name] = {**part, "Keys": left}

    return bill.added({"Responses": responses, "UnprocessedKeys": unprocessed})
