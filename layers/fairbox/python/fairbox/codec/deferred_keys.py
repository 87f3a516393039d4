"""Deferred keys of an ordered shard, packed into its row: 37 bytes an entry.

Twenty entries stay within the write unit that the row costs anyway; 64 cost three.
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
from fairbox.model.deferred_keys import NAME_BYTES, DeferredKey, DeferredKeys, DeferredState
from fairbox.model.item_versions import check_number
from fairbox.model.key_claims import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMAT: Final = 1
_HEAD: Final = struct.Struct(f">B{NAME_BYTES}s16sQ")
_ENTRY: Final = struct.Struct(f">{NAME_BYTES}s{KEY_BYTES}s16sBQ")
_STATES: Final[tuple[DeferredState, ...]] = ("waiting", "open", "blocked")
_NOWHERE: Final = bytes(16)


def deferred_values(keys: DeferredKeys) -> dict[str, Any]:
    """Return the attributes of a shard row that hold its deferred keys; none for what is empty."""
    values: dict[str, Any] = {attr.ROW_VERSION: number(keys.version)}
    if keys.entries or keys.start:
        start = uuid.UUID(keys.start).bytes if keys.start else _NOWHERE
        head = _HEAD.pack(_FORMAT, keys.audience, start, keys.since)
        values[attr.HOLDS] = {"B": head + b"".join(map(_pack, keys.entries))}
    return values


def read_deferred(item: Mapping[str, Any]) -> DeferredKeys:
    """Return the deferred keys that a shard row holds; none where there is no row.

    Raises:
        Unreadable: it is not what `deferred_values` writes; NewerVersion: a newer release does.
    """
    check_version(item)
    try:
        version = int(item[attr.ROW_VERSION]["N"]) if attr.ROW_VERSION in item else 0
        if attr.HOLDS not in item:
            return DeferredKeys(version)
        packed = bytes(item[attr.HOLDS]["B"])
        check_number(packed[0], key_text(item))
        return _read(version, packed)
    except (LookupError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error


def _read(version: int, packed: bytes) -> DeferredKeys:
    _, audience, start, since = _HEAD.unpack_from(packed)
    entries = tuple(
        DeferredKey(name, key, str(uuid.UUID(bytes=first)), due, _STATES[state])
        for name, key, first, state, due in _ENTRY.iter_unpack(packed[_HEAD.size :])
    )
    return DeferredKeys(
        version,
        entries,
        "" if start == _NOWHERE else str(uuid.UUID(bytes=start)),
        since,
        audience,
    )


def _pack(entry: DeferredKey) -> bytes:
    first = uuid.UUID(entry.id).bytes
    return _ENTRY.pack(entry.subscription, entry.key, first, _STATES.index(entry.state), entry.due)
