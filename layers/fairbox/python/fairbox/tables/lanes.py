"""The lanes of the outbox: reading in order, counting, marking and deleting messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import ItemTooLarge, NewerVersion, TransactionCancelled, Unavailable, Unreadable
from fairbox.model.ids import before
from fairbox.tables import message_states
from fairbox.tables.calls import Calls, ConditionFailed, key_condition
from fairbox.tables.deferred_keys import DeferredKeys, read_deferred
from fairbox.tables.key_claims import KeyClaims, read_claims
from fairbox.tables.keys import HEAD, PK, SK, Item, due_sk, lane_pk, message_key
from fairbox.tables.partiql import execute, statement
from fairbox.tables.shard_rows import ShardRow, read_shard
from fairbox.tables.stored_messages import (
    CLAIM_UNTIL,
    GONE,
    HOLDER,
    REASON,
    REDRIVEN,
    SIZE,
    number,
    read_message,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairbox.model.messages import MessageRef, OpenLane
    from fairbox.tables.stored_messages import Gone, Saved, StoredMessage

_AFTER_HEAD: Final = HEAD + "~"  # above the shard row, below every id and due time
_LAST: Final = "~"


@dataclass(frozen=True, slots=True)
class ShardPage:
    """The result of one consistent read of a shard's lanes.

    Attributes:
        row: the shard row; None when there is none yet.
        messages: the messages that could be read, in key order.
        unreadable: items that the codec could not read, as they are.
        last: the sort key to go on after; None at the end.
        claims: keys that consumers hold, on ordered pulled topics, if the row was read.
        deferred: keys that visits hold back, on ordered pushed topics, if the row was read.
        newer: the first sort key of items that only a newer release can read: they are not among
            the messages, stay where they lie, and on ordered topics block all behind them. Empty:
            there are none.
    """

    row: ShardRow | None
    messages: tuple[StoredMessage, ...]
    unreadable: tuple[Mapping[str, object], ...]
    last: str | None
    claims: KeyClaims | None = None
    deferred: DeferredKeys | None = None
    newer: str = ""

    def before_newer(self) -> ShardPage:
        """Return the part of an ordered lane's page before the first item of a newer release."""
        if not self.newer:
            return self
        messages = tuple(m for m in self.messages if m.ref.id < self.newer)
        return replace(self, messages=messages, last=before(self.newer))


