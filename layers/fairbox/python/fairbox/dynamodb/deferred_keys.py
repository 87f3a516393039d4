"""Deferred keys of ordered shards: read with the shard row, changed by compare-and-set."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.dead_letters import read_dead
from fairbox.codec.deferred_keys import deferred_values, read_deferred
from fairbox.codec.keys import message_key, shard_key
from fairbox.codec.messages import read_message
from fairbox.codec.shards import read_shard
from fairbox.dynamodb.calls import ConditionFailed
from fairbox.dynamodb.compare_and_set import versioned_update
from fairbox.errors import Unreadable

if TYPE_CHECKING:
    from fairbox.dynamodb.tables import Tables
    from fairbox.model.deferred_keys import DeferredKeys
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import Shard, ShardRow, StoredMessage

_ATTRIBUTES: Final = (attr.HOLDS,)


class DeferredKeyTable:
    """Reads and changes deferred keys."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def get(self, shard: Shard) -> tuple[ShardRow | None, DeferredKeys]:
        """Return a shard row and its deferred keys (consistent, 1 RRU for 4 KB)."""
        answer = self._tables.calls.call(
            "get_item", TableName=self._tables.outbox, Key=shard_key(*shard), ConsistentRead=True
        )
        item = answer.get("Item")
        return (read_shard(item) if item else None), read_deferred(item or {})

    def write(self, shard: Shard, deferred: DeferredKeys, version: int) -> DeferredKeys | None:
        """Write deferred keys where the version is this one (1 WRU a KB).

        Returns:
            None when it was written; what is there, when others were faster.
        """
        try:
            self._tables.calls.call("update_item", **self.action(shard, deferred, version))
        except ConditionFailed as failed:
            there = read_deferred(failed.old)
            # ours, when the answer to an earlier try was lost
            return None if there == replace(deferred, version=version + 1) else there
        return None

    def action(self, shard: Shard, deferred: DeferredKeys, version: int) -> dict[str, Any]:
        """Return the update that `write` makes."""
        values = deferred_values(replace(deferred, version=version + 1))
        key = shard_key(*shard)
        return versioned_update(self._tables.outbox, key, values, _ATTRIBUTES, version)

    def outstanding_or_dead(
        self, ref: MessageRef
    ) -> tuple[StoredMessage | None, StoredMessage | None]:
        """Return a message as it lies in its lane and as a dead letter, both at one time.

        A death and a redrive move it from one to the other, so two reads could miss it in both. A
        transaction of two reads: 4 RRU for messages of up to 4 KB.
        """
        gets = [
            {"Get": {"TableName": self._tables.outbox, "Key": message_key(ref)}},
            {"Get": {"TableName": self._tables.deliveries, "Key": message_key(ref, "dead")}},
        ]
        answer = self._tables.calls.call("transact_get_items", TransactItems=gets)
        lying, dead = (found.get("Item") for found in answer["Responses"])
        letter = read_dead(dead).stored if dead else None
        try:
            return (read_message(lying) if lying else None), letter
        except Unreadable:
            return None, letter  # the page that it lies in buries it
