"""Lane `dead`, in the deliveries table: dead letters with their reason and history.

An item that was buried as unreadable stays raw.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import NewerVersion, Unreadable
from fairbox.model.clock import milliseconds
from fairbox.tables import message_states
from fairbox.tables.calls import Calls, ConditionFailed, key_condition
from fairbox.tables.keys import PK, SK, Item, key, key_text, lane_pk, message_key, parse_lane_pk
from fairbox.tables.message_states import Claims
from fairbox.tables.stored_messages import (
    DIED_AT,
    DUE,
    EDITS,
    GONE,
    HOLDER,
    PENDING,
    RAW,
    REASON,
    REDRIVEN,
    STATES,
    number,
    numbers,
    pending_value,
    published_item,
    read_message,
    states_value,
    whole,
)
from fairbox.tables.unreadable_items import NOT_OURS, reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairbox.model.messages import Message, MessageRef
    from fairbox.tables.stored_messages import StoredMessage

_MAX_RAW: Final = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An entry of lane `dead`: a message with its state, or an item that nothing could read.

    Attributes:
        topic, epoch, shard: where it died.
        id: the message's id; of an unreadable item, the end of its sort key.
        reason: the text of the last failure, or of the reader.
        died_at: when, in milliseconds since 1970 UTC.
        stored: the message with its failures by subscription; None: it cannot be read.
        raw: the unreadable item as JSON; empty where there is a message.
        newer: a newer release can read it, and is to redrive or purge it.
    """

    topic: str
    epoch: int
    shard: int
    id: str
    reason: str
    died_at: int
    stored: StoredMessage | None
    raw: str = ""
    newer: bool = False

    @property
    def name(self) -> str:
        """The text that names it, readable or not: its ref without due time."""
        return f"{self.topic}/{self.epoch}/{self.shard}/{self.id}"

    @property
    def message(self) -> Message | None:
        """The message, its body maybe still offloaded; None: it cannot be read."""
        return None if self.stored is None else self.stored.message

    @property
    def ref(self) -> MessageRef | None:
        """The message's ref; None: it cannot be read."""
        return None if self.stored is None else self.stored.ref

    @property
    def subscriptions(self) -> frozenset[str]:
        """The subscriptions that it died for."""
        pending = None if self.stored is None else self.stored.pending
        return pending or frozenset()


def read_dead(item: Mapping[str, Any]) -> DeadLetter:
    """Return the dead letter that an item of lane `dead` holds, raw where it is no message.

    Raises:
        Unreadable: its key is not that of a lane, or the attributes of its death cannot be read.
    """
    with reading(item, *NOT_OURS):
        _, topic, epoch, shard = parse_lane_pk(item[PK]["S"])
        reason = item.get(REASON, {"S": ""})["S"]
        raw = item.get(RAW, {"S": ""})["S"]

        stored, newer = None, False
        if not raw:
            try:
                stored = read_message(item)
            except NewerVersion as error:
                newer, reason = True, reason or error.reason
            except Unreadable as error:
                reason = reason or error.reason

        # letters that cannot be read are listed too, so that operators can purge them by name
        return DeadLetter(
            topic=topic,
            epoch=epoch,
            shard=shard,
            id=item[SK]["S"],
            reason=reason,
            died_at=whole(item, DIED_AT) or 0,
            stored=stored,
            raw=raw,
            newer=newer,
        )


def returning_item(letter: StoredMessage) -> Item:
    """Return the item of a dead letter that comes back into its own lane, under its own key.

    It is pending for the subscriptions that it died for and no other, without earlier failures.
    """
    item = published_item(letter) | message_key(letter.ref)
    if letter.pending is not None:
        item[PENDING] = pending_value(letter.pending)
    return item | numbers({EDITS: letter.edits or None, REDRIVEN: letter.redriven + 1})


def purged_item(letter: StoredMessage, reason: str) -> Item:
    """Return the mark that a purged dead letter leaves in its own lane: no body, and gone already.

    Its insert is counted as a redrive's is, and its removal reaches the archive and the body store.
    """
    message = letter.message.with_content(body=b"", headers={})
    emptied = replace(letter, unknown=(), message=message)
    return returning_item(emptied) | {GONE: {"S": "purged"}, REASON: {"S": reason}}


