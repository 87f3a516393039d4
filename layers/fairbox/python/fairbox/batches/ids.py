"""Item ids, bitfields, and the shape of a batch's tree: groups, slots, nodes."""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_GROUP_SIZE: Final = 7168
ROOT_GROUPS: Final = 64
NODE_GROUPS: Final = 7168
ROOT_SLOTS: Final = 7168
MAX_GROUPS: Final = ROOT_GROUPS + (ROOT_SLOTS - ROOT_GROUPS) * NODE_GROUPS
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
