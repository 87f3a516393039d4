"""The settings of a consumer, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairbox.errors import InvalidInput

MAX_CONCURRENCY: Final = 1_000
MAX_VISIBILITY_SECONDS: Final = 12 * 3600
MAX_RECEIVE: Final = 10
"""Messages of one receive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds a consumer.

    Attributes:
        concurrency: workers, 1 to 1,000.
        visibility_timeout: seconds that a message is ours without a heartbeat, 1 to 43,200.
        max_attempts: receives after which a message that fails dies, 1 to 1,000.
        prefetch: messages that may wait for a worker, 0 to 1,000.
        shutdown_timeout: seconds that a stop waits for handlers.
        processing_limit: seconds after which a handler hangs, and its message is let go.
        idle: seconds between two receives that find nothing, at most.
        linger: seconds that an ack waits for others to go with it, at most.
    """

    concurrency: int = 4
    visibility_timeout: float = 30
    max_attempts: int = 10
    prefetch: int = 4
    shutdown_timeout: float = 30.0
    processing_limit: float = 3600.0
    idle: float = 2.0
    linger: float = 0.05

    def __post_init__(self) -> None:
        _whole("concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        _whole("max_attempts", self.max_attempts, 1, 1000)
        _whole("prefetch", self.prefetch, 0, 1000)
        _seconds("visibility_timeout", self.visibility_timeout, 1, MAX_VISIBILITY_SECONDS)
        _seconds("shutdown_timeout", self.shutdown_timeout, 0, 24 * 3600)
        _seconds("processing_limit", self.processing_limit, 1, 7 * 24 * 3600)
        _seconds("idle", self.idle, 0.01, 3600)
        _seconds("linger", self.linger, 0, self.visibility_timeout / 3)

    @property
    def heartbeat(self) -> float:
        """Seconds between two extensions of a message."""
        return self.visibility_timeout / 3


def _whole(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(name, f"a whole number from {low} to {high:,}")


def _seconds(name: str, value: float, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise InvalidInput(name, f"seconds from {low} to {high}")