class DeadLane:
    """Dead letters."""

    def __init__(self, calls: Calls, table: str) -> None:
        self.calls = calls
        self.table = table
        self.claims = Claims(calls, table)

    def bury_action(self, stored: StoredMessage, pending: frozenset[str]) -> dict[str, Any]:
        """Return the upsert that puts a message into lane `dead` for these subscriptions.

        It may be repeated, and adds to earlier deaths for other subscriptions.
        """
        item = _dead_item(stored)
        item_key = {PK: item.pop(PK), SK: item.pop(SK)}
        fields = {f"#f{n}": name for n, name in enumerate(item)} | {"#h": HOLDER}
        values = {f":f{n}": value for n, value in enumerate(item.values())}
        sets = ", ".join(f"#f{n} = :f{n}" for n in range(len(item)))

        return {
            "TableName": self.table,
            "Key": item_key,
            # who holds it has not seen this death, so its receipt is stale
            # a repetition, or a death for another subscription, keeps the time of the first
            "UpdateExpression": f"SET {sets}, #a = if_not_exists(#a, :a) ADD #p :p REMOVE #h",
            "ExpressionAttributeNames": fields | {"#p": PENDING, "#a": DIED_AT},
            "ExpressionAttributeValues": values
            | {":p": pending_value(pending), ":a": number(milliseconds(self.calls.clock))},
        }

    def bury(self, stored: StoredMessage, pending: frozenset[str]) -> None:
        """Put a message into lane `dead` for these subscriptions."""
        self.calls.call("update_item", **self.bury_action(stored, pending))

    def bury_raw(self, item: Mapping[str, Any], reason: str) -> None:
        """Put an unreadable item into lane `dead`, as JSON."""
        # cut: an item takes 400 KB, and binaries are twice as long in hex
        text = json.dumps(item, default=_binary_text, sort_keys=True)[:_MAX_RAW]
        self.calls.call(
            "put_item",
            TableName=self.table,
            Item=_raw_key(item)
            | {
                RAW: {"S": text},
                REASON: {"S": reason[:1000]},
                DIED_AT: number(milliseconds(self.calls.clock)),
            },
        )

    def removal_action(self, letter: DeadLetter) -> dict[str, Any]:
        """Return the delete of an entry that cannot be read, where it is there."""
        place = key(lane_pk("dead", letter.topic, letter.epoch, letter.shard), letter.id)
        # the purge that counts it is in the same transaction: no letter is counted twice
        there = {"ConditionExpression": "attribute_exists(#p)"}
        fields = {"ExpressionAttributeNames": {"#p": PK}}
        return {"Delete": {"TableName": self.table, "Key": place} | there | fields}

    def get(self, ref: MessageRef) -> Item | None:
        """Return a dead letter's item (consistent)."""
        return self.calls.get(self.table, message_key(ref, "dead"))

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
        # a batch refuses a key named twice, and a ref's due time is not part of this one
        keys = {(r.topic, r.epoch, r.shard, r.id): message_key(r, "dead") for r in refs}
        return self.calls.batch_get(self.table, list(keys.values()))

    def any(self, topic: str, epoch: int, shard: int) -> bool:
        """Whether a shard has a dead letter (consistent, 1 RRU)."""
        answer = self.calls.call(
            "query",
            TableName=self.table,
            ConsistentRead=True,
            **key_condition(lane_pk("dead", topic, epoch, shard)),
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
        pk = lane_pk("dead", topic, epoch, shard)
        behind = key_condition(pk, "#sk > :after", after=after) if after else key_condition(pk)
        for answer in self.calls.pages(
            "query", TableName=self.table, ConsistentRead=True, **behind, Limit=page
        ):
            yield from map(read_dead, answer["Items"])


def _dead_item(stored: StoredMessage) -> Item:
    item = published_item(stored) | message_key(stored.ref, "dead")
    if stored.states:
        item[STATES] = states_value(stored.states)
    item |= numbers(
        {DUE: stored.ref.due, REDRIVEN: stored.redriven or None, EDITS: stored.edits or None}
    )
    return item | {REASON: {"S": reason_of(stored)}}


def reason_of(stored: StoredMessage) -> str:
    """Return the reason why a message died: the one given, or that of the last failure."""
    # a message that was too large for its history has lost the texts too
    died = [s.history[-1].error for s in stored.states.values() if s.dead and s.history]
    return stored.reason or (died[-1] if died else "") or "max_attempts"


def _raw_key(item: Mapping[str, Any]) -> dict[str, Any]:
    text = key_text(item)
    try:
        _, topic, epoch, shard = parse_lane_pk(text[PK])
    except Unreadable:
        # it names no shard: such items lie together, and a sort key takes 1,024 bytes
        return key("dead#?#0#0", f"{text[PK]}#{text[SK]}"[:1000])

    # without the due time of lane `later`, as every dead letter
    return key(lane_pk("dead", topic, epoch, shard), text[SK].rpartition("#")[2])


def _binary_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
