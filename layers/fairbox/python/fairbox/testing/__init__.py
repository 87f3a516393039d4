"""Doubles for users' own tests: an in-memory engine, a manual clock, faults and a meter."""

from fairbox.dispatch.ports import TAKEN, Outcome

from .faults import Fault, FaultyDynamoDB
from .manual_clock import ManualClock
from .memory import MemoryDynamoDB
from .meter import Cost, CostMeter, Reading
from .streams import Stream

__all__ = [
    "TAKEN",
    "Cost",
    "CostMeter",
    "Fault",
    "FaultyDynamoDB",
    "ManualClock",
    "MemoryDynamoDB",
    "Outcome",
    "Reading",
    "Stream",
]
