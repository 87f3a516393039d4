"""Messages that are changed, moved or cancelled by operators, purged, or expire."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.errors import TransactionCancelled
from fairbox.model.ids import bound_of
from fairbox.tables.calls import ConditionFailed
from fairbox.tables.key_claims import KeyClaims, KeysAside
from fairbox.tables.keys import Item, due_sk, message_key
from fairbox.tables.message_states import as_read, as_read_places
from fairbox.tables.partiql import Statement, execute, raise_first, statement
from fairbox.tables.stored_messages import (
    CLAIM_COUNT,
    CLAIM_UNTIL,
    CONSUMER,
    EDITS,
    GONE,
    HOLDER,
    MOVED,
    OFFLOADED,
    PENDING,
    REASON,
    REDRIVEN,
    SIZE,
    message_item,
    number,
    read_message,
    with_content,
)
from fairbox.tables.write_expressions import put_new

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.messages import Message, MessageRef, OpenLane, Shard
    from fairbox.tables.lanes import ShardPage
    from fairbox.tables.stored_messages import Gone, StoredMessage
    from fairbox.tables.tables import Tables

logger = logging.getLogger("fairbox")

EXPIRED: Final = "older than message_retention"
_EXPIRED: Final = {"S": "expired"}

Found = Literal["absent", "claimed"]
_OF_ITS_LIFE = (HOLDER, CLAIM_UNTIL, CLAIM_COUNT, CONSUMER, REDRIVEN, MOVED)
_CAS_TRIES = 8


class Edits:
    """Changes messages that nobody holds."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._calls = tables.calls
        self._bodies = tables.bodies
        self._key_claims = tables.key_claims

    def find(self, ref: MessageRef, now: int, *, ordered: bool) -> tuple[Item, int] | Found:
        """Return an outstanding message's item, and the version of its shard's claims (`now`: ms).

        Only on ordered topics claims lie in the shard's row; else the version is 0.
        """
        version = 0
        if ordered:
            row = self._key_claims.get(_shard(ref))
            version = row.version
            entry = row.entry(ref.id)
            # acknowledged, and not yet deleted: the message is delivered
            if entry is not None and ref.id in entry.done:
                return "absent"
            if entry is not None and ref.id in entry.claimed and entry.until > now:
                return "claimed"

        item = self._tables.lanes.get(ref)
        if item is None or GONE in item:
            return "absent"
        # one that was given back waits until then too, but nobody holds it
        if read_message(item).claimed_until(now) is not None and HOLDER in item:
            return "claimed"

        return item, version

    def put(self, item: Item, message: Message, version: int, *, ordered: bool) -> bool:
        """Write a message's content where it is as read (1 WRU a KB, ordered 4); say if it was."""
        before = read_message(item)

        bucket = None if self._bodies is None else self._bodies.bucket
        content, body = message_item(message, before.ref, bucket=bucket)
        if body is not None and self._bodies is not None:
            # beside the body that is there: readers of the item as it is still need that
            key = f"{body[0]}-{before.edits + 1}"
            content[OFFLOADED] = {"S": f"{bucket}/{key}"}
            self._bodies.put(key, body[1], message.content_type)

        content[EDITS] = number(before.edits + 1)
        edited, write = with_content(item, content), as_read(before)
        table = self._tables.outbox
        put = {"TableName": table, "Item": edited, **write.expressions, **write.bound}

        if not self._write([{"Put": put}], before.ref, version, ordered=ordered):
            return False

        # only now: until the write stands, the item names the old body
        if before.offloaded is not None and self._bodies is not None:
            self._bodies.expire(before.offloaded.bucket, before.offloaded.key)
        return True

    def move(self, item: Item, to: MessageRef) -> bool:
        """Move a delayed message to another due time, or to lane `ready` (5 WRU); say if it was."""
        before = read_message(item)
        moved = dict(item) | message_key(to) | {MOVED: {"BOOL": True}}
        put = put_new(self._tables.outbox, moved)

        # both in one transaction; a crash behind it leaves a mark, which whoever reads it deletes
        update = gone_action(self._tables.outbox, before, "moved", "")
        if not self._write([{"Put": put}, {"Update": update}], to, 0):
            return False
        self._tables.lanes.delete([message_key(before.ref)])
        return True

    def relocate(self, ref: MessageRef, to: MessageRef, now: int, *, ordered: bool) -> bool:
        """Move a message that nobody holds to another shard, as a new one (5 WRU a KB).

        Its failures so far move with it. A message that is partly dead stays with its dead letter.

        Returns:
            Whether it was moved, by this call or before; False: it is held, or being changed.
        """
        found = self.find(ref, now, ordered=ordered)
        # an earlier call may have moved it, and lost its answer
        if found == "absent":
            return self._tables.lanes.get(to) is not None
        if found == "claimed":
            return False

        item, version = found
        before = read_message(item)
        if before.any_dead or before.lane != ("ready" if to.due is None else "later"):
            return False

        moved = {n: v for n, v in item.items() if n not in _OF_ITS_LIFE} | message_key(to)
        # the copy takes `pending` along as it was read
        gone = gone_action(self._tables.outbox, before, "moved", f"moved to {to}", item)
        put = {"Put": put_new(self._tables.outbox, moved)}
        if not self._write([put, {"Update": gone}], ref, version, ordered=ordered):
            return False
        # a crash before this leaves a mark, which whoever reads it deletes
        self._tables.lanes.delete([message_key(ref)])
        return True

    def cancel(self, ref: MessageRef, reason: str, now: int, *, ordered: bool) -> Found | None:
        """Mark an outstanding message that nobody holds as cancelled (1 WRU, ordered 4).

        Returns:
            None when it is marked, for the caller to delete; else why not.
        """
        for attempt in range(_CAS_TRIES):
            found = self.find(ref, now, ordered=ordered)
            if isinstance(found, str):
                # the mark may be that of the try before
                return None if attempt and self._cancelled(ref, reason) else found

            before = read_message(found[0])
            update = gone_action(self._tables.outbox, before, "cancelled", reason)
            if self._write([{"Update": update}], ref, found[1], ordered=ordered):
                return None
        return "claimed"  # or changed by others all the time

    def _cancelled(self, ref: MessageRef, reason: str) -> bool:
        """Whether a cancel stands whose answer was lost."""
        item = self._tables.lanes.get(ref) or {}
        mark = item.get(GONE), item.get(REASON)
        return mark == ({"S": "cancelled"}, {"S": reason})

    def _write(
        self, actions: list[dict[str, Any]], ref: MessageRef, version: int, *, ordered: bool = False
    ) -> bool:
        """Write one action or several, on ordered topics only while the shard holds the same."""
        if ordered:
            # written as it is, one version on: a claim that has read the row before then fails
            row = self._key_claims.get(_shard(ref))
            if row.version != version:
                return False
            actions = [*actions, {"Update": self._key_claims.action(_shard(ref), row, version)}]

        try:
            if len(actions) > 1:
                self._calls.transact(actions)
            else:
                ((verb, arguments),) = actions[0].items()
                self._calls.call(f"{verb.lower()}_item", **arguments)
        except (ConditionFailed, TransactionCancelled):
            return False
        return True

    def purge(self, messages: Sequence[StoredMessage], reason: str) -> None:
        """Mark messages as purged, held or not, and delete them (2 WRU each, 25 a call)."""
        # marked first: a delete of a message without a mark would count as a delivery
        statements = [
            statement(
                "UPDATE",
                self._tables.outbox,
                message_key(m.ref, m.lane),
                clauses=f'SET "{GONE}" = ? SET "{REASON}" = ?',
                values=[{"S": "purged"}, {"S": reason}],
                wheres=[f'"{SIZE}" IS NOT MISSING', f'"{GONE}" IS MISSING'],
            )
            for m in messages
        ]

        raise_first(execute(self._calls, statements))
        self._tables.lanes.delete([message_key(m.ref, m.lane) for m in messages])

    def forget_claims(self, shard: Shard, up_to: str) -> None:
        """Drop the claims of a shard's row up to an id: their messages are gone."""
        row = self._key_claims.get(shard)
        # a row without a version has no claims
        while row.version:
            kept = tuple(e for e in row.entries if e.id > up_to)
            if kept == row.entries and not row.after and not row.aside.count:
                return

            # what waits beside the row means nothing without its name
            changed = replace(row, entries=kept, after="", aside=KeysAside())
            other = self._key_claims.write(shard, changed, row.version)
            if other is None:
                return
            row = other


