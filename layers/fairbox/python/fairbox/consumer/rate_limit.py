"""The rate of a consumer: messages begun a second, by the generic cell rate algorithm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

BURST_SECONDS: Final = 0.1
"""The messages of so many seconds, one at least, may begin at once."""


class RateLimit:
    """A steady rate with a small burst.

    In `t` seconds, at most `rate * t` messages begin, and those of the burst in addition.

    Args:
        rate: messages a second, over 0.
        now: seconds that never go back.
    """

    def __init__(self, rate: float, now: Callable[[], float]) -> None:
        self._interval = 1 / rate
        self._tolerance = max(0.0, BURST_SECONDS - self._interval)
        self._now = now
        self._next = -math.inf  # when the next message would begin if all were evenly spaced

    @property
    def pause(self) -> float:
        """Seconds until a message may begin; 0: now."""
        return max(0.0, self._next - self._tolerance - self._now())

    def begin(self) -> None:
        """Count a message that begins."""
        self._next = max(self._next, self._now()) + self._interval

    def slots(self, seconds: float) -> int:
        """Return the number of messages that may begin within so many seconds."""
        now = self._now()
        left = now + seconds + self._tolerance - max(self._next, now)
        return 0 if left < 0 else 1 + math.floor(left / self._interval)
