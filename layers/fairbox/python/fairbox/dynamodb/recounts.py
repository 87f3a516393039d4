"""Recounts in the tables: asked for by marking and repair, carried out by repair."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fairbox.codec import attributes as attr
from fairbox.codec.keys import key, key_of, lane_pk
from fairbox.codec.recounts import (
    RECOUNTS,
    changes_sk,
    fence_item,
    keys_of,
    marks_pk,
    marks_value,
    read_marks,
    read_recount,
    read_sk,
    recount_item,
    recount_key,
    recount_place,
)
from fairbox.dynamodb.calls import ConditionFailed
from fairbox.errors import Unavailable, Unreadable
from fairbox.model.recounts import LaneMarks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.dynamodb.calls import Calls
    from fairbox.model.recounts import Part, Recount
    from fairbox.model.stored_messages import Shard, ShardRow

_PAGE_LIMIT = 5_000


class RecountTable:
    """Implements `fairbox.dispatch.maintenance.recount.RecountStore`."""

    def __init__(self, calls: Calls, outbox: str, deliveries: str) -> None:
        self._calls = calls
        self._table = outbox
        self._deliveries = deliveries

    def ask(self, shard: Shard) -> None:
        """Ask for a recount; one that is underway begins again (1 WRU).

        The shard's row is to be in doubt before: a recount that ends in between keeps the request.
        """
        self._calls.call(
            "update_item",
            TableName=self._table,
            Key=recount_key(*shard),
            UpdateExpression="SET #s = :none",
            ExpressionAttributeNames={"#s": attr.RECOUNT_STATE},
            ExpressionAttributeValues={":none": {"S": "{}"}},
        )

    def asked(self) -> list[Recount]:
        """Return the recounts that were asked for (consistent; 1 RRU when there are none)."""
        found: list[Recount] = []
        for item in self._items(RECOUNTS, ""):
            with suppress(Unreadable):  # the scan finds what is wrong with its shard
                found.append(read_recount(item))
        return found

    def places(self) -> frozenset[Shard]:
        """Return the shards of these, whatever their state says (consistent; 1 RRU for none)."""
        return frozenset(recount_place(item) for item in self._items(RECOUNTS, ""))

    def save(self, recount: Recount) -> None:
        """Keep how far a recount is."""
        self._calls.call("put_item", TableName=self._table, Item=recount_item(recount))

    def read(self, recount: Recount) -> tuple[str, float]:
        """Read on in the lane of a recount (consistent), and keep the keys.

        Returns:
            The sort key to go on after, empty at the end; and the read units used.
        """
        part = recount.part or "ready"
        pk = lane_pk(part, *recount.place)
        dead = part == "dead"
        arguments: dict[str, Any] = {
            "TableName": self._deliveries if dead else self._table,
            "ConsistentRead": True,
            "Limit": _PAGE_LIMIT,
            "ReturnConsumedCapacity": "TOTAL",
            "KeyConditionExpression": "#pk = :pk",
            "ProjectionExpression": "#sk" if dead else "#sk, #states",
            "ExpressionAttributeNames": {"#pk": attr.PK, "#sk": attr.SK}
            | ({} if dead else {"#states": attr.STATES}),
            "ExpressionAttributeValues": {":pk": {"S": pk}},
        }
        if recount.after:
            arguments["ExclusiveStartKey"] = key(pk, recount.after)
        answer = self._calls.call("query", **arguments)
        marks = keys_of(part, answer["Items"])
        if marks.present or marks.dead:
            self._keep(recount.place, read_sk(recount.since, part, recount.pages), marks)
        units = float(answer.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0))
        return answer.get("LastEvaluatedKey", {}).get(attr.SK, {"S": ""})["S"], units

    def log(self, row: ShardRow, lane: Part, marks: LaneMarks, *, first: str, last: str) -> None:
        """Keep the changes of a lane between two sequence numbers; a repetition overwrites."""
        place = row.topic, row.epoch, row.shard
        self._keep(place, changes_sk(row.recount or 0, lane, last, first), marks)

    def changes(self, recount: Recount, lane: Part, until: str) -> LaneMarks:
        """Return the newest state of what changed in a lane, up to a sequence number."""
        if not until:
            return LaneMarks()
        bound = changes_sk(recount.since, lane, until) + "~"
        items = self._items(marks_pk(recount.place), changes_sk(recount.since, lane))
        return read_marks(item for item in items if item[attr.SK]["S"] < bound)

    def pages(self, recount: Recount, part: Part) -> Iterator[LaneMarks]:
        """Yield the pages of keys that were read of a lane."""
        items = self._items(marks_pk(recount.place), read_sk(recount.since, part))
        return (read_marks([item]) for item in items)

    def fence(self, recount: Recount, lane: Part, message_id: str, now: int) -> None:
        """Let an item enter a lane and leave it (2 WRU)."""
        item = fence_item(recount.place, lane, message_id, now)
        self._calls.call("put_item", TableName=self._table, Item=item)
        self._calls.call("delete_item", TableName=self._table, Key=key_of(item))

    def forget(self, recount: Recount, *, done: bool) -> None:
        """Delete what recounts of a shard gathered; with `done` the request too, unless it is new.

        Raises:
            Unavailable: some is left.
        """
        pk = marks_pk(recount.place)
        requests = [{"DeleteRequest": {"Key": key_of(i)}} for i in self._items(pk, "")]
        left = self._calls.batch_write(self._table, requests)
        if left:
            raise Unavailable("batch_write_item", f"{len(left)} marks were not deleted")
        if not done:
            return
        with suppress(ConditionFailed):  # it was asked for again
            self._calls.call(
                "delete_item",
                TableName=self._table,
                Key=recount_key(*recount.place),
                ConditionExpression="#s = :s",
                ExpressionAttributeNames={"#s": attr.RECOUNT_STATE},
                ExpressionAttributeValues={":s": recount_item(recount)[attr.RECOUNT_STATE]},
            )

    def _keep(self, shard: Shard, sk: str, marks: LaneMarks) -> None:
        self._calls.call(
            "update_item",
            TableName=self._table,
            Key=key(marks_pk(shard), sk),
            UpdateExpression="SET #m = :m",
            ExpressionAttributeNames={"#m": attr.RECOUNT_MARKS},
            ExpressionAttributeValues={":m": marks_value(marks)},
        )

    def _items(self, pk: str, prefix: str) -> Iterator[dict[str, Any]]:
        condition, names, values = "#pk = :pk", {"#pk": attr.PK}, {":pk": {"S": pk}}
        if prefix:
            condition += " AND begins_with(#sk, :prefix)"
            names["#sk"] = attr.SK
            values[":prefix"] = {"S": prefix}
        for page in self._calls.pages(
            "query",
            TableName=self._table,
            ConsistentRead=True,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
        ):
            yield from page["Items"]
