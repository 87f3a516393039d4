"""Time as a parameter: the clock, and the time after which the running work begins no call."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_TIME: Final = "no time is left for the call"
_END: Final[ContextVar[tuple[Clock, float] | None]] = ContextVar("end", default=None)


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


@contextmanager
def calls_until(clock: Clock, time: float) -> Iterator[None]:
    """Prevent new calls to services in the block after `time` (seconds since 1970 UTC).

    Every client and every retry keeps to it, so the block ends within one call of that time. It
    holds in threads that run in a copy of the context. A nested block cannot extend it.
    """
    token = _END.set((clock, min(time, clock.now() + seconds_left())))
    try:
        yield
    finally:
        _END.reset(token)


def check_seconds(seconds: object, *, longest_call: float = 0) -> float:
    """Return a time limit, in seconds, if there is time for two calls that long.

    Raises:
        InvalidInput: it is no number, or too short.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidInput("deadline", f"seconds over 0, got {seconds!r}")
    if seconds < 2 * longest_call:
        raise InvalidInput(
            "deadline",
            f"{2 * longest_call:g} or more, for a call of this client may take {longest_call:g} s; "
            f"make the client with config=fairbox.client_config({seconds:g})",
        )
    return seconds


def seconds_left() -> float:
    """Return the seconds in which calls may begin: infinite outside of such a block."""
    end = _END.get()
    return inf if end is None else end[1] - end[0].now()


def out_of_time() -> bool:
    """Whether no call may begin any more: stop, and leave the rest to the next invocation."""
    return seconds_left() <= 0
