"""Epochs: the widths that a topic has had, and the place of a message among them; and partitions.

A message's epoch is chosen by its id's time, its shard by its key; the partition of a queue by a
hash of its own. The rules are fixed for good; `docs/reference/hashing.md` lists golden vectors for
other languages.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Final, Literal

from fairbox.model.ids import time_of
from fairbox.model.messages import Message, MessageRef

if TYPE_CHECKING:
    from collections.abc import Sequence


ANNOUNCE_MS: Final = 60_000
"""The time by which a width is announced ahead: two lifetimes of a producer's copy."""
SETTLED_MS: Final = 2_000
"""After a cut, how long messages of the time before it may still be on their way."""
CLOSE_AFTER_MS: Final = 900_000
"""The least time for which an epoch takes messages that were made in it after its own time has
ended: a transaction may be repeated under its token for ten minutes, byte for byte the same."""
REMOVE_AFTER_MS: Final = 300_000
"""Between closing and removing an epoch: ten lifetimes of a producer's copy."""
MAX_EPOCHS: Final = 32
"""Epochs that a topic may list: every list and receive goes through all of them."""

Phase = Literal["announced", "current", "draining", "closed"]
MAX_SHARDS: Final = 1_000
SEPARATOR: Final = "__p"  # between a queue's name and a partition's number
MAX_PARTITIONS: Final = 1_000
_PARTITION_DOMAIN: Final = b"fairbox/partition\0"


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
    """Return the epoch that an id's time chooses: the last one by then that is not closed.

    For times before all of them it is the first. A closed epoch counts as removed, so that its
    removal moves nothing.
    """
    takes = [epoch for epoch in epochs if not epoch.closed] or list(epochs[-1:])
    chosen = takes[0]
    for epoch in takes:
        if epoch.since <= ms:
            chosen = epoch
    return chosen


def shard_number(key: str, shards: int) -> int:
    """Return the shard of a partition key (of the message id, for a message without one).

    Little-endian unsigned 32-bit of `SHA-256(key)[0:4]` modulo the shard count.
    """
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:4], "little") % shards


def ref_of(message: Message, epochs: Sequence[Epoch]) -> MessageRef:
    """Return the ref of a message that is published to a topic with these epochs."""
    epoch = epoch_at(epochs, time_of(message.id))
    # `shard_key` and `due` of the message, inline: every publication comes through here
    key = message.id if message.partition_key is None else message.partition_key
    due = message.due if message.delay else None
    return MessageRef(message.topic, epoch.number, shard_number(key, epoch.shards), message.id, due)


def belongs(message: Message, ref: MessageRef, epochs: Sequence[Epoch]) -> MessageRef | None:
    """Return the place where a message belongs; None: it lies there, or was put there rightly.

    A message is misplaced when its topic does not list its epoch (so nobody reads there), when its
    shard is not its key's, and when its id is of another epoch's time because the clock or the view
    of its producer was wrong. A message added late to an epoch that is closed by now lies rightly.
    """
    ms = time_of(ref.id)
    here = next((epoch for epoch in epochs if epoch.number == ref.epoch), None)
    wanted = epoch_at(epochs, ms)
    if here is not None and here.closed:
        end = ended(epochs, here)
        wanted = here if end is None or ms < end else wanted
    shard = shard_number(message.shard_key, wanted.shards)
    right = replace(ref, epoch=wanted.number, shard=shard)
    return None if right == ref else right


def underway(epochs: Sequence[Epoch], now: int) -> bool:
    """Whether the newest epoch is announced and has not begun (`now` in ms)."""
    return epochs[-1].since > now


def announced(epochs: Sequence[Epoch], shards: int, since: int) -> tuple[Epoch, ...]:
    """Return the epochs with one more, which holds from a time on (ms)."""
    last = epochs[-1]
    # later than the last one, also by a clock that is behind
    return (*epochs, Epoch(last.number + 1, shards, max(since, last.since + 1)))


def phase_of(epochs: Sequence[Epoch], epoch: Epoch, now: int) -> Phase:
    """Return where an epoch stands at a time (ms)."""
    if epoch.closed:
        return "closed"
    if epoch.since > now:
        return "announced"
    # an announced epoch takes nothing yet
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


def partition_name(queue: str, number: int) -> str:
    """Return the topic's name of a partition; partition 0 keeps the queue's own."""
    # a queue may begin as a topic, whose messages then stay where they are
    return f"{queue}{SEPARATOR}{number}" if number else queue


def partition_number(key: str, partitions: int) -> int:
    r"""Return the partition of a `PartitionedQueue` that a key belongs to.

    Big-endian unsigned 64-bit of `SHA-256(b"fairbox/partition\0" + key)[0:8]` modulo the partition
    count: another domain than the shards', so that the two never correlate.
    """
    digest = hashlib.sha256(_PARTITION_DOMAIN + key.encode()).digest()
    return int.from_bytes(digest[:8], "big") % partitions
