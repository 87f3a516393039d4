"""Ids: UUIDv7s of messages (RFC 9562), monotonic within a process, and ids of batch items."""

from __future__ import annotations

import re
import secrets
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput
from fairbox.model.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


MAX_AHEAD_SECONDS: Final = 300
"""Seconds by which the time of a message's id may be ahead of the clock."""
LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, past which no calendar shows a time (ms)."""
_RANDOM_BITS = 74
_MAX_RANDOM = (1 << _RANDOM_BITS) - 1
_MAX_MS = (1 << 48) - 1
_TEXT_LENGTH = 36
_VERSION_AT = 14
_VARIANT_AT = 19
_ITEM: Final = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,4})",
    re.ASCII,
)


class IdGenerator:
    """Makes UUIDv7 texts in ascending order, even when the clock steps back.

    A new millisecond takes 74 fresh random bits; within one, and when the clock steps back, the
    last value grows by a random step (RFC 9562, section 6.2, method 2).

    Args:
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
            InvalidInput: `after` is not a UUIDv7, or its time is over `MAX_AHEAD_SECONDS` ahead.
        """
        floor = _parts(after) if after is not None else (0, 0)
        with self._lock:
            now = min(int(self._clock.now() * 1000), _MAX_MS)
            if after is not None:
                check_ahead(after, now, field="after")
            least = max(self._last, floor)
            self._last = self._above(least, now)
            return _text(*self._last)

    def above(self, after: str) -> str:
        """Return an id above `after` that moves no other id: for a caller among many.

        Ids of one millisecond are in no order, but above `after`.

        Raises:
            InvalidInput: as `next` does.
        """
        floor = _parts(after)
        now = min(int(self._clock.now() * 1000), _MAX_MS)
        check_ahead(after, now, field="after")
        with self._lock:
            return _text(*self._above(floor, now))

    def _above(self, least: tuple[int, int], now: int) -> tuple[int, int]:
        if now > least[0]:
            # the highest bit stays 0, so that steps within this millisecond have room
            return now, self._randbits(_RANDOM_BITS - 1)
        # by a random step: an id does not tell the next one
        ms, value = least[0], least[1] + 1 + self._randbits(32)
        # random bits that are used up borrow the next millisecond: order goes before exact time
        return (ms, value) if value <= _MAX_RANDOM else (ms + 1, self._randbits(32))


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
        # Python reads braces, `urn:uuid:` and no hyphens too, and keys must have one spelling
        canonical = str(uuid.UUID(text)) if len(text) == _TEXT_LENGTH else ""
    except (ValueError, AttributeError, TypeError):
        canonical = ""
    versioned = canonical[_VERSION_AT : _VERSION_AT + 1] == "7"
    if canonical != text or not versioned or canonical[_VARIANT_AT] not in "89ab":
        raise InvalidInput(field, "a UUIDv7 in lower-case canonical text")
    return text


def time_of(message_id: str) -> int:
    """Return the id's time in milliseconds since 1970 UTC."""
    # the first 48 bits, of the text alone: making a UUID of it is slower
    return int(message_id[:8] + message_id[9:13], 16)


def sent_at(message_id: str, now: int) -> int:
    """Return when a stored message was sent (ms), as far as its id tells; 0: an id of no clock.

    An id whose time is over `MAX_AHEAD_SECONDS` ahead of `now` (ms) was not written by the library.
    Its message counts as old: else it would be young until its time comes.
    """
    time = time_of(message_id)
    return time if time <= now + MAX_AHEAD_SECONDS * 1000 else 0


def check_ahead(message_id: str, now: int, *, field: str = "id") -> None:
    """Refuse an id whose time has not come: its message would be taken for young until then.

    Args:
        message_id: the id.
        now: milliseconds since 1970 UTC.
        field: named by the error.

    Raises:
        InvalidInput: the id's time is over `MAX_AHEAD_SECONDS` ahead.
    """
    if time_of(message_id) > now + MAX_AHEAD_SECONDS * 1000:
        raise InvalidInput(
            field, f"an id whose time is at most {MAX_AHEAD_SECONDS} s ahead of the clock"
        )


def bound_of(ms: int) -> str:
    """Return the text above which lie the ids of a millisecond and all after it."""
    # a time without random bits is a prefix, which sorts below all ids that begin with it
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


def check_batch_id(text: str, *, field: str = "id") -> str:
    """Return a batch id when it is a UUID's canonical text.

    Raises:
        InvalidInput: it is anything else.
    """
    canonical = None
    with suppress(ValueError, AttributeError, TypeError):
        canonical = str(uuid.UUID(text))
    if canonical != text:
        raise InvalidInput(field, "a UUID in lower-case canonical text")
    return text


@dataclass(frozen=True, slots=True)
class ItemId:
    """Names one item of a batch: batch, ordinal of its group, index within the group."""

    batch: str
    group: int
    index: int

    def __str__(self) -> str:
        return f"{self.batch}:{self.group}:{self.index}"


def parse_item(text: str) -> ItemId | None:
    """Return the item that `batch:group:index` names; None when the text names none."""
    found = _ITEM.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else ItemId(found[1], int(found[2]), int(found[3]))


def parse_items(texts: Iterable[str]) -> tuple[list[ItemId], list[str]]:
    """Return the items that these texts name, and the texts that name none."""
    items: list[ItemId] = []
    malformed: list[str] = []
    for text in texts:
        item = parse_item(text)
        if item is None:
            malformed.append(text)
        else:
            items.append(item)
    return items, malformed


def check_item(text: str | None, *, field: str = "batch_item") -> str | None:
    """Return an item's id when it is one, or None; whether it was issued is not looked at.

    Raises:
        InvalidInput: it is anything else; the error names `field`.
    """
    if text is not None and parse_item(text) is None:
        raise InvalidInput(field, "batch:group:index: a UUID and two whole numbers, or None")
    return text
