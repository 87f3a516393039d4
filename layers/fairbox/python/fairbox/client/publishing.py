"""Publication of messages: alone, in bulk, and in the caller's own transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from fairbox.client.outbox_context import OutboxContext, OutboxPart
from fairbox.errors import (
    BodyTooLarge,
    FairboxError,
    InvalidInput,
    ItemTooLarge,
    RequestConflict,
    TopicConflict,
    TransactionCancelled,
    Unavailable,
)
from fairbox.model.epochs import ref_of
from fairbox.model.feed_types import MAX_BODY
from fairbox.model.ids import check_ahead
from fairbox.model.messages import Message, MessageRef
from fairbox.tables.calls import MalformedRequest
from fairbox.tables.message_inserts import MAX_TRANSACTION, NewMessage
from fairbox.tables.stored_messages import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.topic_states import TopicState

ALWAYS_FIT: Final = {
    "sns": 32_000,
    "events": 150_000,
    "sqs": 160_000,
    "kinesis": 160_000,
    "lambda": 1_000_000,
    "feed": MAX_BODY,
}
"""Bytes of a body that a destination takes whatever they are: by scheme, where there is a limit."""
SMALL: Final = min(ALWAYS_FIT.values())
"""Bytes of a body that every destination takes."""
MAX_TOKEN: Final = 36
"""Characters of a transaction's token."""
_REUSED: Final = "IdempotentParameterMismatchException"


def place(message: Message, context: OutboxContext) -> NewMessage:
    """Return a message with the place that its topic gives it.

    Raises:
        UnknownTopic: there is no such topic.
        TopicConflict: the topic is being deleted.
        InvalidInput: an ordered topic takes no delay, and one without a deduplication window no
            `dedup_key`; a key is empty; or the id's time is over 300 s ahead.
        BodyTooLarge: a body that a subscription cannot take can be offloaded nowhere, or the
            subscription is a feed.
    """
    check_ahead(message.id, context.now)
    state = context.topics.get(message.topic)
    topic = state.topic
    if state.deleting is not None:
        raise TopicConflict(message.topic, "it is being deleted")

    if message.delay and topic.ordering == "key":
        raise InvalidInput(
            "delay",
            f"none: topic {message.topic!r} is ordered, and a delay would stop its key; "
            "send without one, or to a topic with ordering 'none'",
        )
    for name in ("partition_key", "dedup_key", "fairness_key"):
        if getattr(message, name) == "":
            raise InvalidInput(name, "text that is not empty, or none at all")

    if message.dedup_key is not None and topic.dedup_window is None:
        raise InvalidInput(
            "dedup_key",
            f"none: topic {message.topic!r} has no deduplication window, so the key would have no "
            "effect; create_topic with a dedup_window gives it one",
        )

    window = None if message.dedup_key is None else topic.dedup_window
    ref = ref_of(message, state.epochs)

    # every destination takes a small body: it costs no comparison
    large = too_large(message, ref, state) if len(message.body) > SMALL else None
    if large is not None and context.tables.bodies is None:
        raise large
    return NewMessage(message, ref, window, offload=large is not None)


def place_all(messages: Iterable[Message], context: OutboxContext) -> list[NewMessage]:
    """Return messages with their places, if their topics have room for all of them.

    Raises:
        As `place`; TopicFull: a topic has no room for its messages.
    """
    placed = [place(message, context) for message in messages]
    # of messages with one id only one is written
    counts = Counter(ref.topic for ref in dict.fromkeys(new.ref for new in placed))
    context.limits.admit((context.topics.get(name), n) for name, n in counts.items())
    return placed


def too_large(message: Message, ref: MessageRef, state: TopicState) -> BodyTooLarge | None:
    """Return the error of a body that a subscription's destination cannot take in place.

    Bodies that always fit cost a comparison for each subscription, others an envelope.

    Raises:
        BodyTooLarge: a feed is subscribed: its clients cannot fetch offloaded bodies either.
    """
    size = len(message.body)
    over = [s for s in state.subscriptions if size > ALWAYS_FIT.get(s.scheme, size)]
    for subscription in over:
        if subscription.scheme == "feed":
            raise BodyTooLarge(size, MAX_BODY, subscription=subscription.name)

    for subscription in over:
        from fairbox.destinations.body_limits import excess  # noqa: PLC0415 - when first needed

        found = excess(StoredMessage(message, ref, "ready", size), subscription)
        if found is not None:
            return BodyTooLarge(*found, subscription=subscription.name)
    return None


