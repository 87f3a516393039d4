"""Claims of keys of an ordered shard, packed into its row.

Entries lie in groups of one state, end, count and token, and an id leaves out what it has in common
with the one before: some 25 bytes an entry.
"""

from __future__ import annotations

import struct
import uuid
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.item_versions import check_version
from fairbox.codec.keys import key_text
from fairbox.codec.messages import number
from fairbox.errors import Unreadable
from fairbox.model.item_versions import check_number
from fairbox.model.key_claims import (
    KEY_BYTES,
    ClaimState,
    Failure,
    KeyClaim,
    KeyClaims,
    KeysAside,
)
from fairbox.model.receipts import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_FORMAT: Final = 2
_ID_BYTES: Final = 16
_STATES: Final[tuple[ClaimState, ...]] = ("claimed", "waiting", "acked")
_MAX_COUNT: Final = 0xFFFF

_ASIDE: Final = struct.Struct(">IQ8sI")
_GROUP: Final = struct.Struct(f">BQHH{TOKEN_BYTES - 1}s")  # state, until, count, entries, token
_MEMBER: Final = struct.Struct(f">{KEY_BYTES}sBB")  # key, last byte of the token, what follows
_FAILURE: Final = struct.Struct(">QH")
_FOLLOWER, _RUN, _ACKED, _FAILED = 1, 2, 4, 8


def claim_values(row: KeyClaims) -> dict[str, Any]:
    """Return the attributes of a shard row that hold its claims; without those that are empty.

    `settled` is not among them: it is written by itself, once and for good.
    """
    values: dict[str, Any] = {attr.ROW_VERSION: number(row.version)}
    if row.entries or row.aside.count:
        values[attr.HELD] = {"B": _pack(row)}
    if row.after:
        values[attr.HELD_AFTER] = {"B": uuid.UUID(row.after).bytes}
        values[attr.HELD_SINCE] = number(row.since)
    return values


def read_claims(item: Mapping[str, Any]) -> KeyClaims:
    """Return the claims that a shard row holds; none where there is no row.

    Raises:
        Unreadable: it is not what `claim_values` writes; NewerVersion: a newer release does.
    """
    check_version(item)
    if attr.ROW_VERSION not in item:
        return KeyClaims(settled=item.get(attr.SETTLED) == {"BOOL": True})
    try:
        return _read(item)
    except (LookupError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error


def _read(item: Mapping[str, Any]) -> KeyClaims:
    aside = KeysAside()
    entries: tuple[KeyClaim, ...] = ()
    if attr.HELD in item:
        packed = bytes(item[attr.HELD]["B"])
        if packed[0] != _FORMAT:
            check_number(packed[0], key_text(item))
            raise ValueError("no format of claims")
        aside, entries = _unpack(packed)
    after = item.get(attr.HELD_AFTER)
    return KeyClaims(
        int(item[attr.ROW_VERSION]["N"]),
        entries,
        "" if after is None else str(uuid.UUID(bytes=bytes(after["B"]))),
        int(item[attr.HELD_SINCE]["N"]) if after is not None else 0,
        item.get(attr.SETTLED) == {"BOOL": True},
        aside,
    )


def pack_entries(entries: Iterable[KeyClaim]) -> bytes:
    """Return entries in groups."""
    out, last = bytearray(), bytes(_ID_BYTES)
    for (state, until, count, token), members in groupby(sorted(entries, key=_order), _group):
        group = list(members)
        out += _GROUP.pack(state, until, count, len(group), token)
        for entry in group:
            parts = (bool(entry.follower), bool(entry.run), bool(entry.acked), bool(entry.failed))
            flags = sum(1 << n for n, there in enumerate(parts) if there)
            out += _MEMBER.pack(entry.key, (entry.token or b"\0")[-1], flags)
            ids = [entry.id, *([entry.follower] if entry.follower else [])]
            for several in (entry.run, entry.acked):
                ids += several
            if entry.failed:
                ids.append(entry.failed.id)
            out += bytes(len(several) for several in (entry.run, entry.acked) if several)
            for text in ids:
                message = uuid.UUID(text).bytes
                same = next(n for n in range(_ID_BYTES) if n == 15 or message[n] != last[n])
                out += bytes((same,)) + message[same:]
                last = message
            if entry.failed:
                out += _FAILURE.pack(entry.failed.until, min(entry.failed.count, _MAX_COUNT))
    return bytes(out)


def _group(entry: KeyClaim) -> tuple[int, int, int, bytes]:
    token = entry.token[:-1] if entry.token else bytes(TOKEN_BYTES - 1)
    return _STATES.index(entry.state), entry.until, min(entry.count, _MAX_COUNT), token


def _order(entry: KeyClaim) -> tuple[tuple[int, int, int, bytes], str]:
    return _group(entry), entry.id


def _pack(row: KeyClaims) -> bytes:
    aside = row.aside
    head = b"\x00"
    if aside.count:
        head = b"\x01" + _ASIDE.pack(aside.count, aside.next_check, aside.name, aside.moves)
    return bytes((_FORMAT,)) + head + pack_entries(row.entries)


def _unpack(packed: bytes) -> tuple[KeysAside, tuple[KeyClaim, ...]]:
    if packed[1]:
        return KeysAside(*_ASIDE.unpack_from(packed, 2)), unpack_entries(packed[2 + _ASIDE.size :])
    return KeysAside(), unpack_entries(packed[2:])


def unpack_entries(packed: bytes) -> tuple[KeyClaim, ...]:
    """Return the entries that `pack_entries` packed."""
    return tuple(_Reader(packed).entries())


class _Reader:
    """Reads packed entries one after the other."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._at = 0
        self._last = bytes(_ID_BYTES)

    def entries(self) -> Iterator[KeyClaim]:
        """Yield the entries, as they were packed."""
        while self._at < len(self._packed):
            state, until, count, several, token = self._take(_GROUP)
            for _ in range(several):
                yield self._entry(_STATES[state], until, count, token)

    def _entry(self, state: ClaimState, until: int, count: int, token: bytes) -> KeyClaim:
        key, end, flags = self._take(_MEMBER)
        run = self._byte() if flags & _RUN else 0
        acked = self._byte() if flags & _ACKED else 0
        message = self._id()
        follower = self._id() if flags & _FOLLOWER else ""
        runs = tuple(self._id() for _ in range(run))
        done = tuple(self._id() for _ in range(acked))
        failed = Failure(self._id(), *self._take(_FAILURE)) if flags & _FAILED else None
        whole = b"" if state == "waiting" else token + bytes((end,))
        return KeyClaim(key, message, state, until, count, whole, follower, runs, done, failed)

    def _take(self, shape: struct.Struct) -> tuple[Any, ...]:
        found = shape.unpack_from(self._packed, self._at)
        self._at += shape.size
        return found

    def _byte(self) -> int:
        self._at += 1
        return self._packed[self._at - 1]

    def _id(self) -> str:
        same = self._byte()
        rest = self._packed[self._at : self._at + _ID_BYTES - same]
        self._at += _ID_BYTES - same
        self._last = self._last[:same] + rest
        return str(uuid.UUID(bytes=self._last))
