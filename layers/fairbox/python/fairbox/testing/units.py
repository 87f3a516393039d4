"""Request units as DynamoDB bills them: write units, read units, index units.

Items are in the wire form of the low-level client: ``{"pk": {"S": "a"}, "n": {"N": "1"}}``.
The rules are those of the DynamoDB developer guide ("Global secondary indexes: provisioned
throughput considerations").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from fairbox.tables.item_size import item_size, number_size, value_size

__all__ = [
    "TRANSACTION_FACTOR",
    "index_entry",
    "index_write_units",
    "item_size",
    "number_size",
    "read_units",
    "value_size",
    "write_units",
]

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


def index_entry(
    item: Item | None, key_names: Collection[str], projected: Collection[str] | None
) -> Item | None:
    """Return the entry of an index for `item`: None where a key attribute of the index is absent.

    `projected` are the attribute names that the index carries, keys of table and index included;
    None for an index that projects everything.
    """
    if item is None:
        return None
    # an index is sparse: without its keys an item has no entry, and costs nothing there
    for name in key_names:
        if name not in item:
            return None
    if projected is None:
        return item
    return {name: value for name, value in item.items() if name in projected}


def index_write_units(old: Item | None, new: Item | None, key_names: Collection[str]) -> int:
    """Write units of one index for one write of the table, from its entry before and after.

    Entering, leaving and a change of a projected attribute cost one write, a change of the index
    key two, an untouched entry nothing.
    """
    if old is None:
        return 0 if new is None else write_units(item_size(new))
    if new is None:
        return write_units(item_size(old))
    # the index deletes the old entry and puts a new one: two writes
    if any(old[name] != new[name] for name in key_names):
        return write_units(item_size(old)) + write_units(item_size(new))
    if old == new:
        return 0
    return write_units(max(item_size(old), item_size(new)))
