"""Deferred keys of ordered shards: read with the shard row, changed by compare-and-set."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.deferred_keys import deferred_values, read_deferred
from fairbox.codec.keys import shard_key
from fairbox.codec.shards import read_shard
from fairbox.dynamodb.calls import ConditionFailed
from fairbox.dynamodb.compare_and_set import versioned_update

if TYPE_CHECKING:
    from fairbox.dynamodb.calls import Calls
    from fairbox.model.deferred_keys import DeferredKeys
    from fairbox.model.stored_messages import Shard, ShardRow

_ATTRIBUTES: Final = (attr.HOLDS,)


class DeferredKeyTable:
    """Reads and changes deferred keys."""

    def __init__(self, calls: Calls, table: str) -> None:
        self._calls = calls
        self._table = table

    def get(self, shard: Shard) -> tuple[ShardRow | None, DeferredKeys]:
        """Return a shard row and its deferred keys (consistent, 1 RRU for 4 KB)."""
        answer = self._calls.call(
            "get_item", TableName=self._table, Key=shard_key(*shard), ConsistentRead=True
        )
        item = answer.get("Item")
        return (read_shard(item) if item else None), read_deferred(item or {})

    def write(self, shard: Shard, deferred: DeferredKeys, version: int) -> DeferredKeys | None:
        """Write deferred keys where the version is this one (1 WRU a KB).

        Returns:
            None when it was written; what is there, when others were faster.
        """
        try:
            self._calls.call("update_item", **self.action(shard, deferred, version))
        except ConditionFailed as failed:
            there = read_deferred(failed.old)
            # ours, when the answer to an earlier try was lost
            return None if there == replace(deferred, version=version + 1) else there
        return None

    def action(self, shard: Shard, deferred: DeferredKeys, version: int) -> dict[str, Any]:
        """Return the update that `write` makes."""
        values = deferred_values(replace(deferred, version=version + 1))
        key = shard_key(*shard)
        return versioned_update(self._table, key, values, _ATTRIBUTES, version)
