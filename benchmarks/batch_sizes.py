"""A batch's size and cost by arithmetic: items, nodes, bytes, request units, dollars.

Pure functions over the limits of the tree and the codec's own items, so that the figures of a batch
of a billion items need no such batch. The benchmark compares them with a real batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairbox.batches.additions import CHUNK, SMALL_GROUPS
from fairbox.batches.models import (
    MAX_GROUP_SIZE,
    NODE_GROUPS,
    ROOT_GROUPS,
    Leaf,
    Node,
    Record,
    Request,
    Root,
    first_group,
    node_of,
    ones,
)
from fairbox.codec.batches import item_of
from fairbox.testing.units import item_size

DOLLARS_PER_WRU: Final = 0.625e-6  # on demand, us-east-1
DOLLARS_PER_RRU: Final = 0.125e-6
_BATCH: Final = "00000000-0000-7000-8000-000000000000"
_DIGEST: Final = "0" * 32
_OPEN_WRU: Final = 2  # with the index
_COMPLETION_WRU: Final = 6  # transaction of root and message, with the index's two
_SEAL_WRU: Final = 3


@dataclass(frozen=True, slots=True)
class Units:
    """Request units and their on-demand price."""

    wru: float
    rru: float = 0.0

    @property
    def dollars(self) -> float:
        """In us-east-1."""
        return self.wru * DOLLARS_PER_WRU + self.rru * DOLLARS_PER_RRU


@dataclass(frozen=True, slots=True)
class Shape:
    """A batch whose items are added in one call.

    Attributes:
        items: number of items.
        group_size: items of a group; the last group is smaller.
        at_once: items of one group that an ack request names.
    """

    items: int
    group_size: int = MAX_GROUP_SIZE
    at_once: int = 1000

    @property
    def leaves(self) -> int:
        """Groups, each a leaf."""
        return -(-self.items // self.group_size)

    @property
    def nodes(self) -> int:
        """Nodes above the groups that are not children of the root."""
        last = node_of(self.leaves - 1)
        return 0 if last is None else last + 1

    @property
    def large(self) -> bool:
        """Whether the add is too large for one transaction."""
        return self.leaves > SMALL_GROUPS

    @property
    def last_size(self) -> int:
        """Items of the last group."""
        return self.items - self.group_size * (self.leaves - 1)

    def created(self) -> Units:
        """Return the cost of opening and adding."""
        if self.large:
            add = 8 + 2 * self.leaves + 2 * -(-self.leaves // CHUNK)
            reads = 3 + self.nodes  # root, request, root again
        else:
            add, reads = 4 + 2 * self.leaves, 2 + self.nodes
        return Units(_OPEN_WRU + add + 2 * self.nodes, reads)

    def acked(self) -> Units:
        """Return the cost of acking a sealed batch, group by group, to its completion.

        A request reads and writes its leaf; the first one of a leaf reads the request of a large
        add, too. The last one of a leaf reads parent and leaf, and writes the parent; an emptied
        node likewise. The last of these writes is the completion, which reads the metadata; what
        the publisher reads of its topic is left out.
        """
        full, last = -(-self.group_size // self.at_once), -(-self.last_size // self.at_once)
        requests = full * (self.leaves - 1) + last
        cleared = self.leaves + self.nodes
        return Units(
            requests + (cleared - 1) + _COMPLETION_WRU,
            requests + self.large * self.leaves + 2 * cleared + 1,
        )

    def sealed(self) -> Units:
        """Return the write units of a seal; its progress is not counted."""
        return Units(_SEAL_WRU, 1)

    def stored(self, *, hour: int, opened: int) -> int:
        """Return the bytes of all items right after the add.

        Args:
            hour: in hours since 1970 UTC, as written into leaves and nodes.
            opened: in milliseconds since 1970 UTC, as written into the root.
        """
        return sum(
            count * item_size(item_of(record)) for count, record in self._kinds(hour, opened)
        )

    def _kinds(self, hour: int, opened: int) -> list[tuple[int, Record]]:
        """Yield every item size and its number."""
        writer = _DIGEST if self.large else None
        found: list[tuple[int, Record]] = []
        for low, high in _decades(self.leaves - 1):
            found.append((high - low, _leaf(low, self.group_size, hour, writer)))
        found.append((1, _leaf(self.leaves - 1, self.last_size, hour, writer)))
        for node in range(self.nodes):
            groups = min(self.leaves - first_group(node), NODE_GROUPS)
            found.append((1, Node(_BATCH, node, ones(0, groups), hour=hour)))
        slots = min(self.leaves, ROOT_GROUPS)
        bits = ones(0, slots) | ones(ROOT_GROUPS, ROOT_GROUPS + self.nodes)
        root = Root(_BATCH, "open", opened, bits=bits, next_group=self.leaves, total=self.items,
                    version=2 + self.large, look=hour)  # fmt: skip
        request = Request(_BATCH, _DIGEST, done=True, first=0, count=self.items,
                          size=self.group_size)  # fmt: skip
        return [*found, (1, root), (1, request)]


def _leaf(group: int, size: int, hour: int, writer: str | None) -> Leaf:
    return Leaf(_BATCH, group, ones(0, size), size, size, hour=hour, request=writer)


def _decades(count: int) -> list[tuple[int, int]]:
    """Cut 0 .. count - 1 where one digit more is needed: a group's number is part of its key."""
    ranges, low, high = [], 0, 10
    while low < count:
        ranges.append((low, min(high, count)))
        low, high = high, high * 10
    return ranges
