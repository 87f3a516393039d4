"""Writes of single items: prepared from a request, decided on the old row, applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .grammar import ExpressionError
from .memory_tables import Table, base_units
from .operation_requests import Bill, Expressions, Request, Response
from .refusals import Refusal, invalid, invalid_parameter
from .stores import Position, Row
from .values import Item, Value, copy_item, take_item

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .expressions import CompiledCondition
    from .memory_tables import Engine
    from .updates import Update

_TOO_LARGE: Final = "Item size has exceeded the maximum allowed size"
_UPDATED_TOO_LARGE: Final = "Item size to update has exceeded the maximum allowed size"
_RETURNS: Final = {
    "Put": ("NONE", "ALL_OLD"),
    "Delete": ("NONE", "ALL_OLD"),
    "Update": ("NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"),
}


class Write:
    """One write of one item, checked as far as it can be without the item."""

    __slots__ = ("condition", "key", "key_item", "kind", "row", "shows_old", "table", "update",
                 "values")  # fmt: skip

    def __init__(self, table: Table, kind: str, request: Mapping[str, Any]) -> None:
        self.table = table
        self.kind = kind
        self.row: Row | None = None
        self.update: Update | None = None
        self.condition: CompiledCondition | None = None
        self.values: dict[str, Value] = {}
        self.shows_old = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"

        if kind == "Put":
            self.key_item = take_item(request["Item"])
            self.key: Position = table.key_of(self.key_item)
            self.row = Row(self.key_item)
            table.check(self.row, _TOO_LARGE)
        else:
            self.key, self.key_item = table.key_from(request["Key"])

        self._read_expressions(request)

    def _read_expressions(self, request: Mapping[str, Any]) -> None:
        expressions = Expressions(request)
        if self.kind == "Update":
            self.update = expressions.update()
            if self.update is not None:
                # also where the value would stay the same: the expression alone is judged
                for name in self.table.keys.names:
                    if name in self.update.roots:
                        raise invalid_parameter(
                            f"Cannot update attribute {name}. This attribute is part of the key"
                        )

        self.condition = expressions.condition()
        self.values = expressions.values
        expressions.done()

    def permits(self, old: Row | None) -> bool:
        """Whether the condition holds of the old row."""
        if self.condition is None:
            return True
        return self.condition.test({} if old is None else old.item, self.values)

    def refusal(self, old: Row | None) -> Refusal:
        """The refusal of a write whose condition does not hold of the old row."""
        shown = {"Item": copy_item(old.item)} if self.shows_old and old is not None else {}
        return Refusal("ConditionalCheckFailedException", "The conditional request failed", **shown)

    def outcome(self, old: Row | None) -> Row | None:
        """The row after the write; a Refusal where the item does not admit it."""
        if self.kind == "Put":
            return self.row
        if self.kind == "Delete":
            return None

        # an update of a missing item makes it, with its key's attributes
        item = self.key_item if old is None else old.item
        if self.update is None:
            # without an expression, only the item itself is made
            return Row(item)
        try:
            row = Row(self.update.apply(item, self.values))
        except ExpressionError as error:
            raise invalid(f"Invalid UpdateExpression: {error}") from None
        self.table.check(row, _UPDATED_TOO_LARGE)
        return row


def single(engine: Engine, kind: str, request: Request) -> Response:
    """PutItem, UpdateItem or DeleteItem."""
    returns = request.get("ReturnValues", "NONE")
    if returns not in _RETURNS[kind]:
        raise invalid(f"ReturnValues can only be {' or '.join(_RETURNS[kind][::-1])}")

    bill = Bill(request.get("ReturnConsumedCapacity"))
    write = Write(engine.table(request["TableName"]), kind, request)
    old = write.table.store.get(write.key)
    if not write.permits(old):
        raise write.refusal(old)

    new = write.outcome(old)
    indexes = engine.write(write.table, write.key, old, new)
    response: Response = {}
    if returns != "NONE":
        attributes = _returned(returns, write, old, new)
        if attributes:
            response["Attributes"] = attributes

    if bill.wanted:
        bill.add(write.table.name, base_units(old, new), indexes)
        response["ConsumedCapacity"] = bill.entries()[0]
    return response


def _returned(returns: str, write: Write, old: Row | None, new: Row | None) -> Item | None:
    row = old if returns.endswith("OLD") else new
    if row is None:
        return None
    if returns.startswith("ALL"):
        return copy_item(row.item)
    if write.update is None:
        return None
    return write.update.touched(row.item)


def put_item(engine: Engine, request: Request) -> Response:
    """PutItem."""
    return single(engine, "Put", request)


def update_item(engine: Engine, request: Request) -> Response:
    """UpdateItem."""
    return single(engine, "Update", request)


def delete_item(engine: Engine, request: Request) -> Response:
    """DeleteItem."""
    return single(engine, "Delete", request)


def expire(engine: Engine, table_name: str) -> int:
    """Delete items past the table's time to live, free of charge; return how many."""
    table = engine.table(table_name)
    if table.ttl_attribute is None:
        return 0

    # time to live counts whole seconds
    now = int(engine.clock.now())
    over = [
        row
        for row in table.store.scan(0, 1 << 64, None)
        if (value := row.item.get(table.ttl_attribute)) is not None
        # a text or a missing attribute never expires
        and "N" in value
        and float(value["N"]) < now
    ]

    for row in over:
        engine.write(table, table.key_of(row.item), row, None, expired=True)
    return len(over)
