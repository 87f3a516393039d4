"""Attribute values in the wire form of the low-level client: checked, copied, compared."""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow, Rounded
from typing import TYPE_CHECKING, Any, Final

from .refusals import invalid, invalid_parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Value = dict[str, Any]
Item = dict[str, Value]
Scalar = str | bytes | int | Decimal

_PLAIN_NUMBER: Final = re.compile(r"(?:0|-?[1-9][0-9]{0,37})\Z")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_EXACT: Final = Context(prec=38, traps=[InvalidOperation, Inexact, Overflow])
_MAX_EXPONENT: Final = 125
_MIN_EXPONENT: Final = -130
_MAX_DEPTH: Final = 31  # maps and lists around a value, which is the 32nd level
_MAX_NAME_BYTES: Final = 65_536
_SET_ELEMENTS: Final = {"SS": "S", "NS": "N", "BS": "B"}
_SET_NAMES: Final = {"SS": "An string set ", "NS": "An number set ", "BS": "Binary sets"}


def take_item(item: Mapping[str, Any]) -> Item:
    """A checked copy of an item as the caller gave it; numbers in their normal form."""
    check_names(item)
    return {name: take_value(value) for name, value in item.items()}


def check_names(names: Iterable[str]) -> None:
    """Refuse a name of an attribute that is empty, or has 64 KB or more."""
    for name in names:
        if not name:
            raise invalid("Empty attribute name")
        if len(name) >= _MAX_NAME_BYTES // 4 and len(name.encode()) >= _MAX_NAME_BYTES:
            raise invalid(f"Attribute name is too large, must be less than {_MAX_NAME_BYTES} bytes")


def take_value(value: Any, depth: int = 0) -> Value:
    """A checked copy of one attribute value."""
    try:
        ((kind, raw),) = value.items()
    except (AttributeError, ValueError):
        raise invalid(
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
        ) from None

    if kind == "S":
        if raw.__class__ is not str:
            raise invalid(f"Invalid type for an attribute value of type S: {type(raw).__name__}")
        return {"S": raw}
    if kind == "N":
        return {"N": normal_number(raw)}

    take = _TAKERS.get(kind)
    if take is None:
        raise invalid(
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
        )
    return {kind: take(kind, raw, depth)}


def _take_binary(_kind: str, raw: Any, _depth: int) -> bytes:
    if isinstance(raw, str):  # base64 text is what the service sees, never what boto3 takes
        raise invalid("Invalid type for an attribute value of type B: str")
    # boto3's type `Binary` has its bytes in `value`
    return bytes(getattr(raw, "value", raw))


def _take_flag(kind: str, raw: Any, _depth: int) -> bool:
    if kind == "NULL" and raw is not True:
        raise invalid_parameter("Null attribute value types must have the value of true")
    return bool(raw)


def _take_map(_kind: str, raw: Any, depth: int) -> Item:
    _check_depth(depth)
    check_names(raw)
    return {name: take_value(value, depth + 1) for name, value in raw.items()}


def _take_list(_kind: str, raw: Any, depth: int) -> list[Value]:
    _check_depth(depth)
    return [take_value(value, depth + 1) for value in raw]


def _check_depth(depth: int) -> None:
    if depth >= _MAX_DEPTH:
        raise invalid("Nesting Levels have exceeded supported limits")


def _take_set(kind: str, raw: Any, depth: int) -> list[Any]:
    if not raw:
        raise invalid_parameter(f"{_SET_NAMES[kind]} may not be empty")
    element = _SET_ELEMENTS[kind]
    taken = [take_value({element: entry}, depth)[element] for entry in raw]
    # after normalizing: `1` and `1.0` are one number
    if len(set(taken)) != len(taken):
        raise invalid_parameter(f"Input collection {raw} contains duplicates.")
    return taken


_TAKERS: Final[dict[str, Callable[[str, Any, int], Any]]] = {
    "B": _take_binary,
    "BOOL": _take_flag,
    "NULL": _take_flag,
    "M": _take_map,
    "L": _take_list,
    "SS": _take_set,
    "NS": _take_set,
    "BS": _take_set,
}


def normal_number(text: Any) -> str:
    """The normal form of a number: no exponent, no useless zeros; refused beyond 38 digits."""
    if text.__class__ is not str:
        raise invalid(f"Invalid type for an attribute value of type N: {type(text).__name__}")
    # most numbers are in their normal form already: no arithmetic for them
    if _PLAIN_NUMBER.match(text):
        return text
    if not _NUMBER.match(text):
        raise invalid(
            f"The parameter cannot be converted to a numeric value: {text}"
            if text
            else "The parameter cannot be converted to a numeric value"
        )
    return number_text(Decimal(text))


def number(text: str) -> int | Decimal:
    """The number of a normal form; equal numbers are equal and hash alike."""
    # an int is exact and much faster
    return Decimal(text) if "." in text else int(text)


def number_text(value: int | Decimal) -> str:
    """The normal form of a number; refused beyond 38 significant digits or DynamoDB's range."""
    try:
        exact = _EXACT.create_decimal(value).normalize(_EXACT)
    except (Inexact, Rounded):
        raise invalid("Attempting to store more than 38 significant digits in a Number") from None

    if exact.is_zero():
        return "0"
    if exact.adjusted() > _MAX_EXPONENT:
        raise invalid(
            "Number overflow. Attempting to store a number with magnitude larger than supported "
            "range"
        )
    if exact.adjusted() < _MIN_EXPONENT:
        raise invalid(
            "Number underflow. Attempting to store a number with magnitude smaller than supported "
            "range"
        )
    return format(exact, "f")


def scalar(value: Value) -> Scalar:
    """The comparable form of a key or ordered value: text, bytes or number."""
    for kind, raw in value.items():
        return number(raw) if kind == "N" else raw
    raise ValueError("an attribute value names its type")


def kind_of(value: Value) -> str:
    """The type letter of a value: ``S``, ``N``, ``SS``..."""
    return next(iter(value))


def copy_value(value: Value) -> Value:
    """A copy that shares nothing that can change."""
    for kind, raw in value.items():
        if raw.__class__ is list:
            if kind == "L":
                return {kind: [copy_value(element) for element in raw]}
            return {kind: list(raw)}
        if raw.__class__ is dict:
            return {kind: copy_item(raw)}
        return {kind: raw}
    raise ValueError("an attribute value names its type")


def copy_item(item: Item) -> Item:
    """A copy of an item that shares nothing that can change."""
    return {name: copy_value(value) for name, value in item.items()}


def same(left: Value, right: Value) -> bool:
    """Equality as DynamoDB has it: sets have no order."""
    # fast for the usual case; only sets in another order are equal beyond this
    if left == right:
        return True
    kind = kind_of(left)
    if kind != kind_of(right):
        return False

    one, other = left[kind], right[kind]
    if kind in _SET_ELEMENTS:
        return set(one) == set(other)
    if kind == "M":
        return same_item(one, other)
    if kind == "L":
        return len(one) == len(other) and all(map(same, one, other))
    return False


def same_item(left: Item, right: Item) -> bool:
    """Whether two items (or maps) hold the same values under the same names."""
    if left.keys() != right.keys():
        return False
    return all(same(value, right[name]) for name, value in left.items())
