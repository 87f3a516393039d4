"""A function's process: its start, what all have, and the time limit that its calls keep to."""

from __future__ import annotations

import logging
import random
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from fairbox.model.clock import Clock, SystemClock, calls_until
from fairbox.sdk.clients import make_client
from fairbox.settings import RUNTIME_API, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    Handler = Callable[[dict[str, Any], Any], dict[str, Any]]

LAST_CALL_SECONDS: Final = 7.5
"""From the begin of the last call to the answer: 2 s to connect, 5 s to be answered, the rest."""


def make_at_start(*parts: Callable[[], object]) -> None:
    """Call each of `parts` where Lambda starts this process; elsewhere the first event does.

    Lambda starts a process with a whole CPU, and runs its events with a share that goes by memory:
    work of 0.1 s at the start takes 0.35 s of the first event at 512 MB.
    """
    if Settings.from_env().optional(RUNTIME_API):
        for part in parts:
            part()


class ProcessParts:
    """The parts of one function's process, each made when it is first asked for.

    Args:
        client: makes boto3 clients, as `make_client`.
    """

    def __init__(self, settings: Settings, client: Callable[..., Any] = make_client) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self.rng: random.Random = random.SystemRandom()
        self.client = client

    @classmethod
    def from_env(cls) -> Self:
        """Return the parts that the environment describes."""
        # Lambda's runtime logs warnings and above unless it is told
        logging.getLogger().setLevel(logging.INFO)
        return cls(Settings.from_env())


class Timed(Protocol):
    """An object that a function's process keeps, with a clock."""

    @property
    def clock(self) -> Clock:
        """The time."""


def ends_in_time(process: Callable[[], Timed]) -> Callable[[Handler], Handler]:
    """Return a decorator of handlers: an invocation begins no call 7.5 s before its time limit.

    A call that hangs then fails as unavailable, and the invocation ends with that error or with its
    results so far, instead of being cut off by Lambda without either. A time limit should be 15 s
    or more: of a shorter one, half is kept.

    Args:
        process: returns the object of this process that has the clock.
    """

    def decorate(handler: Handler) -> Handler:
        @wraps(handler)
        def bounded(event: dict[str, Any], context: Any) -> dict[str, Any]:
            clock = process().clock
            left = context.get_remaining_time_in_millis() / 1000
            with calls_until(clock, clock.now() + max(left - LAST_CALL_SECONDS, left / 2)):
                return handler(event, context)

        return bounded

    return decorate
