"""Batch ids, bitfields, and the shape of a batch's tree: groups, slots, nodes."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput
from fairbox.model.batch_items import ItemId, parse_item

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_GROUP_SIZE: Final = 7168
ROOT_GROUPS: Final = 64
NODE_GROUPS: Final = 7168
ROOT_SLOTS: Final = 7168
MAX_GROUPS: Final = ROOT_GROUPS + (ROOT_SLOTS - ROOT_GROUPS) * NODE_GROUPS


def check_batch_id(text: str, *, field: str = "id") -> str:
    """Return a batch id when it is a UUID's canonical text.

    Raises:
        InvalidInput: it is anything else.
    """
    canonical = None
    with suppress(ValueError, AttributeError, TypeError):
        canonical = str(uuid.UUID(text))
    if canonical != text:
        raise InvalidInput(field, "a UUID in lower-case canonical text")
    return text


def node_of(group: int) -> int | None:
    """Return the number of the node that covers a group; None: the root does."""
    return None if group < ROOT_GROUPS else (group - ROOT_GROUPS) // NODE_GROUPS


def first_group(node: int) -> int:
    """Return the first group that a node covers."""
    return ROOT_GROUPS + NODE_GROUPS * node


def bit_of(group: int) -> int:
    """Return a group's bit in its parent: its slot in the root, or its bit in the node."""
    node = node_of(group)
    return group if node is None else group - first_group(node)


def slot_of(node: int) -> int:
    """Return the root's slot of a node."""
    return ROOT_GROUPS + node


def mask(indexes: Iterable[int]) -> int:
    """Return the bitfield with these bits."""
    field = 0
    for index in indexes:
        field |= 1 << index
    return field


def ones(low: int, high: int) -> int:
    """Return the bitfield with bits `low` to `high` - 1."""
    return ((1 << (high - low)) - 1) << low if high > low else 0


def bits(field: int) -> Iterator[int]:
    """Yield the bits of a bitfield, ascending."""
    for place, byte in enumerate(field.to_bytes((field.bit_length() + 7) // 8, "little")):
        for bit in range(8 if byte else 0):
            if byte >> bit & 1:
                yield place * 8 + bit


def pack(field: int, size: int) -> bytes:
    """Return the bytes of a bitfield: bit i is byte `i >> 3`, bit `i & 7`."""
    return field.to_bytes((size + 7) // 8, "little")


def unpack(raw: bytes) -> int:
    """Return the bitfield that `pack` wrote."""
    return int.from_bytes(raw, "little")


__all__ = [
    "MAX_GROUPS",
    "MAX_GROUP_SIZE",
    "NODE_GROUPS",
    "ROOT_GROUPS",
    "ROOT_SLOTS",
    "ItemId",
    "bit_of",
    "bits",
    "check_batch_id",
    "first_group",
    "mask",
    "node_of",
    "ones",
    "pack",
    "parse_item",
    "slot_of",
    "unpack",
]
