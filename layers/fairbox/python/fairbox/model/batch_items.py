"""Ids of batch items: `batch:group:index`, as messages carry them and batches settle them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fairbox.errors import InvalidInput

_ITEM: Final = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,4})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class ItemId:
    """Names one item: batch, ordinal of its group, index within the group."""

    batch: str
    group: int
    index: int

    def __str__(self) -> str:
        return f"{self.batch}:{self.group}:{self.index}"


def parse_item(text: str) -> ItemId | None:
    """Return the item that `batch:group:index` names; None when the text names none."""
    found = _ITEM.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else ItemId(found[1], int(found[2]), int(found[3]))


def check_item(text: str | None, *, field: str = "batch_item") -> str | None:
    """Return an item's id when it is one, or None; whether it was issued is not looked at.

    Raises:
        InvalidInput: it is anything else; the error names `field`.
    """
    if text is not None and parse_item(text) is None:
        raise InvalidInput(field, "batch:group:index: a UUID and two whole numbers, or None")
    return text
