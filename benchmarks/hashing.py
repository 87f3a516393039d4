"""Spread of keys over partitions and their shards, and correlation of the two hashes."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from fairbox.model.epochs import shard_number
from fairbox.model.sharding import partition_number

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH: Final = 8  # partitions, and as many shards of each: where one hash for both would show
KEYS: Final = 100_000
_ONE_HASH: Final = "one hash for both"
Cells = Counter[tuple[int, int]]


def figures(*, keys: int = KEYS, width: int = WIDTH) -> list[Figure]:
    """Return the figures of so many keys over `width` partitions of `width` shards each."""
    names = [f"customer-{number}" for number in range(keys)]
    ours, one = cells(names, partition_number, width), cells(names, shard_number, width)
    return [
        Figure(
            "hash.cells_used",
            f"cells of {width**2}",
            len(ours),
            len(one),
            _ONE_HASH,
        ),
        Figure("hash.max_by_mean.cells", "ratio", _unevenness(ours, width**2)),
        Figure("hash.max_by_mean.partitions", "ratio", _unevenness(_sums(ours, 0), width)),
        Figure("hash.max_by_mean.shards", "ratio", _unevenness(_sums(ours, 1), width)),
        Figure(
            "hash.dependence",
            "share",
            dependence(ours, width),
            dependence(one, width),
            _ONE_HASH,
        ),
    ]


def cells(keys: Sequence[str], partition_of: Callable[[str, int], int], width: int) -> Cells:
    """Count the keys by partition and shard."""
    return Counter((partition_of(key, width), shard_number(key, width)) for key in keys)


def dependence(found: Cells, width: int) -> float:
    """Return Cramér's V of partition and shard.

    Returns:
        0 if they are independent, 1 if one determines the other; chance alone gives about
        `sqrt((width - 1) / keys)`.
    """
    total = found.total()
    partitions, shards = _sums(found, 0), _sums(found, 1)
    squares = 0.0
    for partition in partitions:
        for shard in shards:
            expected = partitions[partition] * shards[shard] / total
            squares += (found[partition, shard] - expected) ** 2 / expected
    return math.sqrt(squares / total / (width - 1))


def _sums(found: Cells, axis: int) -> Counter[int]:
    sums: Counter[int] = Counter()
    for cell, count in found.items():
        sums[cell[axis]] += count
    return sums


def _unevenness(counts: Counter[int] | Cells, places: int) -> float:
    return max(counts.values()) * places / counts.total()
