"""Fair dispatch: pending work, readiness and limits in; what to send next out. No AWS in it."""

from fairbox.dispatch.fair.cycles import Cycles
from fairbox.dispatch.fair.deficit_round_robin import QUANTUM, Turns
from fairbox.dispatch.fair.direct_share import DirectShare
from fairbox.dispatch.fair.pending_work import Pending
from fairbox.dispatch.fair.work_item import Work

__all__ = ["QUANTUM", "Cycles", "DirectShare", "Pending", "Turns", "Work"]
