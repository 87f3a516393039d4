"""Sizes of items as DynamoDB counts them ("Item sizes and formats" of its developer guide).

Items are in the wire form of the low-level client: ``{"pk": {"S": "a"}, "n": {"N": "1"}}``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    Item = Mapping[str, Mapping[str, Any]]


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
        # three bytes for the collection, and one for each element
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
    # DynamoDB keeps neither leading nor trailing zeroes
    return (len(digits.strip("0")) + 1) // 2 + 1 + sign