class Expiries:
    """Marks messages as expired, and deletes the marked.

    A mark holds where the message is as it was read: nobody has claimed, edited or redriven it.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def page(
        self, lane: OpenLane, shard: Shard, *, until: int, limit: int, after: str | None
    ) -> ShardPage:
        """Return a page of messages sent, or due, up to a time (ms); eventually consistent."""
        upper = due_sk(until + 1) if lane == "later" else bound_of(until + 1)
        # at half the price: of a message that has changed since, `mark` is refused
        return self._tables.lanes.page(
            lane, *shard, limit=limit, after=after, upto=upper, consistent=False
        )

    def mark(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Mark messages without a batch item (1 WRU a KB, 25 a call); return the marked.

        One that could not be written is left out, and logged.
        """
        answers = execute(self._tables.calls, [self._mark(m) for m in messages])

        marked = []
        for stored, answer in zip(messages, answers, strict=True):
            if answer.error is not None:
                extra = {"ref": str(stored.ref), "error": str(answer.error)}
                logger.warning("a message could not expire yet", extra=extra)
            # ours, when the answer to an earlier try was lost
            elif answer.done or answer.old.get(GONE) == _EXPIRED:
                marked.append(stored)

        return marked

    def mark_in_row(self, messages: Sequence[StoredMessage], shard: Shard, row: KeyClaims) -> bool:
        """Mark messages of an ordered shard and write its row, in one transaction.

        It costs 2 WRU a KB for each message and for the row. None has a batch item.

        Returns:
            Whether all was as read, under the row's version; if not, nothing is written.
        """
        hold = {"Update": self._tables.key_claims.action(shard, row, row.version)}
        return self._tables.calls.transacted([*map(self.action, messages), hold])

    def delete(self, messages: Sequence[StoredMessage]) -> int:
        """Delete messages that are marked as expired (1 WRU a KB); return how many were.

        A message that could not be deleted stays marked, for its next reader.
        """
        deletions = [
            statement(
                "DELETE FROM",
                self._tables.outbox,
                message_key(m.ref, m.lane),
                # a delete of a message without the mark would count as a delivery
                wheres=[f'"{GONE}" = ?'],
                parameters=[_EXPIRED],
            )
            for m in messages
        ]

        return sum(answer.done for answer in execute(self._tables.calls, deletions))

    def _mark(self, stored: StoredMessage) -> Statement:
        wheres, parameters = as_read_places(stored)
        return statement(
            "UPDATE",
            self._tables.outbox,
            message_key(stored.ref, stored.lane),
            clauses=f'SET "{GONE}" = ? SET "{REASON}" = ?',
            values=[_EXPIRED, {"S": EXPIRED}],
            wheres=wheres,
            parameters=parameters,
        )

    def action(self, stored: StoredMessage) -> dict[str, Any]:
        """Return the update that marks a message where it is as it was read."""
        return {"Update": gone_action(self._tables.outbox, stored, "expired", EXPIRED)}


def gone_action(
    table: str, before: StoredMessage, gone: Gone, reason: str, item: Item | None = None
) -> dict[str, Any]:
    """Return the update that marks a message as leaving, where it is as it was read.

    Its `pending` may have changed since, unless the item is given.
    """
    write = as_read(before)
    write.put("gone", GONE, {"S": gone})
    write.put("reason", REASON, {"S": reason})
    if item is not None:
        write.same("p", PENDING, item.get(PENDING))

    place = {"TableName": table, "Key": message_key(before.ref, before.lane)}
    return {**place, **write.expressions, **write.bound}


def _shard(ref: MessageRef) -> Shard:
    return ref.topic, ref.epoch, ref.shard
