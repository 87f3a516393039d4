"""Units of transactions from the items before and after, for engines that report them wrong."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from fairbox.testing.units import (
    TRANSACTION_FACTOR,
    index_entry,
    index_write_units,
    item_size,
    write_units,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TransactionUnits = tuple[str, str, float]  # table, index ("" for the table itself), write units
Items = list[dict[str, Any]]
_READ_KEYS: Final = 100


class Probe:
    """Reads the items that a transaction touches, and computes its cost."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._tables: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def _table(self, name: str) -> dict[str, Any]:
        with self._lock:
            if name not in self._tables:
                self._tables[name] = self._client.describe_table(TableName=name)["Table"]
            return self._tables[name]

    def _keys(self, table: str) -> list[str]:
        return [part["AttributeName"] for part in self._table(table)["KeySchema"]]

    def _key(self, action: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        ((kind, request),) = action.items()
        table = request["TableName"]
        # only a put names no key beside its item
        if kind == "Put":
            return table, {name: request["Item"][name] for name in self._keys(table)}
        return table, request["Key"]

    def items(self, actions: list[dict[str, Any]]) -> Items:
        """The items under the actions' keys as they stand; empty where there is none."""
        gets = []
        for action in actions[:_READ_KEYS]:
            table, key = self._key(action)
            gets.append({"Get": {"TableName": table, "Key": key}})
        # one moment for all items; read one by one, others could write in between
        responses = self._client.transact_get_items(TransactItems=gets)["Responses"]
        return [response.get("Item", {}) for response in responses]

    def applied(
        self, actions: list[dict[str, Any]], before: Items, after: Items
    ) -> Iterator[TransactionUnits]:
        """The units of a transaction that went through."""
        for action, old, new in zip(actions, before, after, strict=True):
            table = self._key(action)[0]
            # a delete is billed by the item that it removes, a growing update by the new one
            size = max(item_size(old), item_size(new))
            yield table, "", TRANSACTION_FACTOR * write_units(size)

            for index in self._table(table).get("GlobalSecondaryIndexes", []):
                names = [part["AttributeName"] for part in index["KeySchema"]]
                projected = self._projected(table, index)
                # an index entry costs in a transaction as much as in a single write
                units = index_write_units(
                    index_entry(old or None, names, projected),
                    index_entry(new or None, names, projected),
                    names,
                )
                if units:
                    yield table, index["IndexName"], float(units)

    def refused(
        self, actions: list[dict[str, Any]], before: Items | None
    ) -> Iterator[TransactionUnits]:
        """The units of a cancelled one: each action as if it had left its item as it was."""
        # a cancelled transaction left all items as they are, so they may be read afterwards
        olds = self.items(actions) if before is None else before
        for action, old in zip(actions, olds, strict=True):
            ((kind, request),) = action.items()
            size = max(item_size(old), item_size(request["Item"]) if kind == "Put" else 0)
            yield request["TableName"], "", TRANSACTION_FACTOR * write_units(size)

    def _projected(self, table: str, index: dict[str, Any]) -> set[str] | None:
        projection = index["Projection"]
        if projection["ProjectionType"] == "ALL":
            return None
        keys = {part["AttributeName"] for part in index["KeySchema"]}
        return keys | set(self._keys(table)) | set(projection.get("NonKeyAttributes", []))
