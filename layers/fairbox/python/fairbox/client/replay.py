"""Replaying: messages put back in turn, each once, whatever dies on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox.client.publishing import MAX_TRANSACTION, Publishing
from fairbox.codec import attributes as names
from fairbox.codec.keys import cursor_key
from fairbox.codec.messages import number
from fairbox.errors import InvalidInput, TransactionCancelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.messages import Message, MessageRef

MAX_REPLAYED: Final = MAX_TRANSACTION - 1
"""Messages of one step; the cursor is the transaction's hundredth action."""
_FAILED: Final = "ConditionalCheckFailed"


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """What one step came to.

    Attributes:
        position: where the cursor stands now.
        added: the messages that this step put into the outbox.
        outstanding: those that lay there already, and stayed as they were.
    """

    position: int
    added: tuple[MessageRef, ...] = ()
    outstanding: tuple[MessageRef, ...] = ()


class Replaying(Publishing):
    """Publishes in steps, each of them exactly once."""

    def replay_position(self, cursor: str) -> int:
        """Return how far a replay's cursor has come; 0 at first (1 RRU)."""
        answer = self.tables.calls.call(
            "get_item",
            TableName=self.tables.outbox,
            Key=cursor_key(_name(cursor)),
            ConsistentRead=True,
        )
        return _position(answer.get("Item", {}))

    def replay(
        self, messages: Sequence[Message], *, cursor: str, position: int, to: int
    ) -> ReplayStep:
        """Publish messages and move the cursor on, in one transaction.

        The cursor decides: the same step again, by a process that does not know that it was made,
        writes nothing. Costs 2 WRU a KB for each message, and 2 for the cursor.

        Args:
            messages: 99 at most, of 4 MB together.
            cursor: names the replay, and its part where it has several.
            position: where the cursor stands.
            to: where it will stand.

        Returns:
            What was written; nothing and the cursor's real position when it was not at `position`.

        Raises:
            InvalidInput: too many messages, or a cursor that would not move on.
            UnknownTopic: there is no such topic.
            Throttled, Unavailable: whether it is written is not known; repeat it.
        """
        if len(messages) > MAX_REPLAYED:
            raise InvalidInput("messages", f"at most {MAX_REPLAYED} in a step")
        if to <= position:
            raise InvalidInput("to", f"a position behind {position}")
        left = {self._place(message)[1]: message for message in messages}
        outstanding: list[MessageRef] = []
        while True:
            move = self._move(cursor, position, to)
            try:
                self.tables.calls.call(
                    "transact_write_items",
                    TransactItems=[move, *self._actions(list(left.values()), by_id=False)],
                )
            except TransactionCancelled as cancelled:
                code, old = cancelled.reasons[0]
                if code == _FAILED:
                    return ReplayStep(_position(old))
                found = [
                    ref
                    for ref, (code, _) in zip(left, cancelled.reasons[1:], strict=True)
                    if code == _FAILED
                ]
                if not found:
                    raise
                outstanding += found
                for ref in found:
                    del left[ref]
                continue
            return ReplayStep(to, tuple(left), tuple(outstanding))

    def _move(self, cursor: str, position: int, to: int) -> dict[str, Any]:
        values = {":to": number(to)}
        condition = "attribute_not_exists(#p)"
        if position:
            values[":from"] = number(position)
            condition = "#p = :from"
        return {
            "Update": {
                "TableName": self.tables.outbox,
                "Key": cursor_key(_name(cursor)),
                "UpdateExpression": "SET #p = :to",
                "ConditionExpression": condition,
                "ExpressionAttributeNames": {"#p": names.POSITION},
                "ExpressionAttributeValues": values,
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }


def _name(cursor: str) -> str:
    return f"replay#{cursor}"


def _position(item: Any) -> int:
    return int(item[names.POSITION]["N"]) if names.POSITION in item else 0
