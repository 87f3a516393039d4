"""Rows by partition, sorted within it: the store of a table and of each of its indexes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from hashlib import md5
from typing import TYPE_CHECKING, Any, Final

from fairbox.testing.units import item_size

from .values import Item, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN_SPAN: Final = 1 << 64
Position = tuple[Scalar, Any]  # hash value, sort position


class Row:
    """A stored item and its size in bytes; never changed, only replaced."""

    __slots__ = ("item", "size")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.size = item_size(item)


class Partition:
    """The rows of one hash value, by sort position."""

    __slots__ = ("order", "rows")

    def __init__(self) -> None:
        self.order: list[Any] = []
        self.rows: dict[Any, Row] = {}


class Store:
    """Partitions, and their order for scans: by a digest of the hash value, as a hash table's."""

    def __init__(self) -> None:
        self.partitions: dict[Scalar, Partition] = {}
        self._tokens: list[tuple[int, Scalar]] = []

    def get(self, position: Position) -> Row | None:
        """The row at a position."""
        partition = self.partitions.get(position[0])
        return None if partition is None else partition.rows.get(position[1])

    def put(self, position: Position, row: Row) -> None:
        """Insert or replace a row."""
        hash_value, sort = position
        partition = self.partitions.get(hash_value)
        if partition is None:
            partition = self.partitions[hash_value] = Partition()
            insort(self._tokens, (token_of(hash_value), hash_value))

        rows, order = partition.rows, partition.order
        if sort not in rows:
            # ids grow with time, so most rows go to the end, where no search is needed
            if not order or sort > order[-1]:
                order.append(sort)
            else:
                insort(order, sort)
        rows[sort] = row

    def remove(self, position: Position) -> None:
        """Take a row out, where it is there."""
        hash_value, sort = position
        partition = self.partitions.get(hash_value)
        if partition is None or partition.rows.pop(sort, None) is None:
            return
        order = partition.order
        del order[bisect_left(order, sort)]
        # an empty partition leaves, or scans would slow down with all that ever was
        if not order:
            del self.partitions[hash_value]
            del self._tokens[bisect_left(self._tokens, (token_of(hash_value), hash_value))]

    def scan(self, first: int, last: int, after: Position | None) -> Iterator[Row]:
        """Rows of the partitions with ``first <= token < last``, behind `after` where given."""
        tokens = self._tokens
        begin = bisect_left(tokens, first, key=_token)

        if after is not None:
            place = (token_of(after[0]), after[0])
            # the start key may lie before this segment, and its partition be gone
            begin = max(begin, bisect_left(tokens, place))
            # the partition in which the page before ended goes on behind its row
            if begin < len(tokens) and tokens[begin] == place and first <= place[0] < last:
                partition = self.partitions[after[0]]
                for sort in partition.order[bisect_right(partition.order, after[1]) :]:
                    yield partition.rows[sort]
                begin += 1

        for token, hash_value in tokens[begin:]:
            if token >= last:
                return
            partition = self.partitions[hash_value]
            for sort in partition.order:
                yield partition.rows[sort]

    def __len__(self) -> int:
        return sum(len(partition.rows) for partition in self.partitions.values())


def _token(entry: tuple[int, Scalar]) -> int:
    return entry[0]


def token_of(hash_value: Scalar) -> int:
    """The position of a hash value in scan order, below `TOKEN_SPAN`."""
    raw = hash_value if isinstance(hash_value, bytes) else str(hash_value).encode()
    return int.from_bytes(md5(raw, usedforsecurity=False).digest()[:8], "big")
