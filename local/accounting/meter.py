"""A meter of a running application: request units and calls, by request and answer of each call."""

from __future__ import annotations

import base64
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from fairbox.testing.statements import statement_units
from fairbox.testing.units import item_size, write_units

if TYPE_CHECKING:
    from collections.abc import Iterator

_WRITES: Final = frozenset(
    {
        "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems",
        "BatchExecuteStatement",
    }
)  # fmt: skip
_EMPTY_READ: Final = 0.5


class Meter:
    """Sums what is observed of the named tables; give `observe` to a `FaultProxy`.

    Plain calls count as the engine bills them, per table and index. A transaction's writes are
    computed, because the engine reports them wrongly: two units per KB of an item that is put, two
    for any other action. So are statements, of which it reports nothing: an insert by its item, any
    other as one unit. An empty read is half a unit, which the engine reports as none.
    """

    def __init__(self) -> None:
        self._tables: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.wru = 0.0
        self.rru = 0.0

    def watch(self, *tables: str) -> None:
        """Count what these tables consume, and nothing of others."""
        self._tables = frozenset(tables)

    def reset(self) -> None:
        """Set every sum to zero."""
        with self._lock:
            self.calls.clear()
            self.wru = self.rru = 0.0

    def observe(self, operation: str, request: dict[str, Any], answer: dict[str, Any]) -> None:
        """Take note of one call."""
        if operation == "TransactWriteItems":
            units = sum(self._transacted(action) for action in request["TransactItems"])
        elif operation == "BatchExecuteStatement":
            units = sum(self._stated(request))
        else:
            units = sum(self._billed(answer))
            if units == 0 and operation not in _WRITES and self._meant(request):
                units = _EMPTY_READ
        with self._lock:
            if units or self._meant(request):
                self.calls[operation] += 1
            if operation in _WRITES:
                self.wru += units
            else:
                self.rru += units

    def _meant(self, request: dict[str, Any]) -> bool:
        tables = [request.get("TableName"), *request.get("RequestItems", {})]
        for action in request.get("TransactItems", []):
            tables += [given["TableName"] for given in action.values()]
        return any(table in self._tables for table in tables)

    def _billed(self, answer: dict[str, Any]) -> Iterator[float]:
        consumed = answer.get("ConsumedCapacity") or []
        for entry in consumed if isinstance(consumed, list) else [consumed]:
            if entry["TableName"] in self._tables:
                yield float(entry["CapacityUnits"])

    def _stated(self, request: dict[str, Any]) -> Iterator[float]:
        for entry in request["Statements"]:
            values = [_native(value) for value in entry.get("Parameters", ())]
            table, units = statement_units(entry | {"Parameters": values})
            if table in self._tables:
                yield float(units)

    def _transacted(self, action: dict[str, Any]) -> float:
        (verb, given), *_ = action.items()
        if given["TableName"] not in self._tables:
            return 0.0
        if verb != "Put":
            return 2.0
        item = {name: _native(value) for name, value in given["Item"].items()}
        return 2.0 * write_units(item_size(item))


def _native(value: dict[str, Any]) -> dict[str, Any]:
    return {"B": base64.b64decode(value["B"])} if "B" in value else value
