"""Values of the queue: received messages and figures, and checks of arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from fairbox.model.receipts import ClaimPlace
    from fairbox.tables.stored_messages import StoredMessage

MAX_MESSAGES: Final = 100
MAX_VISIBILITY_SECONDS: Final = 12 * 3600.0
MAX_WAIT_SECONDS: Final = 900.0
MAX_REASON_CHARACTERS: Final = 200
MAX_DELAY_SECONDS: Final = 366 * 24 * 3600.0
_LEAST_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True)
class Taken:
    """A claimed message: the place and token of its claim, its receive count, and its end (ms)."""

    stored: StoredMessage
    place: ClaimPlace
    token: bytes
    count: int
    until: int


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Figures of a queue, from its shard rows; they are half a minute behind.

    Attributes:
        topic: the topic's name.
        ready: messages in lanes `ready`, including messages that consumers hold.
        later: messages added with a delay and not yet acknowledged.
        dead: dead letters.
        in_flight: messages that consumers hold now; None: not counted (unordered topics, whose
            count reads the backlog).
    """

    topic: str
    ready: int
    later: int
    dead: int
    in_flight: int | None

    @property
    def outstanding(self) -> int:
        """Messages in `ready` and `later`."""
        return self.ready + self.later

    @property
    def visible(self) -> int | None:
        """Outstanding messages that no consumer holds, delayed ones among them; None: unknown."""
        return None if self.in_flight is None else max(0, self.outstanding - self.in_flight)


def check_count(value: int, field: str = "max_messages") -> int:
    """Return a number of messages to receive if it is valid.

    Raises:
        InvalidInput: it is not a whole number from 1 to 100; the error names `field`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_MESSAGES:
        raise InvalidInput(field, f"a whole number from 1 to {MAX_MESSAGES}")
    return value


def check_visibility(value: float, field: str = "visibility_timeout") -> int:
    """Return a visibility time-out, given in seconds, in milliseconds.

    Raises:
        InvalidInput: it is not a number over 0 and up to 12 hours; the error names `field`.
    """
    return _seconds(field, value, _LEAST_SECONDS, MAX_VISIBILITY_SECONDS)


def check_wait(value: float) -> int:
    """Return a time to wait, given in seconds, in milliseconds.

    Raises:
        InvalidInput: it is not a number from 0 to 900.
    """
    return _seconds("wait", value, 0.0, MAX_WAIT_SECONDS)


def check_delay(value: float) -> int:
    """Return a delay, given in seconds, in milliseconds.

    Raises:
        InvalidInput: it is not a number from 0 to 366 days.
    """
    return _seconds("delay", value, 0.0, MAX_DELAY_SECONDS)


def check_reason(value: str) -> str:
    """Return the reason, cut to the length that is kept.

    Raises:
        InvalidInput: it is not a text.
    """
    if not isinstance(value, str):
        raise InvalidInput("reason", "text")
    return value.encode("utf-8", "replace").decode()[:MAX_REASON_CHARACTERS]


def _seconds(field: str, value: float, low: float, high: float) -> int:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        raise InvalidInput(field, f"seconds from {low:g} to {high:g}")
    return round(value * 1000)
