"""Time as a parameter: the port, and the machine's own clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time in seconds since 1970 UTC, and waiting."""

    def now(self) -> float:
        """Return seconds since 1970 UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return seconds since 1970 UTC."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        time.sleep(seconds)


def milliseconds(clock: Clock) -> int:
    """Return the clock's time as whole milliseconds since 1970 UTC."""
    return int(clock.now() * 1000)
