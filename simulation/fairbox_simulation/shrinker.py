"""Makes the world of a failing seed smaller, as long as it breaks the same guarantee."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox_simulation.scenarios import kind_of, without

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox_simulation.chaos import Chaos
    from fairbox_simulation.scenarios import Scenario

RUNS: Final = 200
"""Worlds that are tried for one failure, at most."""
_DOWN: Final = 8
"""Sizes that are tried below one whose next smaller one keeps its guarantees."""


@dataclass(frozen=True)
class Case:
    """A world that breaks a guarantee: how many messages or batches, and faults left out."""

    count: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shrunk:
    """The smallest case that was found.

    Attributes:
        case: it.
        breaches: that it shows, those of the same kind among them.
        runs: worlds that were tried.
    """

    case: Case
    breaches: tuple[str, ...]
    runs: int


class Shrinker:
    """Tries smaller cases of one seed, greedily and always in the same order.

    Args:
        scenario: of the seed.
        seed: that failed.
        chaos: with which it did.
        kind: of the breach that must stay.
        runs: worlds to try at most.
    """

    def __init__(
        self, scenario: Scenario, seed: int, chaos: Chaos, kind: str, *, runs: int = RUNS
    ) -> None:
        self._scenario = scenario
        self._seed = seed
        self._chaos = chaos
        self._kind = kind
        self._runs = runs
        self._tried: dict[Case, tuple[str, ...]] = {}

    def shrink(self, case: Case, breaches: tuple[str, ...]) -> Shrunk:
        """Return the smallest case that was found; the one given where none is smaller.

        Args:
            case: that breaks the guarantee.
            breaches: that it shows.
        """
        self._tried[case] = breaches
        before = None
        with self._scenario.around():
            while case != before:
                before = case
                case = self._fewer_faults(self._fewer_messages(case))
        return Shrunk(case, self._tried[case], len(self._tried) - 1)

    def _fails(self, case: Case) -> bool:
        """Whether a case breaks the same guarantee; what may not be tried any more does not."""
        if case not in self._tried:
            if len(self._tried) > self._runs:
                return False
            chaos = without(self._chaos, case.left_out)
            found = self._scenario.breaches(self._seed, chaos, case.count)
            self._tried[case] = tuple(found)
        return self._kind in map(kind_of, self._tried[case])

    def _fewer_messages(self, case: Case) -> Case:
        """Double from one on, halve the range, go down; fewer need not fail where more do.

        Small worlds are tried first because they are quick.
        """
        low, high = 0, 1
        while high < case.count and not self._fails(replace(case, count=high)):
            low, high = high, 2 * high
        high = min(high, case.count)
        while high - low > 1:
            middle = (low + high) // 2
            if self._fails(replace(case, count=middle)):
                high = middle
            else:
                low = middle
        while below := next(self._below(replace(case, count=high)), None):
            high = below.count
        return replace(case, count=high)

    def _below(self, case: Case) -> Iterator[Case]:
        """Yield cases that fail, of the next smaller sizes."""
        for count in range(case.count - 1, max(0, case.count - 1 - _DOWN), -1):
            smaller = replace(case, count=count)
            if self._fails(smaller):
                yield smaller

    def _fewer_faults(self, case: Case) -> Case:
        for fault in self._scenario.faults:
            if fault in case.left_out or not getattr(self._chaos, fault):
                continue
            simpler = replace(case, left_out=(*case.left_out, fault))
            if self._fails(simpler):
                case = simpler
        return case
