"""Deferred keys of an ordered shard: keys whose first message was not taken.

They are packed into the shard's row, 37 bytes an entry, and changed by compare-and-set. Twenty
entries stay within the write unit that the row costs anyway; 64 cost three.
"""

from __future__ import annotations

import hashlib
import struct
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.model.versions import check_number
from fairbox.tables.calls import Rows
from fairbox.tables.keys import check_version, key_text, shard_key
from fairbox.tables.shard_rows import ROW_VERSION, ShardRow, read_shard, versioned_update
from fairbox.tables.stored_messages import KEY_BYTES, number
from fairbox.tables.unreadable_items import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.model.messages import Shard

HOLDS: Final = "ho"  # B, what visits hold back, and where they begin, packed (pushed topics)

DeferredState = Literal["waiting", "open", "blocked"]
MAX_DEFERRED: Final = 64
MAX_BLOCKED: Final = 48  # so that others of the shard can still be held
NAME_BYTES: Final = 4
EVERY_KEY: Final = bytes(KEY_BYTES)
_NAME_DOMAIN: Final = b"fairbox/subscription\0"
_FORMAT: Final = 1
_HEAD: Final = struct.Struct(f">B{NAME_BYTES}s16sQ")
_ENTRY: Final = struct.Struct(f">{NAME_BYTES}s{KEY_BYTES}s16sBQ")
_STATES: Final[tuple[DeferredState, ...]] = ("waiting", "open", "blocked")
_NOWHERE: Final = bytes(16)
_ATTRIBUTES: Final = (HOLDS,)


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
        id: the first message that waits; messages with smaller ids are not held.
        due: when to try it, in milliseconds since 1970 UTC.
        state: `waiting`: the message is to be tried again; `open`: no message is to be tried,
            messages from the id on are to be read; `blocked`: the message is a dead letter, and the
            key waits for its redrive.
    """

    subscription: bytes
    key: bytes
    id: str
    due: int
    state: DeferredState = "waiting"

    @property
    def place(self) -> tuple[bytes, bytes]:
        """The name of the deferred key: subscription and key."""
        return self.subscription, self.key

    @property
    def whole(self) -> bool:
        """Whether it holds every key of its subscription."""
        return self.key == EVERY_KEY


@dataclass(frozen=True, slots=True)
class DeferredKeys:
    """The deferred keys of a shard, as its row has them.

    The claim: each message up to `start` that one of these subscriptions lacks is held by an entry
    with its id or a smaller one. So a visit that begins behind `start` misses none.

    Attributes:
        version: grows with every change; every change is conditional on it.
        entries: the held keys, ascending by id.
        start: messages that are not held begin behind this id; empty: at the head.
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
    """Return the entries as a row has them: ascending by id, `MAX_DEFERRED` of them.

    If there are more, the subscription with most of them waits as a whole, until the earliest of
    its keys is due; entries that wait for a dead letter stay.
    """
    kept = list(entries)
    while len(kept) > MAX_DEFERRED:
        loose = [e for e in kept if e.state != "blocked" and not e.whole]
        if not loose:
            # dead letters and whole subscriptions alone: the row takes them, however many
            break

        counts: dict[bytes, int] = {}
        for entry in loose:
            counts[entry.subscription] = counts.get(entry.subscription, 0) + 1

        most = max(counts, key=lambda name: (counts[name], name))
        mine = [e for e in kept if e.subscription == most and e.state != "blocked"]
        whole = DeferredKey(most, EVERY_KEY, min(e.id for e in mine), min(e.due for e in mine))
        kept = [e for e in kept if e not in mine] + [whole]

    return tuple(sorted(kept, key=lambda e: (e.id, e.subscription, e.key)))


def deferred_values(keys: DeferredKeys) -> dict[str, Any]:
    """Return the attributes of a shard row that hold its deferred keys; none for empty values."""
    values: dict[str, Any] = {ROW_VERSION: number(keys.version)}
    if keys.entries or keys.start:
        start = uuid.UUID(keys.start).bytes if keys.start else _NOWHERE
        head = _HEAD.pack(_FORMAT, keys.audience, start, keys.since)
        values[HOLDS] = {"B": head + b"".join(map(_pack, keys.entries))}
    return values


def read_deferred(item: Mapping[str, Any]) -> DeferredKeys:
    """Return the deferred keys that a shard row holds; none where there is no row.

    Raises:
        Unreadable: `deferred_values` never writes such a row; NewerVersion: a newer release does.
    """
    check_version(item)
    with reading(item, LookupError, ValueError, TypeError, AttributeError, struct.error):
        version = int(item[ROW_VERSION]["N"]) if ROW_VERSION in item else 0
        if HOLDS not in item:
            return DeferredKeys(version)
        packed = bytes(item[HOLDS]["B"])
        check_number(packed[0], key_text(item))
        return _read(version, packed)


def _read(version: int, packed: bytes) -> DeferredKeys:
    _, audience, start, since = _HEAD.unpack_from(packed)
    entries = tuple(
        DeferredKey(name, key, str(uuid.UUID(bytes=first)), due, _STATES[state])
        for name, key, first, state, due in _ENTRY.iter_unpack(packed[_HEAD.size :])
    )

    return DeferredKeys(
        version, entries, "" if start == _NOWHERE else str(uuid.UUID(bytes=start)), since, audience
    )


def _pack(entry: DeferredKey) -> bytes:
    first = uuid.UUID(entry.id).bytes
    return _ENTRY.pack(entry.subscription, entry.key, first, _STATES.index(entry.state), entry.due)


class DeferredKeyTable(Rows):
    """Reads and changes deferred keys."""

    def get(self, shard: Shard) -> tuple[ShardRow | None, DeferredKeys]:
        """Return a shard row and its deferred keys (consistent, 1 RRU for 4 KB)."""
        item = self._calls.get(self._table, shard_key(*shard))
        return (read_shard(item) if item else None), read_deferred(item or {})

    def write(self, shard: Shard, deferred: DeferredKeys, version: int) -> DeferredKeys | None:
        """Write deferred keys where the version is this one (1 WRU a KB).

        Returns:
            None when it was written; the keys there, when others were faster.
        """
        old = self._calls.refused("update_item", **self.action(shard, deferred, version))
        there = None if old is None else read_deferred(old)
        # ours, when the answer to an earlier try was lost
        return None if there == replace(deferred, version=version + 1) else there

    def action(self, shard: Shard, deferred: DeferredKeys, version: int) -> dict[str, Any]:
        """Return the update that `write` makes."""
        values = deferred_values(replace(deferred, version=version + 1))
        key = shard_key(*shard)
        return versioned_update(self._table, key, values, _ATTRIBUTES, version)
