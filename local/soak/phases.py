"""The phases of a soak run, and which part of each is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHARES: Final = {"warming": 0.15, "steady": 0.3, "overload": 0.15, "recovery": 0.4}
"""Of a run's time; `recovery` is measured over its second half, when it should be over."""
_SETTLING: Final = {"recovery": 0.5}


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a run, on a clock of the caller's.

    Attributes:
        name: one of `SHARES`.
        begins, ends: seconds.
        measured: from when on it is measured.
    """

    name: str
    begins: float
    ends: float
    measured: float

    def measures(self, at: float) -> bool:
        """Whether a moment lies in the part that is measured."""
        return self.measured <= at < self.ends


def plan(begin: float, seconds: float) -> dict[str, Phase]:
    """Return the phases of a run that begins at a moment and lasts so long, in order."""
    found: dict[str, Phase] = {}
    at = begin
    for name, share in SHARES.items():
        length = seconds * share
        measured = at + length * _SETTLING.get(name, 0.0)
        found[name] = Phase(name, at, at + length, measured)
        at += length
    return found
