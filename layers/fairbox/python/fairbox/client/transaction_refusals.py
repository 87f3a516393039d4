"""Refusals of a transaction of a caller's items and messages, in the words of the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import (
    InvalidInput,
    ItemTooLarge,
    RequestConflict,
    TransactionCancelled,
    Unavailable,
)
from fairbox.model.messages import Message
from fairbox.tables.calls import MalformedRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.errors import FairboxError
    from fairbox.tables.message_inserts import NewMessage

MAX_TOKEN: Final = 36
"""Characters of a transaction's token."""
_REUSED: Final = "IdempotentParameterMismatchException"


def actions_of(items: Any) -> list[Mapping[str, Any]]:
    """Return a caller's items; InvalidInput where one cannot be an action."""
    if not isinstance(items, Iterable) or isinstance(items, Mapping | str | bytes):
        raise InvalidInput("items", "a list of actions such as [{'Put': {...}}]")
    actions = list(items)
    for n, item in enumerate(actions):
        if isinstance(item, Message):
            raise InvalidInput(f"items[{n}]", "an action; messages come after the items")
        if not isinstance(item, Mapping):
            got = type(item).__name__
            raise InvalidInput(f"items[{n}]", f"an action such as {{'Put': {{...}}}}, got {got}")
    return actions


def told(
    error: FairboxError,
    items: Sequence[Mapping[str, Any]],
    placed: Sequence[NewMessage],
    token: str | None,
) -> FairboxError:
    """Return a transaction's error as one that names the parts of the call."""
    names = [f"items[{n}]" for n in range(len(items))]
    for n, new in enumerate(placed):
        names.append(f"messages[{n}]")
        # its deduplication key is an action of its own, behind the message's
        if new.window is not None:
            names.append(f"dedup_key of messages[{n}]")

    match error:
        case TransactionCancelled():
            return TransactionCancelled(error.reasons, names)
        case ItemTooLarge():
            return ItemTooLarge(_path(error.operation, names))
        case MalformedRequest():
            path = _path(error.path, names)
            if path == "items":  # DynamoDB names no part of what it could not read
                path = _number(items, path) or path
            return InvalidInput(path, error.expected)
        case Unavailable() if _REUSED in error.detail and token is not None:
            return RequestConflict("", token)
    return error


def _path(path: str, names: Sequence[str]) -> str:
    """Return the path in the call of a part of the request, such as `actions[0].Put`."""
    start, bracket, rest = path.partition("[")
    number, _, rest = rest.partition("]")
    return f"{names[int(number)]}{rest}" if start == "actions" and bracket else "items"


def _number(part: Any, path: str) -> str | None:
    """Return the path of the first number that is none; None: there is none such."""
    if isinstance(part, Mapping):
        if isinstance(part.get("N"), str) and not _is_number(part["N"]):
            return path
        parts = [(f"{path}.{name}", value) for name, value in part.items()]
    elif isinstance(part, list | tuple):
        parts = [(f"{path}[{n}]", value) for n, value in enumerate(part)]
    else:
        return None
    return next(filter(None, (_number(value, inner) for inner, value in parts)), None)


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except ArithmeticError:
        return False
