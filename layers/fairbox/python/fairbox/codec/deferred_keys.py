"""What visits of an ordered shard hold back, packed into its row: 37 bytes an entry.

Twenty entries stay within the write unit that the row costs anyway; 64 cost three.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as names
from fairbox.codec.item_versions import check_version
from fairbox.codec.keys import key_text
from fairbox.codec.messages import number
from fairbox.errors import Unreadable
from fairbox.model.deferred_keys import NAME_BYTES, Hold, Holds, HoldState
from fairbox.model.item_versions import check_number
from fairbox.model.key_claims import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMAT: Final = 1
_HEAD: Final = struct.Struct(f">B{NAME_BYTES}s16sQ")
_ENTRY: Final = struct.Struct(f">{NAME_BYTES}s{KEY_BYTES}s16sBQ")
_STATES: Final[tuple[HoldState, ...]] = ("waiting", "open", "blocked")
_NOWHERE: Final = bytes(16)


def holds_values(holds: Holds) -> dict[str, Any]:
    """Return the attributes of a shard row that say what visits hold; without what is empty."""
    values: dict[str, Any] = {names.ROW_VERSION: number(holds.version)}
    if holds.entries or holds.start:
        start = uuid.UUID(holds.start).bytes if holds.start else _NOWHERE
        head = _HEAD.pack(_FORMAT, holds.audience, start, holds.since)
        values[names.HOLDS] = {"B": head + b"".join(map(_pack, holds.entries))}
    return values


def read_holds(item: Mapping[str, Any]) -> Holds:
    """Return what a shard row says of messages that visits hold; nothing where there is no row.

    Raises:
        Unreadable: it is not what `holds_values` writes; NewerVersion: a newer release does.
    """
    check_version(item)
    try:
        version = int(item[names.ROW_VERSION]["N"]) if names.ROW_VERSION in item else 0
        if names.HOLDS not in item:
            return Holds(version)
        packed = bytes(item[names.HOLDS]["B"])
        check_number(packed[0], key_text(item))
        return _read(version, packed)
    except (LookupError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error


def _read(version: int, packed: bytes) -> Holds:
    _, audience, start, since = _HEAD.unpack_from(packed)
    entries = tuple(
        Hold(name, key, str(uuid.UUID(bytes=first)), due, _STATES[state])
        for name, key, first, state, due in _ENTRY.iter_unpack(packed[_HEAD.size :])
    )
    return Holds(
        version,
        entries,
        "" if start == _NOWHERE else str(uuid.UUID(bytes=start)),
        since,
        audience,
    )


def _pack(hold: Hold) -> bytes:
    first = uuid.UUID(hold.id).bytes
    return _ENTRY.pack(hold.subscription, hold.key, first, _STATES.index(hold.state), hold.due)
