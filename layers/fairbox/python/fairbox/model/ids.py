"""Message ids: UUIDv7 (RFC 9562), monotonic within a process."""

from __future__ import annotations

import secrets
import threading
import uuid
from typing import TYPE_CHECKING

from fairbox.errors import InvalidInput
from fairbox.model.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.model.clock import Clock

_RANDOM_BITS = 74
_MAX_RANDOM = (1 << _RANDOM_BITS) - 1
_MAX_MS = (1 << 48) - 1
_TEXT_LENGTH = 36
_VERSION_AT = 14
_VARIANT_AT = 19


class IdGenerator:
    """Makes UUIDv7 texts in ascending order, whatever the clock does.

    A new millisecond takes 74 fresh random bits; within one, and when the clock steps back, the
    last value grows by a random step (RFC 9562, section 6.2, method 2).

    Args:
        clock: gives the time.
        randbits: gives that many random bits; `secrets.randbits` by default.
    """

    def __init__(
        self, clock: Clock | None = None, randbits: Callable[[int], int] = secrets.randbits
    ) -> None:
        self._clock = clock or SystemClock()
        self._randbits = randbits
        self._lock = threading.Lock()
        self._last = (0, 0)

    def next(self, after: str | None = None) -> str:
        """Return the next id: above every id given before, and above `after` where it is given.

        Raises:
            InvalidInput: `after` is not a UUIDv7, or is the last that there is.
        """
        floor = _parts(after) if after is not None else (0, 0)
        with self._lock:
            now = min(int(self._clock.now() * 1000), _MAX_MS)
            least = max(self._last, floor)
            if now > least[0]:
                self._last = (now, self._randbits(_RANDOM_BITS - 1))
            else:
                ms, value = least[0], least[1] + 1 + self._randbits(32)
                if value > _MAX_RANDOM:
                    ms, value = ms + 1, self._randbits(32)
                if ms > _MAX_MS:
                    raise InvalidInput("after", "an id that another can sort above")
                self._last = (ms, value)
            return _text(*self._last)


def _text(ms: int, value: int) -> str:
    high, low = value >> 62, value & ((1 << 62) - 1)
    return str(uuid.UUID(int=(ms << 80) | (7 << 76) | (high << 64) | (2 << 62) | low))


def _parts(message_id: str) -> tuple[int, int]:
    value = uuid.UUID(parse_id(message_id, field="after")).int
    return value >> 80, ((value >> 64) & 0xFFF) << 62 | (value & ((1 << 62) - 1))


def parse_id(text: str, *, field: str = "id") -> str:
    """Return the id when it is the canonical text of a UUIDv7.

    Raises:
        InvalidInput: it is anything else; the error names `field`.
    """
    try:
        canonical = str(uuid.UUID(text)) if len(text) == _TEXT_LENGTH else ""
    except (ValueError, AttributeError, TypeError):
        canonical = ""
    versioned = canonical[_VERSION_AT : _VERSION_AT + 1] == "7"
    if canonical != text or not versioned or canonical[_VARIANT_AT] not in "89ab":
        raise InvalidInput(field, "a UUIDv7 in lower-case canonical text")
    return text


def time_of(message_id: str) -> int:
    """Return the id's time in milliseconds since 1970 UTC."""
    return int(message_id[:8] + message_id[9:13], 16)


def bound_of(ms: int) -> str:
    """Return the text above which lie the ids of a millisecond and all after it."""
    text = f"{max(0, ms):012x}"
    return f"{text[:8]}-{text[8:]}"


def before(message_id: str) -> str:
    """Return the text that sorts directly below an id, for bounds; it need not be an id."""
    return str(uuid.UUID(int=max(0, uuid.UUID(message_id).int - 1)))


def behind(message_id: str) -> str:
    """Return the text that sorts directly above an id, for bounds; it need not be an id."""
    return str(uuid.UUID(int=uuid.UUID(message_id).int + 1))


_process = IdGenerator()


def new_id(after: str | None = None) -> str:
    """Return the next id of this process."""
    return _process.next(after)
