"""Items of waiting keys that an ordered shard's row does not list (deliveries table).

A key has two items: one by its digest, with its entry, and one by the time when it is due.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.item_versions import check_version
from fairbox.codec.key_claims import pack_entries, unpack_entries
from fairbox.codec.keys import aside_due_sk, aside_pk, aside_sk, key, key_text
from fairbox.codec.messages import number
from fairbox.errors import Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.codec.keys import Item
    from fairbox.model.key_claims import KeyClaim

_KEPT_SECONDS: Final = 366 * 86_400  # behind its time; a purge leaves items behind


def aside_item(shard: tuple[str, int, int], name: bytes, entry: KeyClaim) -> Item:
    """Return the item of a waiting key by its digest."""
    return key(aside_pk(*shard, name), aside_sk(entry.key)) | {
        attr.HELD: {"B": pack_entries([entry])},
        attr.EXPIRES_AT: _expiry(entry.until),
    }


def aside_due_item(shard: tuple[str, int, int], name: bytes, entry: KeyClaim) -> Item:
    """Return the item of a waiting key by its time."""
    return key(aside_pk(*shard, name), aside_due_sk(entry.until, entry.key)) | {
        attr.EXPIRES_AT: _expiry(entry.until)
    }


def _expiry(until: int) -> dict[str, str]:
    return number(until // 1000 + _KEPT_SECONDS)


def read_aside(item: Mapping[str, Any]) -> KeyClaim:
    """Return the entry of a waiting key.

    Raises:
        Unreadable: it is not what `aside_item` writes; NewerVersion: a newer release does.
    """
    check_version(item)
    try:
        (entry,) = unpack_entries(bytes(item[attr.HELD]["B"]))
        passed = item.get(attr.FOLLOWER)
        if passed is None:
            return entry
        follower = str(uuid.UUID(bytes=bytes(passed["B"])))
    except (LookupError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error
    return replace(entry, follower=min(follower, entry.follower or follower))


def read_aside_due(item: Mapping[str, Any]) -> tuple[int, bytes]:
    """Return when a waiting key is due (ms), and its digest.

    Raises:
        Unreadable: its sort key is not what `aside_due_sk` writes.
    """
    try:
        _, until, digest = item[attr.SK]["S"].split("#")
        return int(until), bytes.fromhex(digest)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error
