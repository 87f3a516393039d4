"""Publishing: alone, in bulk, and in the caller's own transactions."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from fairbox.client.context import OpenTables
from fairbox.codec import attributes as names
from fairbox.codec.keys import dedup_key
from fairbox.codec.messages import message_item, number
from fairbox.errors import InvalidInput, TopicConflict, TransactionCancelled
from fairbox.model.ids import time_of
from fairbox.model.messages import Message, MessageRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairbox.codec.keys import Item
    from fairbox.model.topics import TopicState


MAX_TRANSACTION: Final = 100


class Publishing(OpenTables):
    """Publishes messages."""

    def add(self, message: Message) -> MessageRef:
        """Publish one message (1 WRU a KB); again while it is outstanding finds it.

        On a topic with a deduplication window, a `dedup_key` seen within it gives the ref of the
        message that was first.

        Raises:
            UnknownTopic: there is no such topic.
            TopicConflict: the topic is being deleted.
            InvalidInput: an ordered topic takes no delay; BodyTooLarge: no bucket for its body.
            Throttled, Unavailable: nothing is known to be written; try again with the same message.
        """
        state, ref = self._place(message)
        item = self._item(message, ref)
        if self._window(state, message) is None:
            self.tables.lanes.put(item)
            return ref
        return self._add_once(state, message, ref, item)

    def add_many(self, messages: Iterable[Message]) -> list[MessageRef]:
        """Publish messages, 25 a call; messages with a deduplication window go one by one.

        Returns:
            The refs, in the order of the messages.

        Raises:
            MessagesNotWritten: some were not written after all retries; it names them.
        """
        placed = [(m, *self._place(m)) for m in messages]
        refs: list[MessageRef] = [ref for _, _, ref in placed]
        # every item is made before the first is written: a message that is refused stops them all
        made = [self._item(message, ref) for message, _, ref in placed]
        items: dict[tuple[str, str], tuple[Item, MessageRef]] = {}
        for n, ((message, state, ref), item) in enumerate(zip(placed, made, strict=True)):
            if self._window(state, message) is not None:
                refs[n] = self._add_once(state, message, ref, item)
            else:
                items[item[names.PK]["S"], item[names.SK]["S"]] = item, ref
        if items:
            self.tables.lanes.put_many(
                [item for item, _ in items.values()], [ref for _, ref in items.values()]
            )
        return refs

    def transact_items(self, *messages: Message) -> list[dict[str, Any]]:
        """Return the actions that publish these messages in the caller's own transaction.

        A deduplication key seen within its window makes the transaction fail with
        `ConditionalCheckFailed` at its action. An offloaded body is stored by this call.

        Raises:
            InvalidInput: over 100 actions.
            UnknownTopic: there is no such topic.
        """
        return self._actions(messages, by_id=False)

    def _actions(self, messages: Sequence[Message], *, by_id: bool) -> list[dict[str, Any]]:
        """Return the actions; `by_id`: windows begin at the id's time, not now.

        A call that is repeated under its token must be the same to the letter.
        """
        actions: list[dict[str, Any]] = []
        for message in messages:
            state, ref = self._place(message)
            actions.append({"Put": self.tables.lanes.put_action(self._item(message, ref))})
            if self._window(state, message) is not None:
                since = time_of(message.id) // 1000 if by_id else None
                actions.append(self._dedup_action(state, message, ref, since))
        if len(actions) > MAX_TRANSACTION:
            raise InvalidInput("messages", f"at most {MAX_TRANSACTION} actions in a transaction")
        return actions

    def transact(
        self, items: Sequence[dict[str, Any]], *messages: Message, token: str | None = None
    ) -> list[MessageRef]:
        """Write the caller's items and these messages in one transaction, repeated as one.

        Throttling, conflicts and lost answers are retried under one `ClientRequestToken`, so that
        nothing is written twice.

        Args:
            items: `TransactItems` of the caller's own.
            messages: what is published with them.
            token: 1 to 36 characters; give the same one to repeat a call that a crash cut off,
                within ten minutes and with the same items and messages.

        Returns:
            The refs of the messages.

        Raises:
            InvalidInput: over 100 actions.
            TransactionCancelled: a condition did not hold; `.reasons` has one for each action.
            Throttled, Unavailable: whether it is written is not known; repeat it with the token.
        """
        actions = [*items, *self._actions(messages, by_id=token is not None)]
        if not 1 <= len(actions) <= MAX_TRANSACTION:
            raise InvalidInput("items", f"1 to {MAX_TRANSACTION} actions in all")
        arguments: dict[str, Any] = {"TransactItems": actions}
        if token is not None:
            arguments["ClientRequestToken"] = token
        refs = [self._place(message)[1] for message in messages]
        self.tables.calls.call("transact_write_items", **arguments)
        return refs

    def _place(self, message: Message) -> tuple[TopicState, MessageRef]:
        state = self._topics.get(message.topic)
        if state.deleting is not None:
            raise TopicConflict(message.topic, "it is being deleted")
        if message.delay and state.topic.ordering == "key":
            raise InvalidInput("delay", f"none: topic {message.topic!r} is ordered")
        return state, state.ref(message)

    def _item(self, message: Message, ref: MessageRef) -> Item:
        bucket = None if self._bodies is None else self._bodies.bucket
        item, body = message_item(message, ref, bucket=bucket)
        if body is not None and self._bodies is not None:
            self._bodies.put(*body, message.content_type)
        return item

    @staticmethod
    def _window(state: TopicState, message: Message) -> int | None:
        return None if message.dedup_key is None else state.topic.dedup_window

    def _add_once(
        self, state: TopicState, message: Message, ref: MessageRef, item: Item
    ) -> MessageRef:
        put = {"Put": self.tables.lanes.put_action(item)}
        try:
            self.tables.calls.call(
                "transact_write_items",
                TransactItems=[put, self._dedup_action(state, message, ref)],
            )
        except TransactionCancelled as cancelled:
            first = cancelled.reasons[1][1].get(names.DEDUP_REF)
            if first is None and cancelled.reasons[0][0] != "ConditionalCheckFailed":
                raise
            return ref if first is None else MessageRef.parse(first["S"])
        return ref

    def _dedup_action(
        self, state: TopicState, message: Message, ref: MessageRef, since: int | None = None
    ) -> dict[str, Any]:
        now = int(self._clock.now()) if since is None else since
        digest = hashlib.sha256((message.dedup_key or "").encode()).hexdigest()[:32]
        return {
            "Put": {
                "TableName": self.tables.deliveries,
                "Item": dedup_key(message.topic, digest)
                | {
                    names.DEDUP_REF: {"S": str(ref)},
                    names.EXPIRES_AT: number(now + (state.topic.dedup_window or 0)),
                },
                "ConditionExpression": "attribute_not_exists(#pk) OR #x <= :now",
                "ExpressionAttributeNames": {"#pk": names.PK, "#x": names.EXPIRES_AT},
                "ExpressionAttributeValues": {":now": number(now)},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }
