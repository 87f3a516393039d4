"""The lines that this process has seen to be slow: callers that must not wait avoid them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

SLOW_SECONDS: Final = 1.0
"""A call that takes so long holds up the stream's other messages."""
SLOW_VISIT_SECONDS: Final = 0.2
"""A call that takes so long holds up a visit's other subscriptions."""
FIRST_REST_SECONDS: Final = 60.0
LONGEST_REST_SECONDS: Final = 960.0
_TRIAL_SHARE: Final = 0.1  # of the time, for which a process waits for lines that it does not know


@dataclass(frozen=True, slots=True)
class _Rest:
    until: float
    seconds: float


class SlowDestinations:
    """The lines that this process has seen to be slow.

    The relay waits for its calls, and a part of the stream waits for the relay; a visit waits for
    its calls, and others for its worker. So a slow destination gets one call from them in a number
    of minutes: one minute after the first, doubling to 16. After one fast call the line counts as
    fast again.

    Args:
        seconds: the duration from which a call is slow.
        rng: spreads trials, so that processes that began together do not wait together.
    """

    def __init__(self, seconds: float = SLOW_SECONDS, rng: Random | None = None) -> None:
        self._seconds = seconds
        self._rng = rng
        self._rests: dict[str, _Rest] = {}
        self._fast: set[str] = set()
        self._no_trial_before = 0.0

    def took(self, line: str, seconds: float, now: float, *, waited: bool = False) -> None:
        """Note the duration of a call that ended at `now` (seconds since 1970).

        Args:
            line: the line that was called.
            seconds: the duration.
            now: when it ended.
            waited: whether somebody waited who must not.
        """
        if seconds < self._seconds:
            self._rests.pop(line, None)
            self._fast.add(line)
            return

        self._fast.discard(line)
        if waited:
            spread = 1.0 if self._rng is None else 0.5 + self._rng.random()
            pause = seconds * spread / _TRIAL_SHARE
            self._no_trial_before = max(self._no_trial_before, now + pause)

        before = self._rests.get(line)
        if before is not None and now < before.until:
            return  # a call that began before the rest
        rest = FIRST_REST_SECONDS if before is None else before.seconds * 2
        rest = min(rest, LONGEST_REST_SECONDS)
        self._rests[line] = _Rest(now + rest, rest)

    def slow(self, line: str, now: float) -> bool:
        """Whether a caller that must not wait should leave the line alone."""
        rest = self._rests.get(line)
        return rest is not None and now < rest.until

    def avoided(self, line: str, now: float) -> bool:
        """As `slow`; also while the caller has waited enough, if the line is not known as fast.

        Each process has to wait for each slow line once, and again after its rests. With many slow
        lines and many processes that would take all workers for a minute. So a process waits a
        tenth of its time for them.
        """
        return self.slow(line, now) or (line not in self._fast and now < self._no_trial_before)
