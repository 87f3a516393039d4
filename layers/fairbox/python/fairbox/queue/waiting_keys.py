"""Waiting keys of ordered shards: few lie in the shard's row, the others beside it.

So keys that wait take no room in the row, however many they are. A key is set aside after it was
given back, and comes into the row again when it is due.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.model.clock import Clock, milliseconds
from fairbox.tables.key_claims import MAX_ENTRIES, KeyClaim, KeyClaims, KeysAside

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from random import Random

    from fairbox.model.messages import Shard
    from fairbox.tables.tables import Tables

_IN_ROW: Final = 16  # keys that wait in the row at most
_LEFT: Final = 8  # of these stay when others are set aside
_AT_ONCE: Final = 48  # keys that one transaction moves
_MOVES: Final = 8  # transactions of a receive
_NAME_BITS: Final = 64
_SOON_MS: Final = 1_000  # a key that is due so soon is not worth a move
_FREE_KEYS: Final = 10_000


class WaitingKeys:
    """Moves waiting keys out of the rows of shards, and back when they are due.

    Args:
        clock, rng: time, and names of items.
    """

    def __init__(self, tables: Tables, clock: Clock, rng: Random) -> None:
        self._tables = tables
        self._clock = clock
        self._rng = rng
        self._free: dict[Shard, tuple[bytes, int, set[bytes]]] = {}

    def tend(self, shard: Shard, row: KeyClaims) -> KeyClaims | None:
        """Return a row when keys that are due are in it, and few others; None: it has changed."""
        now = milliseconds(self._clock)
        if row.aside.count and row.aside.next_check <= now and len(row.entries) < MAX_ENTRIES:
            return self._recall(shard, row, now)

        for _ in range(_MOVES):
            waiting = [entry for entry in row.entries if _may_go(entry, now)]
            if len(waiting) <= _IN_ROW:
                break
            waiting.sort(key=lambda entry: entry.until)
            changed = self._set_aside(shard, row, waiting[_LEFT:][-_AT_ONCE:])
            if changed is None:
                return None
            row = changed
        return row

    def among(self, shard: Shard, row: KeyClaims, keys: Collection[bytes]) -> dict[bytes, KeyClaim]:
        """Return which of these keys wait beside a row, with their entries (1 RRU each).

        A key that did not wait is read once: it does not wait until a key is set aside again.
        """
        if not row.aside.count:
            return {}
        name, moves, free = self._free.get(shard, (b"", 0, set()))
        if (name, moves) != (row.aside.name, row.aside.moves) or len(free) > _FREE_KEYS:
            free = set()
        unknown = sorted(set(keys) - free - {entry.key for entry in row.entries})
        found = self._tables.keys_aside.read(shard, row.aside.name, unknown) if unknown else {}
        self._free[shard] = row.aside.name, row.aside.moves, free | (set(unknown) - found.keys())
        return found

    def recall(self, shard: Shard, row: KeyClaims, key: bytes) -> KeyClaims | None:
        """Return a row with a key in it that waited beside it; None: the row has changed."""
        found = self._tables.keys_aside.read(shard, row.aside.name, [key])
        times = [(entry.until, entry.key) for entry in found.values()]
        return self._take(shard, row, times, found, row.aside.next_check)

    def _recall(self, shard: Shard, row: KeyClaims, now: int) -> KeyClaims | None:
        name = row.aside.name
        times = self._tables.keys_aside.times(shard, name, _AT_ONCE + 1)
        due = [time for time in times[:_AT_ONCE] if time[0] <= now]
        rest = times[len(due) :]
        found = self._tables.keys_aside.read(shard, name, [key for _, key in due]) if due else {}
        if not times:  # whatever the row says
            row = replace(row, aside=replace(row.aside, count=0))
        return self._take(shard, row, due, found, rest[0][0] if rest else now + _SOON_MS)

    def _take(
        self,
        shard: Shard,
        row: KeyClaims,
        times: list[tuple[int, bytes]],
        found: Mapping[bytes, KeyClaim],
        next_check: int,
    ) -> KeyClaims | None:
        left = max(0, row.aside.count - len(times))
        aside = replace(row.aside, count=left, next_check=next_check) if left else KeysAside()
        changed = replace(row, entries=(*row.entries, *found.values()), aside=aside)
        if not self._tables.keys_aside.take(shard, changed, row.version, row.aside.name, times):
            return None
        return replace(changed, version=row.version + 1)

    def _set_aside(self, shard: Shard, row: KeyClaims, entries: list[KeyClaim]) -> KeyClaims | None:
        aside = row.aside
        if not aside.count:
            name = self._rng.getrandbits(_NAME_BITS).to_bytes(_NAME_BITS // 8, "big")
            aside = KeysAside(next_check=entries[0].until, name=name)
        next_check = min(aside.next_check, entries[0].until)
        aside = KeysAside(aside.count + len(entries), next_check, aside.name, aside.moves + 1)

        gone = {entry.key for entry in entries}
        stay = tuple(entry for entry in row.entries if entry.key not in gone)
        changed = replace(row, entries=stay, aside=aside)
        if not self._tables.keys_aside.put(shard, changed, row.version, entries):
            return None
        return replace(changed, version=row.version + 1)


def _may_go(entry: KeyClaim, now: int) -> bool:
    """Whether a key waits long enough, after a failure, to lie beside the row."""
    waits = entry.state == "waiting" and entry.until > now + _SOON_MS
    return waits and entry.count > 0 and not entry.acked and entry.failed is None
