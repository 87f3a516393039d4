"""New messages: written alone, in bulk, in transactions of the caller, and in steps of a replay."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import (
    FAILED,
    InvalidInput,
    MessagesNotWritten,
    NotAllowed,
    TransactionCancelled,
)
from fairbox.model.ids import time_of
from fairbox.model.messages import Message, MessageRef
from fairbox.tables.keys import EXPIRES_AT, PK, Item, cursor_key, dedup_key
from fairbox.tables.lanes import key_pair
from fairbox.tables.partiql import PER_CALL, execute, insertion
from fairbox.tables.stored_messages import message_item, number
from fairbox.tables.write_expressions import WriteExpressions, put_new

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fairbox.errors import FairboxError
    from fairbox.tables.tables import Tables


DEDUP_REF: Final = "m"  # S, of a deduplication row: the ref of the message that was first
POSITION: Final = (
    "po"  # N, of a replay's cursor: the last position that was put back (outbox table)
)

MAX_TRANSACTION: Final = 100
"""Actions of one transaction."""
_REFUSED: Final = "ConditionalCheckFailed"

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message with the place where it is to lie.

    Attributes:
        window: seconds in which its deduplication key counts; None: its topic has no window, or it
            has no key.
        offload: a destination cannot take the body, so that it goes into the body store.
    """

    message: Message
    ref: MessageRef
    window: int | None = None
    offload: bool = False


@dataclass(frozen=True, slots=True)
class StepRefused:
    """The reason why a step of a replay was not written.

    Attributes:
        position: where the cursor really stands; None: it stood right.
        outstanding: the messages that lie in the outbox already.
    """

    position: int | None = None
    outstanding: tuple[MessageRef, ...] = ()


