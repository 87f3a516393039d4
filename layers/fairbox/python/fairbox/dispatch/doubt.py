"""Doubt: counts that may be wrong are listed for the sweep, and a recount is asked for."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fairbox.errors import Unavailable, Unreadable
from fairbox.model.swap import swap
from fairbox.tables.shard_rows import ShardRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairbox.model.messages import Shard
    from fairbox.tables.tables import Tables


def doubt(tables: Tables, shards: Iterable[Shard], now: int) -> None:
    """Put the counts of shards in doubt, and ask for a recount of each (1 RRU, 2 WRU).

    Args:
        tables: the tables.
        shards: each once.
        now: milliseconds since 1970 UTC.

    Raises:
        FairboxError: some may not be asked for; all may be asked for again.
    """
    for shard in shards:
        with suppress(Unreadable):  # it has no counts to doubt
            _doubt(tables, shard, now)
        tables.recounts.ask(shard)


def _doubt(tables: Tables, shard: Shard, now: int) -> None:
    def read() -> ShardRow:
        return next(iter(tables.rows.get_many([shard])), ShardRow(*shard))

    def write(after: ShardRow, before: ShardRow) -> ShardRow | None:
        return None if tables.rows.change(after, before) else read()

    if swap(read(), lambda row: row.doubted(now), write) is None:
        raise Unavailable("update_item", "a shard row is changed by others")
