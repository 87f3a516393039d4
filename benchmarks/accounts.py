"""Costs by actor: readings of one meter around each actor's work."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairbox.testing import CostMeter, Reading

T = TypeVar("T")
Place = tuple[str, str, str, str]  # actor, operation, table, index ("": the table itself)


class Accounts:
    """Sums of request units and calls by actor.

    Args:
        meter: of the client that all actors share, one after the other.
    """

    def __init__(self, meter: CostMeter) -> None:
        self._meter = meter
        self._calls: Counter[tuple[str, str]] = Counter()
        self._wru: dict[Place, float] = defaultdict(float)
        self._rru: dict[Place, float] = defaultdict(float)

    def charge(self, actor: str, work: Callable[[], T]) -> T:
        """Do the work and charge its cost to the actor."""
        self._meter.reset()
        try:
            return work()
        finally:
            self._enter(actor, self._meter.reading())

    def _enter(self, actor: str, reading: Reading) -> None:
        for operation, count in reading.calls.items():
            self._calls[actor, operation] += count
        for (operation, table, index), cost in reading.costs.items():
            place = (actor, operation, table, index)
            self._wru[place] += cost.wru
            self._rru[place] += cost.rru

    def wru(self, *actors: str, **at: str) -> float:
        """Return write units of these actors (none named: all) at these places; see `rru`."""
        return _sum(self._wru, actors, at)

    def rru(self, *actors: str, **at: str) -> float:
        """Return read units of these actors (none named: all) at these places.

        `at` narrows: `operation`, `table`, `index`.
        """
        return _sum(self._rru, actors, at)

    def calls(self, *actors: str, operation: str | None = None) -> int:
        """Return the number of calls of these actors (none named: all)."""
        return sum(
            count
            for (actor, called), count in self._calls.items()
            if (not actors or actor in actors) and operation in (None, called)
        )


def _sum(costs: Mapping[Place, float], actors: tuple[str, ...], at: dict[str, str]) -> float:
    names = ("actor", "operation", "table", "index")
    total = 0.0
    for place, units in costs.items():
        where = dict(zip(names, place, strict=True))
        if (not actors or where["actor"] in actors) and at.items() <= where.items():
            total += units
    return total
