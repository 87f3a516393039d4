"""Hint rows: the start of receives in each of sixteen shards, and the times of the next checks."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec.attributes import HINT_AFTER, HINT_LOOK, HINT_TIMES
from fairbox.codec.keys import due_sk, hint_key, walk_key
from fairbox.codec.messages import number
from fairbox.model.stored_messages import Hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.codec.keys import Key

SHARDS_A_ROW: Final = 16
_TIME_BYTES: Final = 6


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


def check_name(shard: int) -> str:
    """Return the attribute that holds the time of the next check of the shard."""
    return f"{HINT_LOOK}{shard % SHARDS_A_ROW}"


def times_name(shard: int) -> str:
    """Return the attribute that holds the shard's other times."""
    return f"{HINT_TIMES}{shard % SHARDS_A_ROW}"


def hint_names(shard: int) -> tuple[str, str, str]:
    """Return the attributes that hold a shard's hint."""
    return after_name(shard), check_name(shard), times_name(shard)


def hint_values(hint: Hint, shard: int) -> dict[str, Any]:
    """Return the attributes of a shard's hint; without those that it has no value for."""
    values: dict[str, Any] = {}
    if hint.after:
        values[after_name(shard)] = {"B": uuid.UUID(hint.after).bytes}
    if hint.next_check is not None:
        values[check_name(shard)] = number(hint.next_check)
    if hint.scan_at or hint.checked or hint.later:
        values[times_name(shard)] = {"B": _pack(hint)}
    return values


def read_hint(item: Mapping[str, Any], shard: int) -> Hint:
    """Return a shard's hint; the empty one where there is none, or none that can be read."""
    after, next_check = "", None
    with suppress(KeyError, TypeError, ValueError):
        after = str(uuid.UUID(bytes=bytes(item[after_name(shard)]["B"])))
    with suppress(KeyError, TypeError, ValueError):
        next_check = int(item[check_name(shard)]["N"])
    hint = Hint(after, next_check)
    with suppress(KeyError, TypeError, ValueError):
        hint = _unpacked(hint, bytes(item[times_name(shard)]["B"]))
    return hint


def _pack(hint: Hint) -> bytes:
    """Return the times packed, so that a row of sixteen shards stays within a write unit."""
    packed = _time(hint.scan_at) + _time(hint.checked)
    if hint.later:
        due, _, message_id = hint.later.partition("#")
        packed += _time(int(due)) + uuid.UUID(message_id).bytes
    return packed


def _unpacked(hint: Hint, packed: bytes) -> Hint:
    scan_at, checked = (int.from_bytes(packed[at : at + _TIME_BYTES]) for at in (0, _TIME_BYTES))
    later, rest = "", packed[2 * _TIME_BYTES :]
    if rest:
        due = int.from_bytes(rest[:_TIME_BYTES])
        later = f"{due_sk(due)}#{uuid.UUID(bytes=rest[_TIME_BYTES:])}"
    return replace(hint, scan_at=scan_at, checked=checked, later=later)


def _time(milliseconds: int) -> bytes:
    return milliseconds.to_bytes(_TIME_BYTES)
