"""A clock that the test sets: nothing sleeps, nothing drifts."""

from __future__ import annotations

import threading


class ManualClock:
    """Epoch seconds that move only when told; `sleep` moves them too, and returns at once.

    >>> clock = ManualClock(1_000.0)
    >>> clock.sleep(2.5)
    >>> clock.now()
    1002.5
    """

    def __init__(self, start: float = 1_760_000_000.0) -> None:
        self._now = float(start)
        self._lock = threading.Lock()

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        return self._now

    def advance(self, seconds: float) -> float:
        """Move forward by `seconds` and return the new time; ValueError where negative."""
        if seconds < 0:
            raise ValueError("a clock advances: seconds is negative; use set() to go back")
        with self._lock:
            self._now += seconds
            return self._now

    def sleep(self, seconds: float) -> None:
        """Advance the clock without waiting; code under test calls it in place of `time.sleep`."""
        self.advance(max(0.0, seconds))

    def set(self, now: float) -> None:
        """Set the time, in epoch seconds, forward or back."""
        with self._lock:
            self._now = float(now)
