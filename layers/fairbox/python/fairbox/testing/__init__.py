"""What users' own tests need: an in-memory engine, a clock that they set, faults and a meter."""

from .clock import ManualClock
from .faults import Fault, FaultyDynamoDB
from .memory import MemoryDynamoDB
from .meter import Cost, CostMeter, Reading
from .streams import Stream

__all__ = [
    "Cost",
    "CostMeter",
    "Fault",
    "FaultyDynamoDB",
    "ManualClock",
    "MemoryDynamoDB",
    "Reading",
    "Stream",
]
