"""Waiting keys beside the row of an ordered shard (deliveries table).

A key is in the row or here, never in both: it moves in one transaction with the row.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.keys import aside_due_sk, aside_pk, aside_sk, key
from fairbox.codec.keys_aside import aside_due_item, aside_item, read_aside, read_aside_due
from fairbox.dynamodb.calls import ConditionFailed
from fairbox.errors import TransactionCancelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dynamodb.calls import Calls
    from fairbox.dynamodb.key_claims import KeyClaimTable
    from fairbox.model.key_claims import KeyClaim, KeyClaims
    from fairbox.model.stored_messages import Shard

Time = tuple[int, bytes]
_TIMES: Final = "t#"
_NO_OLDER: Final = "attribute_exists(#h) AND (attribute_not_exists(#f) OR #f > :f)"


class KeysAsideTable:
    """Reads and moves waiting keys.

    Args:
        calls: the calls.
        table: the deliveries table.
        rows: the rows of the shards.
    """

    def __init__(self, calls: Calls, table: str, rows: KeyClaimTable) -> None:
        self._calls = calls
        self._table = table
        self._rows = rows

    def read(self, shard: Shard, name: bytes, keys: Sequence[bytes]) -> dict[bytes, KeyClaim]:
        """Return which of these keys wait, with their entries (consistent, 1 RRU each)."""
        pk = aside_pk(*shard, name)
        wanted = [key(pk, aside_sk(digest)) for digest in keys]
        items = self._calls.batch_get(self._table, wanted)
        return {entry.key: entry for entry in map(read_aside, items)}

    def times(self, shard: Shard, name: bytes, limit: int) -> list[Time]:
        """Return the first times (ms) at which keys are due, with their digests (consistent)."""
        answer = self._calls.call(
            "query",
            TableName=self._table,
            ConsistentRead=True,
            Limit=limit,
            KeyConditionExpression="#pk = :pk AND begins_with(#sk, :times)",
            ExpressionAttributeNames={"#pk": attr.PK, "#sk": attr.SK},
            ExpressionAttributeValues={
                ":pk": {"S": aside_pk(*shard, name)},
                ":times": {"S": _TIMES},
            },
        )
        return [read_aside_due(item) for item in answer["Items"]]

    def put(self, shard: Shard, row: KeyClaims, version: int, entries: Sequence[KeyClaim]) -> bool:
        """Move waiting entries out of a row (4 WRU each); return whether the row was as read."""
        make = (aside_item, aside_due_item)
        items = (one(shard, row.aside.name, entry) for entry in entries for one in make)
        puts = [{"Put": {"TableName": self._table, "Item": item}} for item in items]
        return self._move(shard, row, version, puts)

    def take(
        self, shard: Shard, row: KeyClaims, version: int, name: bytes, times: Sequence[Time]
    ) -> bool:
        """Move keys back into a row (4 WRU each); return whether the row was as read."""
        pk = aside_pk(*shard, name)
        keys = (sk for until, one in times for sk in (aside_sk(one), aside_due_sk(until, one)))
        deletes = [{"Delete": {"TableName": self._table, "Key": key(pk, sk)}} for sk in keys]
        return self._move(shard, row, version, deletes)

    def _move(
        self, shard: Shard, row: KeyClaims, version: int, actions: list[dict[str, Any]]
    ) -> bool:
        update = {"Update": self._rows.action(shard, row, version)}
        try:
            self._calls.call("transact_write_items", TransactItems=[update, *actions])
        except TransactionCancelled:
            return False
        return True

    def follow(self, shard: Shard, name: bytes, digest: bytes, follower: str) -> None:
        """Note the first message of a waiting key that receives pass (1 WRU)."""
        passed = {"B": uuid.UUID(follower).bytes}
        try:
            self._calls.call(
                "update_item",
                TableName=self._table,
                Key=key(aside_pk(*shard, name), aside_sk(digest)),
                UpdateExpression="SET #f = :f",
                ConditionExpression=_NO_OLDER,
                ExpressionAttributeNames={"#f": attr.FOLLOWER, "#h": attr.HELD},
                ExpressionAttributeValues={":f": passed},
            )
        except ConditionFailed:
            return  # an older one is noted, or the key is in the row again: that write will fail
