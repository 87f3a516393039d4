"""The phases of a soak run, and how long each lasts."""

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
"""Of a run's time; between the last two lies `draining`, which takes as long as it takes."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a run, from `begins` until before `ends`: seconds of a monotonic clock."""

    begins: float
    ends: float

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.ends - self.begins

    def measures(self, at: float) -> bool:
        """Whether a moment lies in it."""
        return self.begins <= at < self.ends
