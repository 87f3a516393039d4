"""Trend of a series of samples: a robust slope with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

Point = tuple[float, float]
BLOCKS: Final = 40
LEAST: Final = 6
"""Fewest points of a stratum that allow a conclusion."""
_Z: Final = 3.29  # one of a thousand flat series is reported as rising


@dataclass(frozen=True, slots=True)
class Trend:
    """A slope, in units of y by units of x, and the bounds that it lies between (99.9 %)."""

    slope: float
    low: float
    high: float


def trend(strata: Sequence[Sequence[Point]]) -> Trend | None:
    """Return the slope within strata; changes between strata are ignored.

    It is the median of the slopes of all pairs of points that lie in one stratum (Theil and Sen;
    with strata, Hirsch), so neither steps between phases nor single outliers move it. The bounds
    are those of Kendall's statistic. Points of each stratum are first reduced to medians of
    blocks, because neighbouring samples are correlated.

    Args:
        strata: points (x, y) by ascending x; those with under `LEAST` points are left out.

    Returns:
        None if no stratum has enough points.
    """
    taken = [thinned(points) for points in strata if len(points) >= LEAST]
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for points in taken
        for number, earlier in enumerate(points)
        for later in points[number + 1 :]
        if later[0] > earlier[0]
    )
    if not slopes:
        return None
    sizes = [len(points) for points in taken]
    spread = _Z * sqrt(sum(n * (n - 1) * (2 * n + 5) / 18 for n in sizes))
    first, last = (len(slopes) - spread) / 2, (len(slopes) + spread) / 2
    low = slopes[int(first)] if first >= 0 else -inf
    high = slopes[int(last)] if last < len(slopes) else inf
    return Trend(median(slopes), low, high)


def thinned(points: Sequence[Point], blocks: int = BLOCKS) -> list[Point]:
    """Return the medians of consecutive blocks, or the points themselves if they are few."""
    if len(points) <= blocks:
        return list(points)
    edges = [len(points) * number // blocks for number in range(blocks + 1)]
    parts = [points[start:end] for start, end in pairwise(edges)]
    return [(median(x for x, _ in part), median(y for _, y in part)) for part in parts]
