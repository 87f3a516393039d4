"""Faults around any DynamoDB client: throttled, lost answers, unprocessed entries, conflicts."""

from __future__ import annotations

import threading
from collections import Counter, deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from .pages import Paginator, paginator
from .refusals import client_error

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

_ENDPOINT: Final = "dynamodb"


class Fault(Enum):
    """A fault of a call; faults that do not fit an operation are not drawn for it."""

    THROTTLED = "ProvisionedThroughputExceededException"
    THROTTLING = "ThrottlingException"
    REQUEST_LIMIT = "RequestLimitExceeded"
    INTERNAL_ERROR = "InternalServerError"
    CONFLICT = "TransactionConflict"
    UNPROCESSED = "unprocessed"
    APPLIED_THEN_TIMEOUT = "applied, then timed out"
    TIMEOUT_UNAPPLIED = "timed out, not applied"


_MESSAGES: Final = {
    Fault.THROTTLED: "The level of configured provisioned throughput for the table was exceeded.",
    Fault.THROTTLING: "Throughput exceeds the current capacity of your table or index.",
    Fault.REQUEST_LIMIT: "Throughput exceeds the current throughput limit for your account.",
    Fault.INTERNAL_ERROR: "Internal server error",
}
_STATEMENTS: Final = "batch_execute_statement"
_BULK: Final = {"batch_write_item", "batch_get_item", _STATEMENTS}
_TRANSACTIONS: Final = {"transact_write_items", "transact_get_items"}
OPERATIONS: Final = frozenset(
    {
        "get_item", "put_item", "update_item", "delete_item", "query", "scan",
        *_BULK, *_TRANSACTIONS,
    }
)  # fmt: skip


def fits(fault: Fault, operation: str) -> bool:
    """Whether the service can answer this operation so."""
    if fault is Fault.CONFLICT:
        return operation in _TRANSACTIONS
    if fault is Fault.UNPROCESSED:
        return operation in _BULK
    return True


class WrappedClient:
    """A client around another one: data operations go through `_call`, other calls pass."""

    _client: Any
    _call: Callable[[str, Callable[..., Any], dict[str, Any]], Any]

    def get_paginator(self, operation: str) -> Paginator:
        """A paginator whose every page goes through this wrapper."""
        return paginator(self, operation)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in OPERATIONS:
            return method

        def call(**request: Any) -> Any:
            return self._call(name, method, request)

        return call


