"""Deferred keys of an ordered shard: those whose first message was not taken."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from fairbox.model.key_claims import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

DeferredState = Literal["waiting", "open", "blocked"]
MAX_DEFERRED: Final = 64
MAX_BLOCKED: Final = 48  # so that others of the shard can still be held
NAME_BYTES: Final = 4
EVERY_KEY: Final = bytes(KEY_BYTES)
_NAME_DOMAIN: Final = b"fairbox/subscription\0"


def name_digest(subscription: str) -> bytes:
    """Return the digest of a subscription's name."""
    return hashlib.sha256(_NAME_DOMAIN + subscription.encode()).digest()[:NAME_BYTES]


def audience_of(subscriptions: Iterable[str]) -> bytes:
    """Return the digest of a set of subscriptions' names."""
    return name_digest("\0".join(sorted(subscriptions)))


@dataclass(frozen=True, slots=True)
class DeferredKey:
    """A key of one subscription that is held back from a message on.

    Attributes:
        subscription: digest of its name.
        key: digest of the key; keys of one digest wait for each other. `EVERY_KEY`: the
            subscription is not ready, and all of its keys wait.
        id: the first message that waits; what has a smaller id is not held.
        due: when to try it, in milliseconds since 1970 UTC.
        state: `waiting`: the message is to be tried again; `open`: nothing is to be tried, what
            lies from the id on is to be read; `blocked`: the message is a dead letter, and the key
            waits for its redrive.
    """

    subscription: bytes
    key: bytes
    id: str
    due: int
    state: DeferredState = "waiting"

    @property
    def place(self) -> tuple[bytes, bytes]:
        """The name of what is deferred: subscription and key."""
        return self.subscription, self.key

    @property
    def whole(self) -> bool:
        """Whether it holds every key of its subscription."""
        return self.key == EVERY_KEY


@dataclass(frozen=True, slots=True)
class DeferredKeys:
    """The deferred keys of a shard, as its row has them.

    It claims that each message up to `start` which one of these subscriptions lacks is held by an
    entry with its id or a smaller one. So a visit that begins behind `start` passes over none.

    Attributes:
        version: grows with every change; every change is conditional on it.
        entries: what is held, ascending by id.
        start: where messages not held begin: behind this id; empty: at the head.
        since: when the lane was last read from its head, in milliseconds since 1970 UTC.
        audience: digest of the subscriptions that the claim is about.
    """

    version: int = 0
    entries: tuple[DeferredKey, ...] = ()
    start: str = ""
    since: int = 0
    audience: bytes = bytes(NAME_BYTES)

    @property
    def blocked(self) -> int:
        """The number of keys that wait for dead letters."""
        return sum(e.state == "blocked" for e in self.entries)


def ordered(entries: Iterable[DeferredKey]) -> tuple[DeferredKey, ...]:
    """Return the entries as a row has them: ascending by id, `MAX_HOLDS` of them.

    Where they are more, the subscription that has most of them waits as a whole, until the earliest
    of its keys is due; what waits for a dead letter stays.
    """
    kept = list(entries)
    while len(kept) > MAX_DEFERRED:
        loose = [e for e in kept if e.state != "blocked" and not e.whole]
        if not loose:
            break
        counts: dict[bytes, int] = {}
        for entry in loose:
            counts[entry.subscription] = counts.get(entry.subscription, 0) + 1
        most = max(counts, key=lambda name: (counts[name], name))
        mine = [e for e in kept if e.subscription == most and e.state != "blocked"]
        whole = DeferredKey(most, EVERY_KEY, min(e.id for e in mine), min(e.due for e in mine))
        kept = [e for e in kept if e not in mine] + [whole]
    return tuple(sorted(kept, key=lambda e: (e.id, e.subscription, e.key)))
