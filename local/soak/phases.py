"""The phases of a soak run and their durations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WARMING, STEADY, OVERLOAD, DRAINING, RECOVERED = (
    "warming",
    "steady",
    "overload",
    "draining",
    "recovered",
)
SHARES: Final = {WARMING: 0.15, STEADY: 0.35, OVERLOAD: 0.15, RECOVERED: 0.35}
"""Shares of a run's time. `draining`, between the last two, takes as long as it needs."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run, from `begins` until before `ends`: seconds of a monotonic clock."""

    begins: float
    ends: float

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.ends - self.begins

    def measures(self, at: float) -> bool:
        """Whether a moment lies in it."""
        return self.begins <= at < self.ends
