"""Fair dispatch: pending work, readiness and limits in; what to send next out. No AWS in it."""

from fairbox.dispatch.fair.cycles import Cycles
from fairbox.dispatch.fair.direct import DirectShare
from fairbox.dispatch.fair.pending import Pending
from fairbox.dispatch.fair.turns import QUANTUM, Turns
from fairbox.dispatch.fair.work import Work

__all__ = ["QUANTUM", "Cycles", "DirectShare", "Pending", "Turns", "Work"]
