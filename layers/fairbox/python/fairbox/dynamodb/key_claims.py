"""Claims of keys of ordered shards: read with the shard row, changed by compare-and-set.

Counts and the next check in the same row belong to others, who change them under conditions of
their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairbox.codec import attributes as attr
from fairbox.codec.key_claims import claim_values, read_claims
from fairbox.codec.keys import shard_key
from fairbox.codec.messages import number
from fairbox.codec.shards import read_shard
from fairbox.dynamodb.calls import ConditionFailed
from fairbox.dynamodb.compare_and_set import versioned_update
from fairbox.errors import TransactionCancelled
from fairbox.model.ids import before
from fairbox.model.key_claims import KeyClaims

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dynamodb.calls import Calls
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import Shard, ShardRow

_ATTRIBUTES = (attr.HELD, attr.HELD_AFTER, attr.HELD_SINCE)


class KeyClaimTable:
    """Reads and changes claims."""

    def __init__(self, calls: Calls, table: str) -> None:
        self._calls = calls
        self._table = table

    def get(self, shard: Shard) -> KeyClaims:
        """Return the claims of a shard (consistent, 1 RRU for 4 KB)."""
        answer = self._calls.call(
            "get_item", TableName=self._table, Key=shard_key(*shard), ConsistentRead=True
        )
        return read_claims(answer.get("Item", {}))

    def get_many(self, shards: Sequence[Shard]) -> list[tuple[ShardRow, KeyClaims]]:
        """Return the shard rows that are there, with their claims (consistent, 100 a call)."""
        items = self._calls.batch_get(self._table, [shard_key(*shard) for shard in shards])
        return [(read_shard(item), read_claims(item)) for item in items]

    def write(self, shard: Shard, row: KeyClaims, version: int) -> KeyClaims | None:
        """Write claims where the version is this one (1 WRU a KB).

        Returns:
            None when it was written; the row as it is, when others were faster.
        """
        try:
            self._calls.call("update_item", **self.action(shard, row, version))
        except ConditionFailed as failed:
            there = read_claims(failed.old)
            # ours, when the answer to an earlier try was lost
            return None if there == replace(row, version=version + 1) else there
        return None

    def write_with(
        self, update: dict[str, Any], shard: Shard, row: KeyClaims, version: int
    ) -> bool:
        """Write claims and update a message, both or neither; return whether they were written."""
        actions = [{"Update": update}, {"Update": self.action(shard, row, version)}]
        try:
            self._calls.call("transact_write_items", TransactItems=actions)
        except TransactionCancelled:
            return False
        return True

    def action(self, shard: Shard, row: KeyClaims, version: int) -> dict[str, Any]:
        """Return the update that `write` makes."""
        values = claim_values(replace(row, version=version + 1))
        return versioned_update(self._table, shard_key(*shard), values, _ATTRIBUTES, version)

    def wake(self, refs: Sequence[MessageRef]) -> None:
        """Let receives find messages that were committed behind younger ones (1 WRU a shard)."""
        firsts: dict[Shard, str] = {}
        for ref in refs:
            shard = (ref.topic, ref.epoch, ref.shard)
            firsts[shard] = min(ref.id, firsts.get(shard, ref.id))
        for shard, first in firsts.items():
            self.lower_after(shard, first)

    def lower_after(self, shard: Shard, message_id: str) -> bool:
        """Let receives begin no later than at this message; return whether they had passed it."""
        bound = claim_values(KeyClaims(after=before(message_id)))[attr.HELD_AFTER]
        try:
            self._calls.call(
                "update_item",
                TableName=self._table,
                Key=shard_key(*shard),
                UpdateExpression="SET #a = :a, #v = #v + :one",
                ConditionExpression="#a > :a",
                ExpressionAttributeNames={
                    "#a": attr.HELD_AFTER,
                    "#v": attr.ROW_VERSION,
                },
                ExpressionAttributeValues={":a": bound, ":one": number(1)},
            )
        except ConditionFailed:
            return False
        return True
