"""A meter around any DynamoDB client: request units, calls and bytes, as AWS bills them."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from fairbox.testing.units import (
    TRANSACTION_FACTOR,
    index_entry,
    index_write_units,
    item_size,
    read_units,
    write_units,
)

from .faults import WrappedClient
from .statements import statement_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_READS: Final = frozenset({"get_item", "query", "scan", "batch_get_item", "transact_get_items"})
_CONDITIONAL: Final = frozenset({"put_item", "update_item", "delete_item"})
BASE: Final = ""  # the index name under which a table's own units are summed
TransactionUnits = tuple[str, str, float]  # table, index ("" for the table itself), write units
Items = list[dict[str, Any]]
_READ_KEYS: Final = 100


@dataclass(slots=True)
class Cost:
    """Sums of one (operation, table, index)."""

    wru: float = 0.0
    rru: float = 0.0
    bytes: int = 0  # of items sent and received, as DynamoDB counts them


@dataclass(slots=True)
class Reading:
    """A reading of the meter: totals, calls by operation, costs by (operation, table, index)."""

    calls: dict[str, int] = field(default_factory=dict)
    costs: dict[tuple[str, str, str], Cost] = field(default_factory=dict)

    @property
    def wru(self) -> float:
        """Write request units in all."""
        return sum(cost.wru for cost in self.costs.values())

    @property
    def rru(self) -> float:
        """Read request units in all."""
        return sum(cost.rru for cost in self.costs.values())


class CostMeter(WrappedClient):
    """Sums the costs of a client's calls.

    Plain calls are summed as the engine reports them per index, empty reads and missing keys of a
    batch at the smallest read.
    Statements that the engine does not report, as DynamoDB Local does not, are counted by their
    requests: exact for an insert that was carried out, one unit for any other.
    Transactions are computed from item sizes unless the client bills as AWS does
    (``client.bills_like_aws``): the items they touch are read before and after through the same
    client, unmetered, so figures are exact where nobody else writes these items meanwhile. A
    failed condition costs a write of the item that refused it. Other refused calls (throttled,
    malformed) cost nothing. Calls that timed out are counted; their units are unknown.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._exact = bool(getattr(client, "bills_like_aws", False))
        self._probe = Probe(client)
        self._lock = threading.Lock()
        self._calls: dict[str, int] = defaultdict(int)
        self._costs: dict[tuple[str, str, str], Cost] = defaultdict(Cost)

    def reading(self) -> Reading:
        """The sums so far, as copies."""
        with self._lock:
            costs = {key: Cost(cost.wru, cost.rru, cost.bytes) for key, cost in self._costs.items()}
            return Reading(dict(self._calls), costs)

    def reset(self) -> None:
        """Start again from zero."""
        with self._lock:
            self._calls.clear()
            self._costs.clear()

    def _call(self, operation: str, method: Callable[..., Any], request: dict[str, Any]) -> Any:
        with self._lock:
            self._calls[operation] += 1

        wanted = request.get("ReturnConsumedCapacity", "NONE")
        # always asked for; callers see it only if they ask for it themselves
        sent = {**request, "ReturnConsumedCapacity": "INDEXES"}
        if operation == "transact_write_items":
            return self._transact(method, request, sent)
        if operation in _CONDITIONAL:
            # a failed condition is billed by the size of the item that refused it
            sent["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"

        try:
            answer = method(**sent)
        except ClientError as error:
            self._count_refusal(operation, request, error)
            raise

        self._count(operation, request, answer)
        if wanted == "NONE":
            answer.pop("ConsumedCapacity", None)
        return answer

    def _count(self, operation: str, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        reported = answer.get("ConsumedCapacity", [])
        entries = reported if isinstance(reported, list) else [reported]

        if operation == "transact_get_items" and not self._exact:
            for get, found in zip(request["TransactItems"], answer["Responses"], strict=True):
                size = item_size(found.get("Item", {}))
                self._add(
                    operation, get["Get"]["TableName"], rru=2 * read_units(size, consistent=True)
                )
        elif operation in {"query", "scan"} and answer.get("ScannedCount") == 0:
            # empty reads, which DynamoDB Local bills wrongly, cost as much as the smallest
            units = read_units(0, consistent=request.get("ConsistentRead", False))
            index = request.get("IndexName", BASE)
            self._add(operation, request["TableName"], index, rru=units)
        else:
            for entry in entries:
                self._add_entry(operation, entry)
            if operation == "batch_execute_statement" and not self._exact and not reported:
                for table, units in map(statement_units, request["Statements"]):
                    self._add(operation, table, wru=units)
            if operation == "batch_get_item" and not self._exact:
                self._count_missing(request, answer)

        # calls over several tables count their bytes at the first one
        table = request.get("TableName") or (entries[0]["TableName"] if entries else "")
        self._add(operation, table, size=_bytes(request) + _bytes(answer))

    def _count_missing(self, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Charge the smallest read for each key without an item: DynamoDB Local reports none."""
        for table, asked in request["RequestItems"].items():
            left = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
            found = answer["Responses"].get(table, [])
            # unprocessed keys were not read, and cost nothing
            missing = len(asked["Keys"]) - len(left) - len(found)
            units = read_units(0, consistent=asked.get("ConsistentRead", False))
            self._add("batch_get_item", table, rru=missing * units)

    def _add_entry(self, operation: str, entry: Mapping[str, Any]) -> None:
        unit = "rru" if operation in _READS else "wru"
        table = entry["TableName"]

        # not the entry's own `CapacityUnits`, which are the sum with its indexes
        base = entry.get("Table", {}).get("CapacityUnits", 0.0)
        self._add(operation, table, **{unit: base})
        for index, cost in entry.get("GlobalSecondaryIndexes", {}).items():
            self._add(operation, table, index, **{unit: cost["CapacityUnits"]})

    def _add(
        self,
        operation: str,
        table: str,
        index: str = BASE,
        *,
        wru: float = 0.0,
        rru: float = 0.0,
        size: int = 0,
    ) -> None:
        with self._lock:
            cost = self._costs[operation, table, index]
            cost.wru += wru
            cost.rru += rru
            cost.bytes += size

    def _count_refusal(
        self, operation: str, request: Mapping[str, Any], error: ClientError
    ) -> None:
        """Bill a failed condition as a write of the old item; hide the item unless asked for."""
        response: Any = error.response
        if response["Error"]["Code"] != "ConditionalCheckFailedException":
            return
        # the refused write itself is not counted, only the item that stands there
        size = item_size(response.get("Item", {}))
        self._add(operation, request["TableName"], wru=write_units(size))
        if request.get("ReturnValuesOnConditionCheckFailure") != "ALL_OLD":
            response.pop("Item", None)

    def _transact(
        self, method: Callable[..., Any], request: dict[str, Any], sent: dict[str, Any]
    ) -> Any:
        operation = "transact_write_items"
        actions = request["TransactItems"]
        # before the call: the larger of old and new size is billed
        before = None if self._exact else self._probe.items(actions)

        try:
            answer = method(**sent)
        except ClientError as error:
            reasons: Any = error.response.get("CancellationReasons", [])
            if any(reason.get("Code") == "ConditionalCheckFailed" for reason in reasons):
                self._charge(operation, self._probe.refused(actions, before))
            raise

        if before is None:
            for entry in answer.get("ConsumedCapacity", []):
                # a token that was seen before costs reads, and no writes
                repeated = "ReadCapacityUnits" in entry
                self._add_entry("transact_get_items" if repeated else operation, entry)
        else:
            after = self._probe.items(actions)
            self._charge(operation, self._probe.applied(actions, before, after))

        table = next(iter(actions[0].values()))["TableName"]
        self._add(operation, table, size=_bytes(request))
        if request.get("ReturnConsumedCapacity", "NONE") == "NONE":
            answer.pop("ConsumedCapacity", None)
        return answer

    def _charge(self, operation: str, units: Iterable[TransactionUnits]) -> None:
        for table, index, wru in units:
            self._add(operation, table, index, wru=wru)


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


def _bytes(part: Any) -> int:
    """Bytes of all items in a request or an answer."""
    if isinstance(part, list):
        return sum(_bytes(entry) for entry in part)
    if not isinstance(part, dict):
        return 0

    total = 0
    for name, value in part.items():
        if name in {"Item", "Attributes", "Key"}:
            total += item_size(value)
        elif name in {"Items", "Keys"} and isinstance(value, list):
            total += sum(item_size(item) for item in value)
        elif name == "Responses" and isinstance(value, dict):
            total += sum(item_size(item) for items in value.values() for item in items)
        elif name in {"RequestItems", "TransactItems", "Responses", "PutRequest", "DeleteRequest",
                      "Put", "Update", "Delete", "ConditionCheck", "Get"}:  # fmt: skip
            total += _bytes(list(value.values()) if name == "RequestItems" else value)
    return total
