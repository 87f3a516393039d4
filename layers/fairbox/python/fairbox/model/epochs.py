"""Epochs: the widths that a topic has had, and which of them an id's time chooses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

ANNOUNCE_MS: Final = 60_000
"""How far ahead a width is announced: two lifetimes of a producer's copy."""
SETTLED_MS: Final = 2_000
"""After a cut, how long messages of the time before it may still be on their way."""
CLOSE_AFTER_MS: Final = 900_000
"""How long after its time an epoch takes messages that were made in it, at the least: a transaction
may be repeated under its token for ten minutes, and must be the same to the letter."""
REMOVE_AFTER_MS: Final = 300_000
"""Between closing and removing an epoch: ten lifetimes of a producer's copy."""
MAX_EPOCHS: Final = 32
"""Epochs that a topic may list: every list and receive goes through all of them."""

Phase = Literal["announced", "current", "draining", "closed"]


@dataclass(frozen=True, slots=True)
class Epoch:
    """A width of a topic.

    Attributes:
        number: grows with every resize; part of the lanes' keys.
        shards: its shard count.
        since: the id time (ms) from which it holds.
        closed: when it was found empty (ms), and stopped taking messages; 0: it takes them.
    """

    number: int
    shards: int
    since: int
    closed: int = 0


def epoch_at(epochs: Sequence[Epoch], ms: int) -> Epoch:
    """Return the epoch that an id's time chooses: of those that take messages the last by then.

    For times before all of them it is the first. A closed epoch counts as if it were gone, so that
    removing it moves nothing.
    """
    takes = [epoch for epoch in epochs if not epoch.closed] or list(epochs[-1:])
    chosen = takes[0]
    for epoch in takes:
        if epoch.since <= ms:
            chosen = epoch
    return chosen


def underway(epochs: Sequence[Epoch], now: int) -> bool:
    """Whether the newest epoch is announced and has not begun (`now` in ms)."""
    return epochs[-1].since > now


def announced(epochs: Sequence[Epoch], shards: int, since: int) -> tuple[Epoch, ...]:
    """Return the epochs with one more, which holds from a time on (ms)."""
    last = epochs[-1]
    return (*epochs, Epoch(last.number + 1, shards, max(since, last.since + 1)))


def phase_of(epochs: Sequence[Epoch], epoch: Epoch, now: int) -> Phase:
    """Return where an epoch stands at a time (ms)."""
    if epoch.closed:
        return "closed"
    if epoch.since > now:
        return "announced"
    newer = any(other.number > epoch.number and other.since <= now for other in epochs)
    return "draining" if newer else "current"


def ended(epochs: Sequence[Epoch], epoch: Epoch) -> int | None:
    """Return when the time of an epoch ended or will end (ms); None: it is the newest."""
    later = [other.since for other in epochs if other.number > epoch.number]
    return min(later, default=None)


def may_close(epochs: Sequence[Epoch], epoch: Epoch, now: int) -> bool:
    """Whether an epoch, found empty, may stop taking messages: its time is safely past."""
    end = ended(epochs, epoch)
    return not epoch.closed and end is not None and end + CLOSE_AFTER_MS <= now


def may_leave(epoch: Epoch, now: int) -> bool:
    """Whether a closed epoch, found empty again, may leave the list."""
    return bool(epoch.closed) and epoch.closed + REMOVE_AFTER_MS <= now


def closed(epochs: Sequence[Epoch], number: int, now: int) -> tuple[Epoch, ...]:
    """Return the epochs, of which one has stopped taking messages."""
    return tuple(replace(e, closed=now) if e.number == number else e for e in epochs)


def without(epochs: Sequence[Epoch], number: int) -> tuple[Epoch, ...]:
    """Return the epochs without one."""
    return tuple(e for e in epochs if e.number != number)


def sharing(number: int, width: int, other: int) -> range:
    """Return which of `other` shards may list a key that is in shard `number` of `width`.

    One hash modulo two widths: the two agree modulo the greatest common divisor.
    """
    step = gcd(width, other)
    return range(number % step, other, step)
