"""What users' own tests need: an in-memory engine, a clock that they set, faults and a meter."""

from .clock import ManualClock
from .memory import MemoryDynamoDB

__all__ = ["ManualClock", "MemoryDynamoDB"]
