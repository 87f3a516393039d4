"""The lineage of messages: their events, and the copies, replays and completions that they led to.

Texts come from producers and receivers: whoever shows them passes them through `printable`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

COPY: Final = "copy"
REPLAY: Final = "replay"
COMPLETION: Final = "completion"
_MINUTE_MS: Final = 60_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a message.

    Attributes:
        event: one of the eight kinds.
        at: time, ms since 1970 UTC.
        subscription, destination, attempt, reason: as in table `events`.
    """

    event: str
    at: int
    subscription: str | None = None
    destination: str | None = None
    attempt: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message and its events.

    Attributes:
        ref: `topic/epoch/shard/id`.
        asked: whether the question itself names it.
        traceparent: the header of its earliest `added`.
        events: by time.
        others: as in table `messages`.
    """

    ref: str
    asked: bool
    topic: str
    id: str
    state: str
    partition_key: str | None
    content_type: str | None
    size: int | None
    batch_item: str | None
    due: int | None
    traceparent: str | None
    first_at: int
    last_at: int
    events: tuple[Event, ...]

    @property
    def batch(self) -> str | None:
        """Id of the batch of its item."""
        return None if self.batch_item is None else self.batch_item.partition(":")[0]

    def lanes(self) -> dict[str | None, list[Event]]:
        """Return the events by subscription, the message's own (None) first."""
        found: dict[str | None, list[Event]] = {None: []}
        for event in self.events:
            found.setdefault(event.subscription, []).append(event)
        return found


@dataclass(frozen=True, slots=True)
class Link:
    """A step from one message to another.

    Attributes:
        kind: `copy` (by a destination `topic:`), `replay`, or `completion` (of the item's batch).
        name: the subscription, the replay or the batch.
        source: ref of the earlier message.
        target: ref of the later message; None: it is not in the tables, or was cut.
        id: of the later message.
    """

    kind: Literal["copy", "replay", "completion"]
    name: str
    source: str
    target: str | None
    id: str


@dataclass(frozen=True, slots=True)
class Lineage:
    """The answer to one question.

    Attributes:
        question: the values of the option that asks, by its name.
        messages: by first event.
        links: from and to these messages.
        limit: the number of messages that may be shown.
        cut: those of `messages`, `replays`, `events` of which there are more than are shown.
    """

    question: dict[str, list[str]]
    messages: tuple[Message, ...]
    links: tuple[Link, ...]
    limit: int
    cut: tuple[str, ...] = field(default=())

    @property
    def start(self) -> int:
        """Time of the first event, ms."""
        return min(message.first_at for message in self.messages)

    def as_dict(self) -> dict[str, Any]:
        """Return the lineage in JSON's types."""
        return asdict(self)


def printable(text: str) -> str:
    r"""Escape control characters, line breaks and marks of direction, as `\n` or `\u202e`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def iso_time(ms: int) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds; one that no calendar has, as `N ms`."""
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def offset(ms: int) -> str:
    """Return a distance in time, exact to the millisecond: `+1.500 s`, `+3 d 01:02:03.500`."""
    sign, ms = ("-" if ms < 0 else "+"), abs(ms)
    if ms < _MINUTE_MS:
        return f"{sign}{ms // 1000}.{ms % 1000:03} s"
    days, rest = divmod(ms, 24 * 60 * _MINUTE_MS)
    hours, rest = divmod(rest, 60 * _MINUTE_MS)
    minutes, rest = divmod(rest, _MINUTE_MS)
    clock = f"{hours:02}:{minutes:02}:{rest // 1000:02}.{rest % 1000:03}"
    return f"{sign}{days} d {clock}" if days else f"{sign}{clock}"
