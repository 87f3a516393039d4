"""Request units as DynamoDB bills them: item sizes, write units, read units, index units.

Items are in the wire form of the low-level client: ``{"pk": {"S": "a"}, "n": {"N": "1"}}``.
The rules are those of the DynamoDB developer guide ("Item sizes and formats", "Global secondary
indexes: provisioned throughput considerations").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

Item = Mapping[str, Mapping[str, Any]]

WRITE_UNIT: Final = 1024  # bytes
READ_UNIT: Final = 4096  # bytes
TRANSACTION_FACTOR: Final = 2  # on the base item, not on its index entries


def write_units(size: int) -> int:
    """Write units of an item of `size` bytes: one per started KB, at least one."""
    return max(1, -(-size // WRITE_UNIT))


def read_units(size: int, *, consistent: bool = False) -> float:
    """Read units of `size` bytes: one per started 4 KB, half where eventually consistent.

    Reading nothing costs as much as reading one byte.
    """
    whole = max(1, -(-size // READ_UNIT))
    return float(whole) if consistent else whole / 2


def item_size(item: Item) -> int:
    """Bytes of an item: names and values, in UTF-8."""
    total = 0
    for name, value in item.items():
        total += (len(name) if name.isascii() else len(name.encode())) + value_size(value)
    return total


def value_size(value: Mapping[str, Any]) -> int:  # noqa: PLR0911 - a ladder by type, hot
    """Bytes of one attribute value, without the name of its attribute."""
    for kind, raw in value.items():
        if kind == "S":
            return len(raw) if raw.isascii() else len(raw.encode())
        if kind == "N":
            return number_size(raw)
        if kind == "B":
            return len(raw)
        if kind == "M":
            return 3 + len(raw) + item_size(raw)
        if kind == "L":
            return 3 + len(raw) + sum(value_size(element) for element in raw)
        if kind == "SS":
            return sum(len(element.encode()) for element in raw)
        if kind == "NS":
            return sum(number_size(element) for element in raw)
        if kind == "BS":
            return sum(len(element) for element in raw)
        return 1  # BOOL, NULL
    raise ValueError("an attribute value names its type")


def number_size(text: str) -> int:
    """Bytes of a number: one for two significant digits, one more, one more for a sign."""
    sign = 1 if text.startswith("-") else 0
    digits = text.partition("E")[0].partition("e")[0].lstrip("+-").replace(".", "")
    return (len(digits.strip("0")) + 1) // 2 + 1 + sign


def index_entry(
    item: Item | None, key_names: Collection[str], projected: Collection[str] | None
) -> Item | None:
    """Return the entry of an index for `item`: None where a key attribute of the index is absent.

    `projected` are the attribute names that the index carries, keys of table and index included;
    None for an index that projects everything.
    """
    if item is None:
        return None
    for name in key_names:
        if name not in item:
            return None
    if projected is None:
        return item
    return {name: value for name, value in item.items() if name in projected}


def index_write_units(old: Item | None, new: Item | None, key_names: Collection[str]) -> int:
    """Write units of one index for one write of the table, from its entry before and after.

    Entering, leaving and a change of what is projected cost one write, a change of the index key
    two, an untouched entry nothing.
    """
    if old is None:
        return 0 if new is None else write_units(item_size(new))
    if new is None:
        return write_units(item_size(old))
    if any(old[name] != new[name] for name in key_names):
        return write_units(item_size(old)) + write_units(item_size(new))
    if old == new:
        return 0
    return write_units(max(item_size(old), item_size(new)))
