"""Hint rows: the start of receives in each of sixteen shards, and the next scan from its head."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec.attributes import HINT_AFTER, HINT_LOOK
from fairbox.codec.keys import hint_key, walk_key
from fairbox.codec.messages import number
from fairbox.model.stored_messages import Hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.codec.keys import Key

SHARDS_A_ROW: Final = 16


def group_of(shard: int) -> int:
    """Return the number of the hint row, in its epoch, that holds a shard's hint."""
    return shard // SHARDS_A_ROW


def hint_keys(topic: str, epoch: int, shards: int) -> list[Key]:
    """Return the keys of all hint rows and walk positions that an epoch of so many shards has."""
    groups = [hint_key(topic, epoch, group) for group in range(group_of(shards - 1) + 1)]
    return groups + [walk_key(topic, epoch, shard) for shard in range(shards)]


def after_name(shard: int) -> str:
    """Return the attribute that holds the place where a receive begins in the shard."""
    return f"{HINT_AFTER}{shard % SHARDS_A_ROW}"


def look_name(shard: int) -> str:
    """Return the attribute that holds the time of the next scan from the shard's head."""
    return f"{HINT_LOOK}{shard % SHARDS_A_ROW}"


def hint_values(hint: Hint, shard: int) -> dict[str, Any]:
    """Return the attributes of a shard's hint; without those that it has no value for."""
    values: dict[str, Any] = {}
    if hint.after:
        values[after_name(shard)] = {"B": uuid.UUID(hint.after).bytes}
    if hint.look_at is not None:
        values[look_name(shard)] = number(hint.look_at)
    return values


def read_hint(item: Mapping[str, Any], shard: int) -> Hint:
    """Return a shard's hint; the empty one where there is none, or none that can be read."""
    after, look_at = "", None
    with suppress(KeyError, TypeError, ValueError):
        after = str(uuid.UUID(bytes=bytes(item[after_name(shard)]["B"])))
    with suppress(KeyError, TypeError, ValueError):
        look_at = int(item[look_name(shard)]["N"])
    return Hint(after, look_at)