class FaultyDynamoDB(WrappedClient):
    """A DynamoDB client with faults, at random by rate, or as scripted.

    `client` is boto3's or `MemoryDynamoDB`; other calls than data operations pass through.
    `rates` are probabilities by fault, each per call: at most one fault strikes a call, so they
    must add up to at most 1. `operations` narrows random faults to some methods.

    >>> faulty = FaultyDynamoDB(client, random.Random(7), {Fault.THROTTLED: 0.05})
    >>> faulty.next("put_item", Fault.APPLIED_THEN_TIMEOUT)     # doctest: +SKIP
    """

    def __init__(
        self,
        client: Any,
        rng: random.Random,
        rates: Mapping[Fault, float] | None = None,
        *,
        operations: frozenset[str] = OPERATIONS,
    ) -> None:
        self._client = client
        self._rng = rng
        self._rates = dict(rates or {})
        if any(rate < 0 for rate in self._rates.values()) or sum(self._rates.values()) > 1:
            raise ValueError("rates: each is a probability, and together they are at most 1")
        if operations - OPERATIONS:
            raise ValueError(f"operations: unknown {sorted(operations - OPERATIONS)}")

        self._operations = operations
        self._script: dict[str, deque[Fault | None]] = {name: deque() for name in OPERATIONS}
        self._lock = threading.Lock()
        self.injected: Counter[tuple[str, Fault]] = Counter()
        self.calls: Counter[str] = Counter()

    def next(self, operation: str, *faults: Fault | None) -> None:
        """Script the next calls of an operation, one entry a call; None: no fault.

        ValueError for an unknown operation, or a fault that the service never gives it.
        """
        if operation not in OPERATIONS:
            raise ValueError(f"operation: {operation} is not one of {sorted(OPERATIONS)}")
        for fault in faults:
            if fault is not None and not fits(fault, operation):
                raise ValueError(f"{operation} never answers {fault.name}")
        with self._lock:
            self._script[operation].extend(faults)

    def _draw(self, operation: str) -> Fault | None:
        """The fault of this call: the script first, then chance."""
        with self._lock:
            self.calls[operation] += 1
            script = self._script[operation]
            fault = script.popleft() if script else self._by_chance(operation)
            if fault is not None:
                self.injected[operation, fault] += 1
            return fault

    def _by_chance(self, operation: str) -> Fault | None:
        # no number is drawn, so operations that are left alone do not change the faults of others
        if operation not in self._operations or not self._rates:
            return None
        drawn = self._rng.random()
        for fault, rate in self._rates.items():
            if drawn < rate:
                # not drawn again: each fault keeps its own rate in the operations that it fits
                return fault if fits(fault, operation) else None
            drawn -= rate
        return None

    def _call(self, operation: str, method: Callable[..., Any], request: dict[str, Any]) -> Any:
        fault = self._draw(operation)
        if fault is None:
            return method(**request)

        if fault is Fault.APPLIED_THEN_TIMEOUT:
            method(**request)
            # the caller cannot tell this from a call that was not carried out
            raise ReadTimeoutError(endpoint_url=_ENDPOINT)
        if fault is Fault.TIMEOUT_UNAPPLIED:
            raise ConnectTimeoutError(endpoint_url=_ENDPOINT)
        if fault is Fault.UNPROCESSED:
            return self._partly(operation, method, request)
        if fault is Fault.CONFLICT:
            raise self._conflict(operation, len(request["TransactItems"]))
        raise client_error(fault.value, _MESSAGES[fault], _service_name(operation))

    def _conflict(self, operation: str, count: int) -> Exception:
        """One action, drawn at random, met another transaction."""
        with self._lock:
            struck = self._rng.randrange(count)

        reasons: list[dict[str, Any]] = [{"Code": "None"} for _ in range(count)]
        reasons[struck] = {
            "Code": Fault.CONFLICT.value,
            "Message": "Transaction is ongoing for the item",
        }
        codes = ", ".join(reason["Code"] for reason in reasons)
        return client_error(
            "TransactionCanceledException",
            "Transaction cancelled, please refer cancellation reasons for specific reasons "
            f"[{codes}]",
            _service_name(operation),
            CancellationReasons=reasons,
        )

    def _partly_stated(self, method: Callable[..., Any], request: dict[str, Any]) -> Any:
        """Pass on a random part of the statements; each of the others answers for itself."""
        entries = request["Statements"]
        with self._lock:
            kept = set(self._rng.sample(range(len(entries)), self._rng.randrange(len(entries))))
        # this operation has no list of unprocessed entries: each statement answers for itself
        throttled = {"Code": "ThrottlingError", "Message": _MESSAGES[Fault.THROTTLING]}
        answer = (
            method(**{**request, "Statements": [entries[n] for n in sorted(kept)]}) if kept else {}
        )

        # the answers of the passed ones go back to the places of their statements
        passed = iter(answer.get("Responses", ()))
        responses = [
            next(passed) if n in kept else {"Error": throttled} for n in range(len(entries))
        ]
        return {**answer, "Responses": responses}

    def _partly(self, operation: str, method: Callable[..., Any], request: dict[str, Any]) -> Any:
        """Pass on a random part of the entries; the rest comes back unprocessed, or throttled.

        A single entry cannot be part processed: the service throttles such a call as a whole.
        """
        if operation == _STATEMENTS:
            return self._partly_stated(method, request)

        writes = operation == "batch_write_item"
        entries = [
            (table, entry)
            for table, part in request["RequestItems"].items()
            for entry in (part if writes else part["Keys"])
        ]

        with self._lock:
            count = self._rng.randint(1, len(entries) - 1) if len(entries) > 1 else 0
            kept = set(self._rng.sample(range(len(entries)), count))
        if not kept:
            raise client_error(
                Fault.THROTTLED.value, _MESSAGES[Fault.THROTTLED], _service_name(operation)
            )

        passed = [entry for place, entry in enumerate(entries) if place in kept]
        left = [entry for place, entry in enumerate(entries) if place not in kept]
        answer = method(**{**request, "RequestItems": _grouped(request, passed, writes=writes)})
        field = "UnprocessedItems" if writes else "UnprocessedKeys"
        unprocessed = answer.get(field) or {}

        # the client itself may have left some unprocessed: both parts come back
        for table, part in _grouped(request, left, writes=writes).items():
            if table not in unprocessed:
                unprocessed[table] = part
            elif writes:
                unprocessed[table] = [*unprocessed[table], *part]
            else:
                part["Keys"] = [*unprocessed[table]["Keys"], *part["Keys"]]
                unprocessed[table] = part

        answer[field] = unprocessed
        return answer


def _grouped(
    request: Mapping[str, Any], entries: list[tuple[str, Any]], *, writes: bool
) -> dict[str, Any]:
    """Entries by table, in the shape of ``RequestItems``."""
    grouped: dict[str, Any] = {}
    for table, entry in entries:
        if writes:
            grouped.setdefault(table, []).append(entry)
        else:
            part = grouped.setdefault(table, {**request["RequestItems"][table], "Keys": []})
            part["Keys"].append(entry)
    return grouped


def _service_name(operation: str) -> str:
    return "".join(word.capitalize() for word in operation.split("_"))
