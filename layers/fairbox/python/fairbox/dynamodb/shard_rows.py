"""Shard rows: state at the head of each `ready` lane, and the index over them."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.keys import shard_key
from fairbox.codec.messages import number
from fairbox.codec.shards import BUCKETS, read_shard, shard_item
from fairbox.dynamodb.calls import ConditionFailed
from fairbox.dynamodb.statements import execute, statement
from fairbox.errors import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairbox.dynamodb.calls import Calls
    from fairbox.model.stored_messages import ShardRow

# what writers of a row other than the one at work change
_WATCHED: Final = (
    attr.READY_SEQUENCE,
    attr.LATER_SEQUENCE,
    attr.LOOK_AT,
    attr.PURGED_DEAD,
    attr.RECOUNT,
)


class ShardRows:
    """Reads and changes shard rows."""

    def __init__(self, calls: Calls, table: str) -> None:
        self._calls = calls
        self._table = table

    def get_many(self, shards: Sequence[tuple[str, int, int]]) -> list[ShardRow]:
        """Return the rows that are there (consistent, 100 a call)."""
        keys = [shard_key(*shard) for shard in shards]
        return [read_shard(item) for item in self._calls.batch_get(self._table, keys)]

    def outstanding(self, shards: Sequence[tuple[str, int, int]]) -> int:
        """Return the messages of shards by their rows (0.5 RRU each, eventually consistent).

        Only the counts are asked for, which is all that policies of producers allow.
        """
        keys = [shard_key(*shard) for shard in shards]
        counts = (attr.READY_COUNT, attr.LATER_COUNT)
        only = (attr.PK, attr.SK, *counts)
        found = self._calls.batch_get(self._table, keys, consistent=False, only=only)
        return sum(max(0, int(i[name]["N"])) for i in found for name in counts if name in i)

    def change(self, row: ShardRow, before: ShardRow) -> bool:
        """Write what differs, where the row is as `before` in what others write; say if it was."""
        try:
            self._calls.call("update_item", **self.change_action(row, before))
        except ConditionFailed as failed:
            # ours, when the answer to an earlier try was lost
            return bool(failed.old) and read_shard(failed.old) == row
        return True

    def change_action(self, row: ShardRow, before: ShardRow) -> dict[str, Any]:
        """Return the update that `change` makes, for a transaction."""
        new, old = shard_item(row), shard_item(before)
        changed = {n: v for n, v in new.items() if old.get(n) != v}
        removed = [n for n in old if n not in new]
        conditions, values = [], {}
        expression_names = {}
        for n, name in enumerate(_WATCHED):
            expression_names[f"#w{n}"] = name
            if name in old:
                conditions.append(f"#w{n} = :w{n}")
                values[f":w{n}"] = old[name]
            else:
                conditions.append(f"attribute_not_exists(#w{n})")
        update = ""
        for verb, fields in (("SET", list(changed)), ("REMOVE", removed)):
            if fields:
                start = len(expression_names)
                places = [f"#c{start + n}" for n in range(len(fields))]
                expression_names |= dict(zip(places, fields, strict=True))
                if verb == "SET":
                    values |= {f":{p[1:]}": new[f] for p, f in zip(places, fields, strict=True)}
                    places = [f"{p} = :{p[1:]}" for p in places]
                update += f"{verb} {', '.join(places)} "
        return {
            "TableName": self._table,
            "Key": shard_key(row.topic, row.epoch, row.shard),
            "UpdateExpression": update.strip(),
            "ConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": expression_names,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            **({"ExpressionAttributeValues": values} if values else {}),
        }

    def delete(self, rows: Sequence[ShardRow]) -> int:
        """Delete rows that are as they were read, 25 a call; return how many were."""
        statements = []
        for row in rows:
            old = shard_item(row)
            wheres = [f'"{n}" = ?' if n in old else f'"{n}" IS MISSING' for n in _WATCHED]
            values = [old[n] for n in _WATCHED if n in old]
            place = shard_key(row.topic, row.epoch, row.shard)
            statements.append(
                statement("DELETE FROM", self._table, place, wheres=wheres, parameters=values)
            )
        return sum(answer.done for answer in execute(self._calls, statements))

    def postpone(self, row: ShardRow, next_check: int, backoff: int) -> bool:
        """Postpone the next check where it is as in `row`; return whether it was."""
        if row.next_check is None:
            return False
        try:
            self._calls.call(
                "update_item",
                TableName=self._table,
                Key=shard_key(row.topic, row.epoch, row.shard),
                UpdateExpression="SET #l = :l, #b = :b",
                ConditionExpression="#l = :was",
                ExpressionAttributeNames={"#l": attr.LOOK_AT, "#b": attr.BACKOFF},
                ExpressionAttributeValues={
                    ":l": number(next_check),
                    ":b": number(backoff),
                    ":was": number(row.next_check),
                },
            )
        except ConditionFailed:
            return False
        return True

    def settle(self, topic: str, epoch: int, shard: int) -> None:
        """Write into a row, made where there is none, that no older shard lists its keys."""
        self._calls.call(
            "update_item",
            TableName=self._table,
            Key=shard_key(topic, epoch, shard),
            UpdateExpression="SET #s = :true",
            ExpressionAttributeNames={"#s": attr.SETTLED},
            ExpressionAttributeValues={":true": {"BOOL": True}},
        )

    def listed(self, until: int | None = None) -> Iterator[ShardRow]:
        """Yield the index's rows, eventually consistent; with `until` (ms): those due by then.

        The buckets take turns, page by page, so that whoever stops early has rows of each.
        """
        buckets = deque(self._bucket_pages(bucket, until) for bucket in BUCKETS)
        while buckets:
            pages = buckets.popleft()
            for page in islice(pages, 1):
                buckets.append(pages)
                for item in page["Items"]:
                    with suppress(Unreadable):  # repair buries it
                        yield read_shard(item)

    def _bucket_pages(self, bucket: str, until: int | None) -> Iterator[dict[str, Any]]:
        condition, values = "#q = :q", {":q": {"S": bucket}}
        expression_names = {"#q": attr.BUCKET}
        if until is not None:
            condition += " AND #l <= :l"
            values[":l"] = number(until)
            expression_names["#l"] = attr.LOOK_AT
        return self._calls.pages(
            "query",
            TableName=self._table,
            IndexName=attr.OUTSTANDING_INDEX,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=expression_names,
            ExpressionAttributeValues=values,
        )
