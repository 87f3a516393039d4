"""Doubt: counts that may be wrong are listed for the sweep, and a recount is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.errors import Unavailable, Unreadable
from fairbox.model.stored_messages import ShardRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairbox.dispatch.ports import MarkingStore

_TRIES: Final = 8

Shard = tuple[str, int, int]


def doubt(store: MarkingStore, shards: Iterable[Shard], now: int) -> None:
    """Put the counts of shards in doubt, and ask for a recount of each (1 RRU, 2 WRU).

    Args:
        store: the tables.
        shards: each once.
        now: milliseconds since 1970 UTC.

    Raises:
        FairboxError: some may not be asked for; all may be asked for again.
    """
    for shard in shards:
        for _ in range(_TRIES):
            row = _row(store, shard)
            if row is None or row.doubted(now) == row:
                break
            if store.change_row(row.doubted(now), row):
                break
        else:
            raise Unavailable("update_item", "a shard row is changed by others")
        store.ask_recount(shard)


def _row(store: MarkingStore, shard: Shard) -> ShardRow | None:
    """Return a shard's row, the empty one where there is none; None: it cannot be read."""
    try:
        return next(iter(store.shard_rows([shard])), ShardRow(*shard))
    except Unreadable:
        return None
