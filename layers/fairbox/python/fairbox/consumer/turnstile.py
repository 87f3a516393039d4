"""The turnstile of a consumer's workers, and the rate at which it lets messages begin."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Final

from fairbox.consumer.options import TICK_SECONDS, Permits

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.consumer.in_flight import InFlight, InFlightMessage

BURST_SECONDS: Final = 0.1
"""The messages of so many seconds, one at least, may begin at once."""
PERMIT_SECONDS: Final = 0.1
"""Maximum wait for a permit: a stop is not noticed before."""


class RateLimit:
    """A steady rate with a small burst, by the generic cell rate algorithm.

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


class Turnstile:
    """Gives workers their messages, in order, when rate and permits allow it.

    All workers except one wait for a lock, so that many waiting workers cost nothing.

    Args:
        rate: a limit on the messages begun a second; None: none.
        permits: a limit on concurrent handlers; None: none.
    """

    def __init__(
        self, in_flight: InFlight, rate: RateLimit | None, permits: Permits | None
    ) -> None:
        self._in_flight = in_flight
        self._rate = rate
        self._permits = permits
        self._lock = threading.Lock()

    def enter(self) -> InFlightMessage | None:
        """Wait a second for a message; return it, or None. `leave` when it is handled."""
        with self._lock:
            if not self._in_flight.wait_for_work(TICK_SECONDS) or not self._may_begin():
                return None
            # last: a worker that waits for its turn must not keep a permit from others
            if self._permits is not None and not self._permits.acquire(PERMIT_SECONDS):
                return None

            message = self._in_flight.take()
            if message is None:
                # it was released or lost in the meantime
                self.leave()
            elif self._rate is not None:
                self._rate.begin()
            return message

    def leave(self) -> None:
        """Let another worker begin in place of one that entered."""
        if self._permits is not None:
            self._permits.release()

    def _may_begin(self) -> bool:
        """Wait for the rate, a second at most; return whether a message may begin."""
        pause = 0.0 if self._rate is None else self._rate.pause
        if pause:
            # a stop must not wait for a slow rate
            self._in_flight.wait_for_close(min(pause, TICK_SECONDS))
            pause = 0.0 if self._rate is None else self._rate.pause
        return not pause
