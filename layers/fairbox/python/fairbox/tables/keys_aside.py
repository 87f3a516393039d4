"""Waiting keys that the row of an ordered shard does not list (deliveries table).

A key is in the row or here, never in both: it moves in one transaction with the row. Here it has
two items: one by its digest, with its entry, and one by the time when it is due.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.tables.calls import Calls, Rows, key_condition
from fairbox.tables.key_claims import HELD, pack_entries, unpack_entries
from fairbox.tables.keys import EXPIRES_AT, SK, aside_due_sk, aside_pk, aside_sk, check_version, key
from fairbox.tables.stored_messages import number
from fairbox.tables.unreadable_items import reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.model.messages import Shard
    from fairbox.tables.key_claims import KeyClaim, KeyClaims, KeyClaimTable
    from fairbox.tables.keys import Item

FOLLOWER: Final = "fo"  # B, of a waiting key: the UUID of its first message that was passed

_KEPT_SECONDS: Final = 366 * 86_400  # behind its time; a purge leaves items behind
Time = tuple[int, bytes]
_TIMES: Final = "t#"
_NO_OLDER: Final = "attribute_exists(#h) AND (attribute_not_exists(#f) OR #f > :f)"


def aside_item(shard: tuple[str, int, int], name: bytes, entry: KeyClaim) -> Item:
    """Return the item of a waiting key by its digest."""
    return key(aside_pk(*shard, name), aside_sk(entry.key)) | {
        HELD: {"B": pack_entries([entry])},
        EXPIRES_AT: _expiry(entry.until),
    }


def aside_due_item(shard: tuple[str, int, int], name: bytes, entry: KeyClaim) -> Item:
    """Return the item of a waiting key by its time."""
    return key(aside_pk(*shard, name), aside_due_sk(entry.until, entry.key)) | {
        EXPIRES_AT: _expiry(entry.until)
    }


def _expiry(until: int) -> dict[str, str]:
    return number(until // 1000 + _KEPT_SECONDS)


def read_aside(item: Mapping[str, Any]) -> KeyClaim:
    """Return the entry of a waiting key.

    Raises:
        Unreadable: `aside_item` never writes such an item; NewerVersion: a newer release does.
    """
    check_version(item)
    with reading(item, LookupError, ValueError, TypeError, AttributeError, struct.error):
        (entry,) = unpack_entries(bytes(item[HELD]["B"]))
        passed = item.get(FOLLOWER)
        if passed is None:
            return entry
        follower = str(uuid.UUID(bytes=bytes(passed["B"])))
    # noted since the entry was packed: the older message counts
    return replace(entry, follower=min(follower, entry.follower or follower))


def read_aside_due(item: Mapping[str, Any]) -> tuple[int, bytes]:
    """Return when a waiting key is due (ms), and its digest.

    Raises:
        Unreadable: `aside_due_sk` never makes such a sort key.
    """
    with reading(item, LookupError, ValueError, TypeError, AttributeError):
        _, until, digest = item[SK]["S"].split("#")
        return int(until), bytes.fromhex(digest)


class KeysAsideTable(Rows):
    """Reads and moves waiting keys in the deliveries table."""

    def __init__(self, calls: Calls, table: str, rows: KeyClaimTable) -> None:
        super().__init__(calls, table)
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
            **key_condition(aside_pk(*shard, name), "begins_with(#sk, :times)", times=_TIMES),
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
        # with the row in one transaction: a key is never in both places, or in neither
        update = {"Update": self._rows.action(shard, row, version)}
        return self._calls.transacted([update, *actions])

    def follow(self, shard: Shard, name: bytes, digest: bytes, follower: str) -> None:
        """Note the first message of a waiting key that receives pass (1 WRU)."""
        # refused where an older one is noted, or the key is in the row again: that write will fail
        self._calls.written(
            "update_item",
            TableName=self._table,
            Key=key(aside_pk(*shard, name), aside_sk(digest)),
            UpdateExpression="SET #f = :f",
            # an update makes a missing item
            ConditionExpression=_NO_OLDER,
            ExpressionAttributeNames={"#f": FOLLOWER, "#h": HELD},
            ExpressionAttributeValues={":f": {"B": uuid.UUID(follower).bytes}},
        )