def actions_of(items: Any) -> list[Mapping[str, Any]]:
    """Return a caller's items; InvalidInput where one cannot be an action."""
    if not isinstance(items, Iterable) or isinstance(items, Mapping | str | bytes):
        raise InvalidInput("items", "a list of actions such as [{'Put': {...}}]")
    actions = list(items)
    for n, item in enumerate(actions):
        if isinstance(item, Message):
            raise InvalidInput(f"items[{n}]", "an action; messages come after the items")
        if not isinstance(item, Mapping):
            got = type(item).__name__
            raise InvalidInput(f"items[{n}]", f"an action such as {{'Put': {{...}}}}, got {got}")
    return actions


def told(
    error: FairboxError,
    items: Sequence[Mapping[str, Any]],
    placed: Sequence[NewMessage],
    token: str | None,
) -> FairboxError:
    """Return a transaction's error as one that names the parts of the call."""
    names = [f"items[{n}]" for n in range(len(items))]
    for n, new in enumerate(placed):
        names.append(f"messages[{n}]")
        # its deduplication key is an action of its own, behind the message's
        if new.window is not None:
            names.append(f"dedup_key of messages[{n}]")

    match error:
        case TransactionCancelled():
            return TransactionCancelled(error.reasons, names)
        case ItemTooLarge():
            return ItemTooLarge(_path(error.operation, names))
        case MalformedRequest():
            path = _path(error.path, names)
            if path == "items":  # DynamoDB names no part of what it could not read
                path = _number(items, path) or path
            return InvalidInput(path, error.expected)
        case Unavailable() if _REUSED in error.detail and token is not None:
            return RequestConflict("", token)
    return error


