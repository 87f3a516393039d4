"""Fair dispatch, without AWS: the next calls, from pending work, readiness and limits."""

from fairbox.dispatch.fair.cycles import Cycles
from fairbox.dispatch.fair.pending_work import (
    QUANTUM,
    DeficitRoundRobin,
    DirectShare,
    Pending,
    Work,
)

__all__ = ["QUANTUM", "Cycles", "DeficitRoundRobin", "DirectShare", "Pending", "Work"]