class MessageInserts:
    """Writes new messages; without a body store, bodies that do not fit an item are refused."""

    def __init__(self, tables: Tables) -> None:
        self._calls = tables.calls
        self._outbox = tables.outbox
        self._deliveries = tables.deliveries
        self._bodies = tables.bodies

    def add(self, new: NewMessage) -> MessageRef:
        """Write a message; return the ref of the one that is there under its deduplication key.

        A message that lies there already stays as it is.
        """
        item = self._item(new)
        if new.window is not None:
            return self._add_once(new, item)
        self._calls.written("put_item", **put_new(self._outbox, item))
        return new.ref

    def add_many(self, messages: Sequence[NewMessage], *, new: bool = False) -> list[MessageRef]:
        """Write messages, 25 a call, and those with a deduplication window one by one.

        Messages that lie there already stay as they are, and the first of those with one ref wins.
        If all are `new`, says the caller, the first try does not look.

        Raises:
            MessagesNotWritten: some stayed unwritten to the last try; it names them.
        """
        # every item is made before the first is written: a message that is refused stops them all
        made: dict[MessageRef, tuple[NewMessage, Item]] = {}
        for one in messages:
            if one.ref not in made:
                made[one.ref] = one, self._item(one)

        refs = {
            ref: ref if one.window is None else self._add_once(one, item)
            for ref, (one, item) in made.items()
        }

        items = {key_pair(item): item for one, item in made.values() if one.window is None}
        # a client that repeats puts by itself could overwrite a claim that was made since
        if new and not self._calls.repeats:
            items = self._put(items)

        left, cause = self._insert(items)
        if left:
            missing = [ref for ref, (_, item) in made.items() if key_pair(item) in left]
            raise MessagesNotWritten(missing, cause) from cause

        return [refs[one.ref] for one in messages]

    def _insert(self, items: Mapping[Key, Item]) -> tuple[set[Key], FairboxError | None]:
        """Write items where none lie, 25 a call; return the keys left unwritten, and why."""
        keys = list(items)
        for start in range(0, len(keys), PER_CALL):
            chunk = keys[start : start + PER_CALL]
            if start and self._calls.out_of_time:
                return set(keys[start:]), None

            answers = execute(self._calls, [insertion(self._outbox, items[k]) for k in chunk])
            failed = {k: a.error for k, a in zip(chunk, answers, strict=True) if a.error}
            if failed:
                for error in failed.values():
                    # no repetition helps: the caller is to see this, not a list of messages
                    if isinstance(error, NotAllowed):
                        raise error
                # its tries are used up: the rest would wait as long, and is the caller's to repeat
                return failed.keys() | set(keys[start + PER_CALL :]), next(iter(failed.values()))

        return set(), None

    def _put(self, items: Mapping[Key, Item]) -> dict[Key, Item]:
        """Put items without a condition, 25 a call; return the items to be inserted.

        No put is made twice: after a lost answer, or "unprocessed" after an internal failure, the
        item may lie there, and may have been claimed since.
        """
        keys, left = list(items), set[Key]()
        for start in range(0, len(keys), PER_CALL):
            puts = [{"PutRequest": {"Item": items[key]}} for key in keys[start : start + PER_CALL]]
            try:
                answer = self._calls.call_once(
                    "batch_write_item", RequestItems={self._outbox: puts}
                )
            except FAILED:
                # the service is in trouble: the rest goes by the way that may be repeated
                left |= set(keys[start:])
                break

            again = answer.get("UnprocessedItems", {}).get(self._outbox, [])
            left |= {key_pair(put["PutRequest"]["Item"]) for put in again}

        return {key: item for key, item in items.items() if key in left}

    def actions(
        self, messages: Collection[NewMessage], *, by_id: bool = False
    ) -> list[dict[str, Any]]:
        """Return the actions that write messages in a transaction.

        With `by_id`, deduplication windows begin at the id's time, not now: a transaction that is
        repeated under its token must be the same to the letter.

        Raises:
            InvalidInput: over 100 actions, or an id or a deduplication key comes twice.
        """
        names: list[object] = [new.ref for new in messages]
        names += [(n.ref.topic, n.message.dedup_key) for n in messages if n.window is not None]
        if len(set(names)) < len(names):
            raise InvalidInput("messages", "each id and each deduplication key once")

        actions: list[dict[str, Any]] = []
        for new in messages:
            actions.append({"Put": put_new(self._outbox, self._item(new))})
            if new.window is not None:
                now = time_of(new.message.id) // 1000 if by_id else int(self._calls.clock.now())
                actions.append(self._deduplication(new, now))

        if len(actions) > MAX_TRANSACTION:
            raise InvalidInput("messages", f"at most {MAX_TRANSACTION} actions in a transaction")
        return actions

    def cursor_position(self, cursor: str) -> int:
        """Return the position of a replay's cursor; 0 at first (1 RRU)."""
        return _position(self._calls.get(self._outbox, cursor_key(_cursor_name(cursor))) or {})

    def add_step(
        self, messages: Collection[NewMessage], cursor: str, position: int, to: int
    ) -> StepRefused | None:
        """Write messages and move a replay's cursor, in one transaction; None: it is written.

        Raises:
            InvalidInput: over 100 actions.
            TransactionCancelled: it was refused for another reason than those of `StepRefused`.
        """
        move = self._cursor_move(cursor, position, to)

        try:
            self._calls.transact([move, *self.actions(messages)])
        except TransactionCancelled as cancelled:
            code, old = cancelled.reasons[0]
            if code == _REFUSED:
                return StepRefused(_position(old))

            # a message with a window has two actions: either refusal says that it lies there
            refs = [new.ref for new in messages for _ in range(1 if new.window is None else 2)]
            reasons = zip(refs, cancelled.reasons[1:], strict=True)
            found = dict.fromkeys(ref for ref, (code, _) in reasons if code == _REFUSED)
            if not found:
                raise
            return StepRefused(outstanding=tuple(found))

        return None

    def _item(self, new: NewMessage) -> Item:
        """Return a message's item; a body that does not fit it is stored first."""
        bucket = None if self._bodies is None else self._bodies.bucket
        item, body = message_item(new.message, new.ref, bucket=bucket, offload=new.offload)
        if body is not None and self._bodies is not None:
            self._bodies.put(*body, new.message.content_type)
        return item

    def _add_once(self, new: NewMessage, item: Item) -> MessageRef:
        put = {"Put": put_new(self._outbox, item)}
        try:
            self._calls.transact([put, self._deduplication(new, int(self._calls.clock.now()))])
        except TransactionCancelled as cancelled:
            first = cancelled.reasons[1][1].get(DEDUP_REF)
            # the key is free, but the message itself lies there already: it was added before
            if first is None and cancelled.reasons[0][0] != _REFUSED:
                raise
            return new.ref if first is None else MessageRef.parse(first["S"])
        return new.ref

    def _deduplication(self, new: NewMessage, now: int) -> dict[str, Any]:
        """Return the action that claims a deduplication key for its window from `now` (s)."""
        digest = hashlib.sha256((new.message.dedup_key or "").encode()).hexdigest()[:32]

        return {
            "Put": {
                "TableName": self._deliveries,
                "Item": dedup_key(new.message.topic, digest)
                | {DEDUP_REF: {"S": str(new.ref)}, EXPIRES_AT: number(now + (new.window or 0))},
                # DynamoDB deletes expired rows late: one whose window is over does not count
                "ConditionExpression": "attribute_not_exists(#pk) OR #x <= :now",
                "ExpressionAttributeNames": {"#pk": PK, "#x": EXPIRES_AT},
                "ExpressionAttributeValues": {":now": number(now)},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }

    def _cursor_move(self, cursor: str, position: int, to: int) -> dict[str, Any]:
        write = WriteExpressions()
        write.put("p", POSITION, number(to), "to")
        write.same("p", POSITION, number(position) if position else None, "from")
        return {
            "Update": {
                "TableName": self._outbox,
                "Key": cursor_key(_cursor_name(cursor)),
                **write.expressions,
                **write.bound,
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }


def _cursor_name(cursor: str) -> str:
    return f"replay#{cursor}"


def _position(item: Any) -> int:
    return int(item[POSITION]["N"]) if POSITION in item else 0