class MessagePublication(OutboxPart):
    """Publishes messages."""

    def add(self, message: Message, *, deadline: float | None = None) -> MessageRef:
        """Publish one message (1 WRU a KB); if it is outstanding already, return its ref.

        On a topic with a deduplication window, a `dedup_key` that was seen within the window
        returns the ref of the first message with that key.

        Args:
            message: the message.
            deadline: seconds in which the call ends; None: those of the outbox.

        Raises:
            UnknownTopic: there is no such topic.
            TopicConflict: the topic is being deleted.
            TopicFull: it holds its `max_outstanding` of messages; add the same one again later.
            InvalidInput: the topic is ordered and the message has a delay.
            BodyTooLarge: there is no bucket for its body, and an item or a subscription cannot take
                it.
            NotAllowed: the credentials may not write there.
            Throttled, Unavailable: the message may not be written; try again with the same one.
        """
        context = self._context
        with context.ends_within(deadline):
            return context.inserts.add(*place_all([message], context))

    def add_many(
        self, messages: Iterable[Message], *, new: bool = False, deadline: float | None = None
    ) -> list[MessageRef]:
        """Publish messages, 25 a call; those with a deduplication window are written one by one.

        A message that is outstanding already stays as it is, with its claim, its failures and its
        edits, and its ref is returned; of messages with one id the first is written. A new message
        costs 1 WRU a KB, as with `add`, and an outstanding one 1 WRU a KB of the stored message.

        Args:
            messages: the messages.
            new: the caller knows that none of them was ever added, so the first try may overwrite:
                plain puts, which need no right to `PartiQLInsert`. Only messages left in doubt by
                that try are written as by default.
            deadline: as for `add`; messages left at that time are not written.

        Returns:
            The refs, in the order of the messages.

        Raises:
            TopicFull: a topic has no room for all of its messages; none was written.
            MessagesNotWritten: some were not written after all retries; `.missing` names them.
            NotAllowed: the credentials may not write there; call again with all once they may.
        """
        context = self._context
        with context.ends_within(deadline):
            return context.inserts.add_many(place_all(messages, context), new=new)

    def has_window(self, topic: str) -> bool:
        """Whether a topic has a deduplication window, as producers know it: up to 30 s late.

        Raises:
            UnknownTopic: there is no such topic.
        """
        return self._context.topics.get(topic).topic.dedup_window is not None

    def transact_items(self, *messages: Message, deadline: float | None = None) -> list[Any]:
        """Return the actions that publish these messages in the caller's own transaction.

        They are plain dicts, which `TransactItems` of any client takes.

        A deduplication key that was seen within its window makes the transaction fail, with
        `ConditionalCheckFailed` at its action. This call reads topics and stores offloaded bodies.

        Args:
            messages: the messages.
            deadline: as for `add`.

        Raises:
            InvalidInput: over 100 actions, or an id or a deduplication key comes twice.
            UnknownTopic: there is no such topic.
            TopicFull: it has no room for its messages.
        """
        context = self._context
        with context.ends_within(deadline):
            return context.inserts.actions(place_all(messages, context))

    def transact(
        self,
        items: Iterable[Mapping[str, Any]],
        *messages: Message,
        token: str | None = None,
        deadline: float | None = None,
    ) -> list[MessageRef]:
        """Write the caller's items and these messages in one transaction.

        After throttling, conflicts and lost answers the transaction is retried under the same
        `ClientRequestToken`, so that nothing is written twice.

        Args:
            items: the caller's own `TransactItems`.
            messages: the messages to publish with them.
            token: 1 to 36 characters. To repeat a call that a crash cut off, pass the same token,
                items and messages within ten minutes.
            deadline: as for `add`.

        Returns:
            The refs of the messages.

        Raises:
            InvalidInput: over 100 actions, an id or a deduplication key comes twice, or DynamoDB
                does not take an item; it names it, such as `items[0].Put.Item.id`.
            ItemTooLarge: an item of `items` would have over 400 KB.
            RequestConflict: the token was used with other items or messages.
            TopicFull: a topic has no room for its messages; nothing was written.
            TransactionCancelled: a condition did not hold; `.reasons` has one reason per action,
                `.actions` the name of each action in this call.
            UnknownTable: there is no table of an item, in this Region and account.
            NotAllowed: the credentials may not write there.
            Throttled, Unavailable: it may or may not be written; repeat it with the token.
        """
        if token is not None and (not isinstance(token, str) or not 1 <= len(token) <= MAX_TOKEN):
            raise InvalidInput("token", f"text of 1 to {MAX_TOKEN} characters")

        own = actions_of(items)
        context = self._context
        with context.ends_within(deadline):
            placed = place_all(messages, context)
            # by the ids' times: a transaction that is repeated under a token must be the same
            actions = [*own, *context.inserts.actions(placed, by_id=token is not None)]
            if not 1 <= len(actions) <= MAX_TRANSACTION:
                raise InvalidInput("items", f"1 to {MAX_TRANSACTION} actions in all")

            try:
                context.tables.calls.transact(actions, token)
            except FairboxError as error:
                raise told(error, own, placed, token) from error

        return [new.ref for new in placed]


def _path(path: str, names: Sequence[str]) -> str:
    """Return the path in the call of a part of the request, such as `actions[0].Put`."""
    start, bracket, rest = path.partition("[")
    number, _, rest = rest.partition("]")
    return f"{names[int(number)]}{rest}" if start == "actions" and bracket else "items"


def _number(part: Any, path: str) -> str | None:
    """Return the path of the first number that is none; None: there is none such."""
    if isinstance(part, Mapping):
        if isinstance(part.get("N"), str) and not _is_number(part["N"]):
            return path
        parts = [(f"{path}.{name}", value) for name, value in part.items()]
    elif isinstance(part, list | tuple):
        parts = [(f"{path}[{n}]", value) for n, value in enumerate(part)]
    else:
        return None
    return next(filter(None, (_number(value, inner) for inner, value in parts)), None)


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except ArithmeticError:
        return False
