"""TransactWriteItems and TransactGetItems: all or nothing, reasons for each action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.testing.units import TRANSACTION_FACTOR, item_size, read_units

from .memory_tables import base_units
from .operation_requests import Bill, Request, Response, projection_of
from .refusals import KeyTypeRefusal, Refusal, invalid, parameter_error
from .values import copy_item
from .writes import Write

if TYPE_CHECKING:
    from .memory_tables import Engine
    from .stores import Row

MAX_ACTIONS: Final = 100
MAX_BYTES: Final = 4 * 1024 * 1024
_KINDS: Final = ("Put", "Update", "Delete", "ConditionCheck")
_NO_REASON: Final = "None"


def transact_write_items(engine: Engine, request: Request) -> Response:
    """TransactWriteItems; a token that was seen in the last ten minutes changes nothing."""
    actions = request["TransactItems"]
    _check_count(actions)
    bill = Bill(request.get("ReturnConsumedCapacity"), "Write")
    writes = [_prepared(engine, action) for action in actions]

    token = request.get("ClientRequestToken")
    fingerprint = "" if token is None else _canonical(actions)
    remembered = None if token is None else engine.remembered(token)
    if remembered is not None:
        if remembered[0] != fingerprint:
            raise Refusal(
                "IdempotentParameterMismatchException",
                "The request uses the same client token as a previous, but non-identical request. "
                "Do not reuse a client token with different requests, unless the requests are "
                "identical",
            )
        return _repeated(engine, actions, Bill(request.get("ReturnConsumedCapacity"), "Read"))

    places = [(w.table.name, w.key) for w in writes if isinstance(w, Write)]
    if len(set(places)) != len(places):
        raise invalid("Transaction request cannot include multiple operations on one item")

    # all conditions are decided on the state before; nothing is written until all hold
    outcomes = _decided(writes)
    if sum(new.size if new else item_size(w.key_item) for w, _, new in outcomes) > MAX_BYTES:
        raise invalid("Transaction request size exceeded the maximum allowed size of 4194304 bytes")

    for write, old, new in outcomes:
        units = TRANSACTION_FACTOR * base_units(old, new)
        changed = write.kind != "ConditionCheck"
        # a check of a condition costs as much as a write, and writes nothing
        indexes = engine.write(write.table, write.key, old, new) if changed else {}
        bill.add(write.table.name, units, indexes)

    if token is not None:
        # only a transaction that went through: after a refusal, the same token may be tried again
        engine.remember(token, fingerprint, {})
    return bill.added({})


def _check_count(actions: list[Any]) -> None:
    if len(actions) > MAX_ACTIONS:
        raise invalid(
            "1 validation error detected: Value at 'transactItems' failed to satisfy constraint: "
            f"Member must have length less than or equal to {MAX_ACTIONS}"
        )
    if not actions:
        raise parameter_error("Invalid length for parameter TransactItems, valid min length: 1")


def _prepared(engine: Engine, action: dict[str, Any]) -> Write | KeyTypeRefusal:
    """Return the checked write of an action, or the refusal that cancels the transaction."""
    if len(action) != 1 or next(iter(action)) not in _KINDS:
        raise invalid("TransactItems can only contain one of Check, Put, Update or Delete")
    ((kind, request),) = action.items()
    table = engine.table(request["TableName"])
    if kind == "ConditionCheck" and "ConditionExpression" not in request:
        raise invalid("The ConditionExpression of a ConditionCheck is required")
    try:
        return Write(table, kind, request)
    except KeyTypeRefusal as refusal:
        return refusal


def _decided(writes: list[Write | KeyTypeRefusal]) -> list[tuple[Write, Row | None, Row | None]]:
    """Old and new row of each action; TransactionCanceledException where one cannot be."""
    outcomes: list[tuple[Write, Row | None, Row | None]] = []
    reasons: list[dict[str, Any]] = []

    for write in writes:
        if isinstance(write, KeyTypeRefusal):
            # such a key refuses a single call; a transaction says which of its actions has it
            reasons.append({"Code": "ValidationError", "Message": write.message})
            continue

        old = write.table.store.get(write.key)
        new = old
        reason: dict[str, Any] = {"Code": _NO_REASON}
        if not write.permits(old):
            reason = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
            if write.shows_old and old is not None:
                reason["Item"] = copy_item(old.item)
        elif write.kind != "ConditionCheck":
            try:
                new = write.outcome(old)
            except Refusal as refusal:
                reason = {"Code": "ValidationError", "Message": refusal.message}
        reasons.append(reason)
        outcomes.append((write, old, new))

    codes = [reason["Code"] for reason in reasons]
    if any(code != _NO_REASON for code in codes):
        raise Refusal(
            "TransactionCanceledException",
            "Transaction cancelled, please refer cancellation reasons for specific reasons "
            f"[{', '.join(codes)}]",
            CancellationReasons=reasons,
        )

    return outcomes


def _canonical(value: Any) -> str:
    """A text that is the same for equal requests, in any order of their parameters."""
    if isinstance(value, dict):
        parts = ",".join(f"{key!r}:{_canonical(value[key])}" for key in sorted(value))
        return f"{{{parts}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_canonical, value))}]"
    return repr(bytes(value) if isinstance(value, bytearray) else value)


def _repeated(engine: Engine, actions: list[Any], bill: Bill) -> Response:
    """The answer to a repeated token: the reads that finding out cost."""
    for action in actions:
        write = _prepared(engine, action)
        if isinstance(write, KeyTypeRefusal):  # it was written, so no key can be wrong
            raise write
        row = write.table.store.get(write.key)
        size = row.size if row is not None else 0
        bill.add(write.table.name, TRANSACTION_FACTOR * read_units(size, consistent=True))
    return bill.added({})


def transact_get_items(engine: Engine, request: Request) -> Response:
    """TransactGetItems: an entry for each key, empty where there is no item."""
    actions = request["TransactItems"]
    _check_count(actions)
    bill = Bill(request.get("ReturnConsumedCapacity"), "Read")
    responses: list[Response] = []
    seen = set()

    for action in actions:
        get = action["Get"]
        table = engine.table(get["TableName"])
        projection = projection_of(get)
        key = table.key_from(get["Key"])[0]
        seen.add((table.name, key))
        row = table.store.get(key)
        size = row.size if row is not None else 0
        bill.add(table.name, TRANSACTION_FACTOR * read_units(size, consistent=True))

        if row is None:
            responses.append({})
        else:
            shown = projection.keep(row.item) if projection else copy_item(row.item)
            responses.append({"Item": shown})

    if len(seen) != len(actions):
        raise invalid("Transaction request cannot include multiple operations on one item")
    return bill.added({"Responses": responses})
