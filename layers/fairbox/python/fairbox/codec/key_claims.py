"""Claims of keys of an ordered shard, packed into its row: some fifty bytes a key.

Ten keys stay within the write unit that the row costs anyway.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.item_versions import check_version
from fairbox.codec.keys import key_text
from fairbox.codec.messages import number
from fairbox.errors import Unreadable
from fairbox.model.item_versions import check_number
from fairbox.model.key_claims import KEY_BYTES, ClaimState, KeyClaim, KeyClaims
from fairbox.model.receipts import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMAT: Final = b"\x01"
_ENTRY: Final = struct.Struct(f">{KEY_BYTES}s16sBHQ{TOKEN_BYTES}s")
_ID_BYTES: Final = 16
_STATES: Final[tuple[ClaimState, ...]] = ("claimed", "waiting", "acked")
_HAS_FOLLOWER: Final = 0x80
_MAX_COUNT: Final = 0xFFFF


def claim_values(row: KeyClaims) -> dict[str, Any]:
    """Return the attributes of a shard row that hold its claims; without those that are empty.

    `settled` is not among them: it is written by itself, once and for good.
    """
    values: dict[str, Any] = {attr.ROW_VERSION: number(row.version)}
    if row.entries:
        values[attr.HELD] = {"B": _FORMAT + b"".join(map(_pack, row.entries))}
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
    packed = bytes(item.get(attr.HELD, {"B": _FORMAT})["B"])
    check_number(packed[0], key_text(item))
    after = item.get(attr.HELD_AFTER)
    return KeyClaims(
        int(item[attr.ROW_VERSION]["N"]),
        _unpack(packed[1:]),
        "" if after is None else str(uuid.UUID(bytes=bytes(after["B"]))),
        int(item[attr.HELD_SINCE]["N"]) if after is not None else 0,
        item.get(attr.SETTLED) == {"BOOL": True},
    )


def _pack(entry: KeyClaim) -> bytes:
    flags = _STATES.index(entry.state) | (_HAS_FOLLOWER if entry.follower else 0)
    message = uuid.UUID(entry.id).bytes
    count = min(entry.count, _MAX_COUNT)
    packed = _ENTRY.pack(entry.key, message, flags, count, entry.until, entry.token)
    return packed + (uuid.UUID(entry.follower).bytes if entry.follower else b"")


def _unpack(packed: bytes) -> tuple[KeyClaim, ...]:
    entries, at = [], 0
    while at < len(packed):
        key, message, flags, count, until, token = _ENTRY.unpack_from(packed, at)
        at += _ENTRY.size
        follower = ""
        if flags & _HAS_FOLLOWER:
            follower = str(uuid.UUID(bytes=packed[at : at + _ID_BYTES]))
            at += _ID_BYTES
        state = _STATES[flags & ~_HAS_FOLLOWER]
        entries.append(
            KeyClaim(key, str(uuid.UUID(bytes=message)), state, until, count, token, follower)
        )
    return tuple(entries)