class Lanes:
    """Messages in lanes `ready` and `later`."""

    def __init__(self, calls: Calls, table: str) -> None:
        self.calls = calls
        self.table = table

    def items(self, refs: Sequence[MessageRef]) -> list[Item]:
        """Return the items of these messages that lie here (consistent)."""
        unique = {key_pair(message_key(r)): message_key(r) for r in refs}
        return self.calls.batch_get(self.table, list(unique.values()))

    def read(
        self, refs: Sequence[MessageRef], *, pass_newer: bool = False
    ) -> tuple[list[StoredMessage], list[Mapping[str, object]]]:
        """Return those of these messages that lie here (consistent), and unreadable items.

        Raises:
            NewerVersion: only a newer release can read one; with `pass_newer` it is passed over.
        """
        messages: list[StoredMessage] = []
        unreadable: list[Mapping[str, object]] = []
        for item in self.items(refs):
            try:
                messages.append(read_message(item))
            except NewerVersion:
                if not pass_newer:
                    raise
            except Unreadable:
                unreadable.append(item)
        return messages, unreadable

    def get(self, ref: MessageRef) -> Item | None:
        """Return one message's item (consistent)."""
        return self.calls.get(self.table, message_key(ref))

    def delete(self, keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Delete items, 25 a call; return the keys that were left unprocessed."""
        unique = {key_pair(k): dict(k) for k in keys}  # a batch refuses a key named twice
        requests = [{"DeleteRequest": {"Key": k}} for k in unique.values()]
        left = self.calls.batch_write(self.table, requests)
        return [request["DeleteRequest"]["Key"] for request in left]

    def delete_messages(self, messages: Sequence[StoredMessage]) -> None:
        """Delete messages where they lie, 25 a call.

        Raises:
            Unavailable: some are not deleted; the call may be repeated with all.
        """
        self.delete_keys([message_key(m.ref, m.lane) for m in messages])

    def delete_keys(self, keys: Sequence[Mapping[str, Any]]) -> None:
        """Delete items, 25 a call; as `delete_messages`."""
        left = self.delete(keys)
        if left:
            raise Unavailable("batch_write_item", f"{len(left)} items were not deleted")

    def mark_gone(self, ref: MessageRef, gone: Gone, reason: str) -> Item | None:
        """Mark an outstanding message as leaving undelivered.

        Returns:
            Its item as it was, maybe marked already; None when it was not outstanding.
        """
        try:
            answer = self.calls.call(
                "update_item",
                TableName=self.table,
                Key=message_key(ref),
                UpdateExpression="SET #g = :g, #r = :r",
                # an update makes a missing item, and nothing but a message has a size
                ConditionExpression="attribute_exists(#z) AND attribute_not_exists(#g)",
                ExpressionAttributeNames={"#g": GONE, "#r": REASON, "#z": SIZE},
                ExpressionAttributeValues={":g": {"S": gone}, ":r": {"S": reason}},
                ReturnValues="ALL_OLD",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailed as failed:
            # ours, when the answer to an earlier try was lost
            mark = failed.old.get(GONE), failed.old.get(REASON)
            return dict(failed.old) if mark == ({"S": gone}, {"S": reason}) else None

        item: Item = answer["Attributes"]
        return item

    def delete_marked(self, stored: StoredMessage) -> bool:
        """Delete a message that carries `gone`; return whether it was there, in the same life."""
        return self.calls.written("delete_item", **message_states.marked(self.table, stored))

    def delete_purged(self, letters: Sequence[StoredMessage]) -> None:
        """Delete the marks that purges left for these, 25 a call; readers delete the rest."""
        deletions = [
            statement(
                "DELETE FROM",
                self.table,
                message_key(letter.ref),
                wheres=[f'"{GONE}" = ?', f'"{REDRIVEN}" = ?'],
                parameters=[{"S": "purged"}, number(letter.redriven + 1)],
            )
            for letter in letters
        ]
        # errors do not matter: whoever reads a mark deletes it
        execute(self.calls, deletions)

    def delete_unchanged(self, before: StoredMessage) -> Saved:
        """Delete an outstanding message whose state is as in `before`; see `save_state`."""
        unchanged = message_states.unchanged(self.table, before)
        old = self.calls.refused("delete_item", **unchanged)
        if old is None:
            return "saved"
        return read_message(old) if old else "absent"

    def save_state(
        self, stored: StoredMessage, before: StoredMessage, *others: dict[str, Any]
    ) -> Saved:
        """Write pending, states, gone and reason where they are as in `before`.

        Other actions are part of the same transaction.

        Returns:
            `saved`; `absent` when the message is not there; `too large` when an item would be, and
            nothing was written; the message as it is, when it differs.
        """
        update = message_states.update(self.table, stored, before)

        try:
            if others:
                self.calls.transact([{"Update": update}, *others])
            else:
                self.calls.call("update_item", **update)
        except ItemTooLarge:
            return "too large"
        except ConditionFailed as failed:
            return saved_or_there(failed.old, stored)
        except TransactionCancelled as cancelled:
            # reasons are in the order of the actions: the first is the message's
            return saved_or_there(cancelled.reasons[0][1], stored)
        return "saved"

    def page(
        self,
        lane: OpenLane,
        topic: str,
        epoch: int,
        shard: int,
        *,
        limit: int,
        after: str | None = None,
        until_due: int | None = None,
        upto: str | None = None,
        consistent: bool = True,
    ) -> ShardPage:
        """Return a page of a lane; from the head it brings the shard row too.

        `until_due` or `upto` bounds it: a due time (ms) in lane `later`, or a sort key.
        """
        upper = upto or (_LAST if until_due is None else due_sk(until_due + 1))

        answer = self.calls.call(
            "query",
            TableName=self.table,
            ConsistentRead=consistent,
            Limit=limit,
            **key_condition(
                lane_pk(lane, topic, epoch, shard),
                "#sk BETWEEN :low AND :high",
                # BETWEEN includes its bounds, and no key lies between `after` and this text
                low=HEAD if after is None else after + " ",
                high=upper,
            ),
        )

        return _shard_page(answer)

    def walk(
        self,
        lane: OpenLane,
        topic: str,
        epoch: int,
        shard: int,
        *,
        page: int,
        upper: str = _LAST,
        lower: str = _AFTER_HEAD,
    ) -> Iterator[StoredMessage]:
        """Yield the messages of a lane in key order, consistent, a page when it is needed.

        Items that the codec cannot read, and messages marked as gone, are passed over. `lower` and
        `upper` bound the sort key, both included; with the lower above the upper nothing is read.
        """
        if lower > upper:
            return

        between = self._range(lane_pk(lane, topic, epoch, shard), lower, upper)
        for answer in self.calls.pages("query", **between, Limit=page):
            for item in answer["Items"]:
                try:
                    stored = read_message(item)
                except Unreadable:
                    continue
                if stored.gone is None:
                    yield stored

    def _range(self, pk: str, lower: str = _AFTER_HEAD, upper: str = _LAST) -> dict[str, Any]:
        return {
            "TableName": self.table,
            "ConsistentRead": True,
            **key_condition(pk, "#sk BETWEEN :low AND :high", low=lower, high=upper),
        }

    def count(
        self, lane: OpenLane, topic: str, epoch: int, shard: int, *, limit: int | None
    ) -> int:
        """Return how many items lie in a lane; reads `limit` at most."""
        total = 0
        arguments = self._range(lane_pk(lane, topic, epoch, shard)) | {"Select": "COUNT"}

        while limit is None or total < limit:
            if limit is not None:
                arguments["Limit"] = limit - total
            answer = self.calls.call("query", **arguments)
            total += answer["Count"]
            if "LastEvaluatedKey" not in answer:
                break
            arguments["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

        return total

    def count_claimed(self, shard: tuple[str, int, int], now: int) -> int:
        """Return how many messages of an unordered shard consumers hold (eventually consistent)."""
        names = {"#until": CLAIM_UNTIL, "#token": HOLDER, "#gone": GONE}
        claims = "#until > :now AND attribute_exists(#token) AND attribute_not_exists(#gone)"
        lanes: tuple[OpenLane, ...] = ("ready", "later")

        total = 0
        # a delayed message that is due and held still lies in its own lane
        for lane in lanes:
            arguments = self._range(lane_pk(lane, *shard)) | {
                "Select": "COUNT",
                "ConsistentRead": False,
                "FilterExpression": claims,
            }
            arguments["ExpressionAttributeNames"] |= names
            arguments["ExpressionAttributeValues"] |= {":now": {"N": str(now)}}
            total += sum(answer["Count"] for answer in self.calls.pages("query", **arguments))

        return total

    def scan_arguments(self, segment: int, segments: int, *, count: bool = False) -> dict[str, Any]:
        """Return the arguments of a scan of one segment for messages only (consistent)."""
        arguments: dict[str, Any] = {
            "TableName": self.table,
            "ConsistentRead": True,
            "Segment": segment,
            "TotalSegments": segments,
            # rows of shards and topics have no size
            "FilterExpression": "attribute_exists(#z)",
            "ExpressionAttributeNames": {"#z": SIZE},
        }
        return arguments | ({"Select": "COUNT"} if count else {})

    def count_all(self, *, limit: int | None) -> int:
        """Return how many messages the table holds; stops at `limit`, a page too late at most."""
        total = 0
        arguments = self.scan_arguments(0, 1, count=True)
        if limit is not None:
            # DynamoDB refuses a limit of 0
            arguments["Limit"] = max(limit, 1)

        for answer in self.calls.pages("scan", **arguments):
            total += answer["Count"]
            if limit is not None and total >= limit:
                return limit
        return total


def saved_or_there(old: Mapping[str, Any], stored: StoredMessage) -> Saved:
    """Return the result of a refused write of the state, by the old image that came back."""
    if not old:
        return "absent"
    there = read_message(old)
    # ours, when the answer to an earlier try was lost
    same = (there.pending, there.states, there.gone, there.redriven) == (
        stored.pending,
        dict(stored.states),
        stored.gone,
        stored.redriven,
    )
    return "saved" if same else there


def key_pair(item: Mapping[str, Any]) -> tuple[str, str]:
    """Return the primary key of an item, or of a key, as a hashable pair."""
    return item[PK]["S"], item[SK]["S"]


def _shard_page(answer: Mapping[str, Any]) -> ShardPage:
    row: ShardRow | None = None
    claims: KeyClaims | None = None
    deferred: DeferredKeys | None = None
    messages: list[StoredMessage] = []
    unreadable: list[Mapping[str, object]] = []
    newer = ""

    for item in answer["Items"]:
        if item[SK]["S"] == HEAD:
            try:
                row = read_shard(item)
                # a topic is pulled or pushed: one of these is empty
                claims, deferred = read_claims(item), read_deferred(item)
            except NewerVersion:
                raise  # who does not know what is held must send nothing
            except Unreadable:
                pass  # repair buries it; the messages behind it go on
            continue

        try:
            messages.append(read_message(item))
        except NewerVersion:
            newer = newer or item[SK]["S"]
        except Unreadable:
            unreadable.append(item)

    last = answer.get("LastEvaluatedKey")
    cursor = last and last[SK]["S"]
    return ShardPage(row, tuple(messages), tuple(unreadable), cursor, claims, deferred, newer)
