"""How fast destinations answer: one that turns slow is left to visits for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SLOW_SECONDS: Final = 1.0
"""A call that takes so long holds up the stream's other messages."""
FIRST_REST_SECONDS: Final = 60.0
LONGEST_REST_SECONDS: Final = 960.0


@dataclass(frozen=True, slots=True)
class _Rest:
    until: float
    seconds: float


class Pace:
    """Which lines were slow, as this process has seen them.

    The relay waits for the calls that it makes, and a part of the stream waits for the relay. So
    one call in so many minutes is what a slow destination may cost it: a minute after the first,
    doubling to 16. One fast call, and the line is fast again.
    """

    def __init__(self) -> None:
        self._rests: dict[str, _Rest] = {}

    def took(self, line: str, seconds: float, now: float) -> None:
        """Note how long a call took that ended at `now` (seconds since 1970)."""
        if seconds < SLOW_SECONDS:
            self._rests.pop(line, None)
            return
        before = self._rests.get(line)
        if before is not None and now < before.until:
            return  # a call that began before the rest
        rest = FIRST_REST_SECONDS if before is None else before.seconds * 2
        rest = min(rest, LONGEST_REST_SECONDS)
        self._rests[line] = _Rest(now + rest, rest)

    def slow(self, line: str, now: float) -> bool:
        """Whether the line is to be left alone by who must not wait."""
        rest = self._rests.get(line)
        return rest is not None and now < rest.until
