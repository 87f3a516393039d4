"""The lane `dead`, in the deliveries table: what died, with its reason and history."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.dead_letters import published_item, read_dead
from fairbox.codec.keys import key, key_text, lane_pk, message_key, parse_lane_pk
from fairbox.codec.messages import number, pending_value, states_value
from fairbox.dynamodb import message_states
from fairbox.dynamodb.calls import ConditionFailed
from fairbox.dynamodb.claims import Claims
from fairbox.errors import Unreadable
from fairbox.model.clock import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairbox.codec.keys import Item
    from fairbox.dynamodb.calls import Calls
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import DeadLetter, StoredMessage

_MAX_RAW: Final = 300_000


class DeadLane:
    """Dead letters."""

    def __init__(self, calls: Calls, table: str) -> None:
        self.calls = calls
        self.table = table
        self.claims = Claims(calls, table)

    def bury_action(self, stored: StoredMessage, pending: frozenset[str]) -> dict[str, Any]:
        """Return the upsert that puts a message into lane `dead` for these subscriptions.

        It may be repeated, and adds to what died before for other subscriptions.
        """
        item = _dead_item(stored)
        item_key = {attr.PK: item.pop(attr.PK), attr.SK: item.pop(attr.SK)}
        fields = {f"#f{n}": name for n, name in enumerate(item)} | {"#h": attr.HOLDER}
        values = {f":f{n}": value for n, value in enumerate(item.values())}
        sets = ", ".join(f"#f{n} = :f{n}" for n in range(len(item)))
        return {
            "TableName": self.table,
            "Key": item_key,
            # who holds it has not seen this death, so its receipt is stale
            "UpdateExpression": f"SET {sets}, #a = if_not_exists(#a, :a) ADD #p :p REMOVE #h",
            "ExpressionAttributeNames": fields | {"#p": attr.PENDING, "#a": attr.DIED_AT},
            "ExpressionAttributeValues": values
            | {":p": pending_value(pending), ":a": number(milliseconds(self.calls.clock))},
        }

    def bury(self, stored: StoredMessage, pending: frozenset[str]) -> None:
        """Put a message into lane `dead` for these subscriptions."""
        self.calls.call("update_item", **self.bury_action(stored, pending))

    def bury_raw(self, item: Mapping[str, Any], reason: str) -> None:
        """Put an unreadable item into lane `dead`, as JSON."""
        text = json.dumps(item, default=_binary_text, sort_keys=True)[:_MAX_RAW]
        self.calls.call(
            "put_item",
            TableName=self.table,
            Item=_raw_key(item)
            | {
                attr.RAW: {"S": text},
                attr.REASON: {"S": reason[:1000]},
                attr.DIED_AT: number(milliseconds(self.calls.clock)),
            },
        )

    def get(self, ref: MessageRef) -> Item | None:
        """Return a dead letter's item (consistent)."""
        answer = self.calls.call(
            "get_item", TableName=self.table, Key=message_key(ref, "dead"), ConsistentRead=True
        )
        item: Item | None = answer.get("Item")
        return item

    def find(self, ref: MessageRef) -> StoredMessage | None:
        """Return a dead letter's message (consistent); None where there is none that can be read.

        One that nothing can read lies there as it was, raw.
        """
        item = self.get(ref)
        return None if item is None else read_dead(item).stored

    def remove(self, letter: StoredMessage) -> None:
        """Delete a dead letter that is as it was read."""
        with suppress(ConditionFailed):
            self.calls.call("delete_item", **message_states.unchanged(self.table, letter))

    def items(self, refs: Sequence[MessageRef]) -> list[Item]:
        """Return the dead letters' items that are there (consistent)."""
        keys = {(r.topic, r.epoch, r.shard, r.id): message_key(r, "dead") for r in refs}
        return self.calls.batch_get(self.table, list(keys.values()))

    def any(self, topic: str, epoch: int, shard: int) -> bool:
        """Whether a shard has a dead letter (consistent, 1 RRU)."""
        answer = self.calls.call(
            "query",
            TableName=self.table,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk",
            ExpressionAttributeNames={"#pk": attr.PK},
            ExpressionAttributeValues={":pk": {"S": lane_pk("dead", topic, epoch, shard)}},
            Select="COUNT",
            Limit=1,
        )
        return bool(answer["Count"])

    def walk(
        self, topic: str, epoch: int, shard: int, *, page: int, after: str | None = None
    ) -> Iterator[DeadLetter]:
        """Yield a shard's dead letters in key order, consistent, `page` items to a query.

        With `after` they begin behind this sort key.
        """
        condition, fields = "#pk = :pk", {"#pk": attr.PK}
        values = {":pk": {"S": lane_pk("dead", topic, epoch, shard)}}
        if after:
            condition += " AND #sk > :after"
            fields["#sk"] = attr.SK
            values[":after"] = {"S": after}
        for answer in self.calls.pages(
            "query",
            TableName=self.table,
            ConsistentRead=True,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=fields,
            ExpressionAttributeValues=values,
            Limit=page,
        ):
            yield from map(read_dead, answer["Items"])


def _dead_item(stored: StoredMessage) -> Item:
    item = published_item(stored) | message_key(stored.ref, "dead")
    if stored.states:
        item[attr.STATES] = states_value(stored.states)
    if stored.ref.due is not None:
        item[attr.DUE] = number(stored.ref.due)
    if stored.redriven:
        item[attr.REDRIVEN] = number(stored.redriven)
    if stored.edits:
        item[attr.EDITS] = number(stored.edits)
    item[attr.REASON] = {"S": reason_of(stored)}
    return item


def reason_of(stored: StoredMessage) -> str:
    """Return the reason why a message died: the one given, or that of the last failure."""
    died = [s.history[-1].error for s in stored.states.values() if s.dead and s.history]
    return stored.reason or (died[-1] if died else "") or "max_attempts"


def _raw_key(item: Mapping[str, Any]) -> dict[str, Any]:
    text = key_text(item)
    try:
        _, topic, epoch, shard = parse_lane_pk(text[attr.PK])
    except Unreadable:
        return key("dead#?#0#0", f"{text[attr.PK]}#{text[attr.SK]}"[:1000])
    return key(lane_pk("dead", topic, epoch, shard), text[attr.SK].rpartition("#")[2])


def _binary_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
