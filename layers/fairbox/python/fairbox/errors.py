"""The errors of Fairbox: one root, each with its data as attributes.

All can be pickled. `retry` of an error says whether the call may be made again:

- `never`: until the input, the rights, the settings or what is stored change.
- `after`: later, as it is; `retry_after` is the least number of seconds.
- `same_token`: with the same message, ids and token, for it may have been carried out.

The reference page of errors says for each what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    # types only: an error carries refs, and a ref that cannot be parsed raises an error
    from fairbox.model.messages import MessageRef


RetryWord = Literal["never", "after", "same_token"]
"""Whether to make a call again."""


class FairboxError(Exception):
    """The root of every error that Fairbox raises on purpose.

    `retry` says whether to make the call again; `retry_after` is the least number of seconds to
    wait before, None where it is never.
    """

    retry: RetryWord = "never"
    retry_after: float | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # by default the text would be taken for the arguments
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    cls: type[FairboxError], args: tuple[Any, ...], state: Mapping[str, Any]
) -> FairboxError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class InvalidInput(FairboxError, ValueError):
    """A value that a caller gave is not one that the field takes."""

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(f"{field}: expected {expected}")
        self.field = field
        self.expected = expected


class BodyTooLarge(InvalidInput):
    """A body is larger than can be stored, or than a subscription's destination takes.

    With a subscription, size and limit are those of the whole entry that would be sent. A bucket
    for bodies lets the destination get the body's address instead.
    """

    def __init__(self, size: int, limit: int, subscription: str = "") -> None:
        what = f"at most {limit} bytes, got {size}"
        super().__init__(
            "body",
            f"{what} with the envelope for subscription {subscription!r}" if subscription else what,
        )
        self.size = size
        self.limit = limit
        self.subscription = subscription


class ItemTooLarge(FairboxError):
    """An item would have over 400 KB; nothing was written.

    `operation` is the call, or the item of the caller's (`items[0]`).
    """

    def __init__(self, operation: str) -> None:
        super().__init__(f"{operation}: the item would have over 400 KB")
        self.operation = operation


class UnknownTopic(FairboxError):
    """There is no topic of this name."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no topic {topic!r}")
        self.topic = topic


class UnknownSubscription(FairboxError):
    """The topic has no subscription of this name."""

    def __init__(self, topic: str, subscription: str) -> None:
        super().__init__(f"topic {topic!r} has no subscription {subscription!r}")
        self.topic = topic
        self.subscription = subscription


class TopicConflict(FairboxError):
    """The topic is there already and differs in a part that cannot be changed this way."""

    def __init__(self, topic: str, detail: str) -> None:
        super().__init__(f"topic {topic!r}: {detail}")
        self.topic = topic
        self.detail = detail


class ResizeUnderway(TopicConflict):
    """Another width is announced and has not begun: resize again once it holds.

    `since` is when it begins, in milliseconds since 1970 UTC.
    """

    retry = "after"
    retry_after = 60.0

    def __init__(self, topic: str, since: int) -> None:
        super().__init__(topic, "a resize is announced and has not begun; wait a minute")
        self.since = since


class TopicIsPushed(FairboxError):
    """The topic has subscriptions, so the dispatcher delivers it and nobody else may.

    `instead` says what to do, where the call has a counterpart for such topics.
    """

    def __init__(self, topic: str, instead: str = "") -> None:
        more = f"; {instead}" if instead else ""
        super().__init__(f"topic {topic!r} is pushed: it has subscriptions{more}")
        self.topic = topic
        self.instead = instead


class TopicFull(FairboxError):
    """The topic has no room for the messages of the call; nothing was written.

    `count` is the outstanding messages as the process knows them, half a minute late; `limit` is
    the topic's `max_outstanding`.
    """

    retry = "after"
    retry_after = 10.0

    def __init__(self, topic: str, count: int, limit: int) -> None:
        super().__init__(
            f"topic {topic!r} is full: {count} outstanding, at most {limit}; send again later"
        )
        self.topic = topic
        self.count = count
        self.limit = limit


class StaleReceipt(FairboxError):
    """These receipts hold nothing any more: others hold the messages, or nobody does.

    Nothing was changed by them; the call's other receipts were served.

    Attributes:
        receipts: the receipts.
        refs: their messages, in the same order.
    """

    def __init__(self, receipts: Sequence[str], refs: Sequence[MessageRef] = ()) -> None:
        messages = ", ".join(map(str, refs or receipts))
        super().__init__(f"no longer held: {messages}; do not repeat: receive again")
        self.receipts = tuple(receipts)
        self.refs = tuple(refs)


class MessagesClaimed(FairboxError):
    """Consumers hold these messages, so nobody may change them; the others were served."""

    def __init__(self, claimed: Sequence[MessageRef]) -> None:
        refs = ", ".join(map(str, claimed))
        super().__init__(f"held by consumers: {refs}; try `fairbox message release` or `delete`")
        self.claimed = tuple(claimed)


class MessagesOutstanding(FairboxError):
    """Other subscriptions still lack these messages as they are, so their content is not changed.

    Nothing was changed.
    """

    def __init__(self, refs: Sequence[MessageRef]) -> None:
        super().__init__(f"outstanding for other subscriptions: {', '.join(map(str, refs))}")
        self.refs = tuple(refs)


class NothingToSkip(FairboxError):
    """The subscription does not wait for this message; nothing was changed."""

    def __init__(self, ref: MessageRef, subscription: str, detail: str) -> None:
        super().__init__(f"{ref}: subscription {subscription!r} {detail}")
        self.ref = ref
        self.subscription = subscription
        self.detail = detail


class MessagesNotFound(FairboxError):
    """Some of the messages asked for are not there; the others were served.

    Each is named as the call named it: by its ref, or by its id alone.
    """

    def __init__(self, missing: Sequence[MessageRef | str]) -> None:
        super().__init__(f"not found: {', '.join(map(str, missing))}")
        self.missing = tuple(missing)


class MessagesNotWritten(FairboxError):
    """Some messages were not written after all retries; the others were.

    `missing` has their refs, or the ids of a feed's messages.
    """

    retry: RetryWord = "same_token"
    retry_after: float | None = 1.0

    def __init__(
        self, missing: Sequence[MessageRef | str], cause: FairboxError | None = None
    ) -> None:
        because = f" ({cause})" if cause else ""
        if cause is not None:
            self.retry, self.retry_after = cause.retry, cause.retry_after
        super().__init__(f"not written: {', '.join(map(str, missing))}{because}")
        self.missing: tuple[Any, ...] = tuple(missing)


class DeadLettersUnreadable(FairboxError):
    """Some of the dead letters asked for are no messages, so they cannot be redriven; others were.

    Each is named `topic/epoch/shard/` and the end of its key.
    """

    def __init__(self, unreadable: Sequence[str]) -> None:
        super().__init__(f"cannot be redriven because unreadable: {', '.join(unreadable)}")
        self.unreadable = tuple(unreadable)


class Unreadable(FairboxError):
    """An item, record or object is not what the codec writes."""

    def __init__(self, key: Mapping[str, str], reason: str) -> None:
        super().__init__(f"cannot read {dict(key)}: {reason}")
        self.key = dict(key)
        self.reason = reason


class NewerVersion(Unreadable):
    """A newer release wrote it for readers that know more: it stays, and is read after an upgrade.

    It is never a dead letter, and never deleted.
    """

    def __init__(self, key: Mapping[str, str], found: int, known: int) -> None:
        super().__init__(key, f"it needs codec version {found}, this release knows up to {known}")
        self.found = found
        self.known = known


class UnknownBatch(FairboxError):
    """There is no batch of this id."""

    def __init__(self, batch: str) -> None:
        super().__init__(f"there is no batch {batch!r}")
        self.batch = batch


class UnknownItems(FairboxError):
    """Some item ids were never issued; nothing of the call has changed anything."""

    _what = "never issued: {}; take ids as `add` returned them, do not repeat the call"

    def __init__(self, items: Sequence[str]) -> None:
        shown = ", ".join(repr(i) for i in items[:10])
        more = f" and {len(items) - 10} more" if len(items) > 10 else ""
        super().__init__(self._what.format(f"{shown}{more}"))
        self.items = tuple(items)


class MalformedItems(UnknownItems):
    """Some texts are no item ids; nothing of the call has changed anything.

    `malformed` names them; `items` names all that cannot be settled, ids never issued too.
    """

    _what = "no item ids: {}; expected batch:group:index, do not repeat the call"

    def __init__(self, malformed: Sequence[str], items: Sequence[str] = ()) -> None:
        super().__init__(malformed)
        self.malformed = self.items
        self.items = tuple(items) or self.items


class BatchSealed(FairboxError):
    """The batch takes no more items: it is sealed."""

    def __init__(self, batch: str) -> None:
        super().__init__(f"batch {batch} is sealed: nothing can be added")
        self.batch = batch


class BatchEnded(FairboxError):
    """The batch is complete, cancelled or reaped; `items` are the ids of the call in it.

    `changed` and `completed` say what the call did of other batches, as `AckResult` does.
    """

    def __init__(
        self,
        batch: str,
        state: str,
        items: Sequence[str] = (),
        changed: int = 0,
        completed: Sequence[str] = (),
    ) -> None:
        super().__init__(f"batch {batch} is {state}")
        self.batch = batch
        self.state = state
        self.items = tuple(items)
        self.changed = changed
        self.completed = tuple(completed)


class BatchBusy(FairboxError):
    """Others kept changing the batch; call again with `left`, which is not done yet.

    `changed` and `completed` say what the call did of the rest, as `AckResult` does.
    """

    retry = "after"
    retry_after = 1.0

    def __init__(
        self, left: Sequence[str], changed: int = 0, completed: Sequence[str] = ()
    ) -> None:
        super().__init__(f"busy, try again: {len(left)} left, the first {left[0] if left else ''}")
        self.left = tuple(left)
        self.changed = changed
        self.completed = tuple(completed)


class ParentItemTaken(FairboxError):
    """The item has a nested batch already; one item has one nested batch at a time."""

    def __init__(self, item: str, batch: str) -> None:
        super().__init__(f"parent_item: expected an item without a batch, {item} has {batch}")
        self.item = item
        self.batch = batch


class RequestConflict(FairboxError):
    """The request id was used before, with another count or group size.

    Of a transaction it is the token, and `batch` is empty.
    """

    def __init__(self, batch: str, request_id: str) -> None:
        what = f"batch {batch}: request" if batch else "token:"
        super().__init__(f"{what} {request_id!r} was used with other values; take a new one")
        self.batch = batch
        self.request_id = request_id


class UnknownFeed(FairboxError):
    """There is no feed of this name."""

    def __init__(self, feed: str) -> None:
        super().__init__(f"there is no feed {feed!r}")
        self.feed = feed


class FeedFull(FairboxError):
    """A private topic has its `limit` of messages that its client has not acknowledged.

    Nothing was published. `count` is how many it has: its client must acknowledge some, or their
    time (`keep`) must end.
    """

    retry = "after"
    retry_after = 10.0

    def __init__(self, topic: str, count: int, limit: int) -> None:
        super().__init__(
            f"{topic!r} is full: {count} unacknowledged, at most {limit}; publish again later"
        )
        self.topic = topic
        self.count = count
        self.limit = limit


class FeedRefused(FairboxError):
    """The server of feeds refuses a client: its token, or all that it asks; `code` says which.

    `not_allowed`: two tokens in a row; other codes, such as `bad_request`, are the server's.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class NotConfigured(FairboxError):
    """A setting that this needs is missing."""

    def __init__(self, setting: str) -> None:
        super().__init__(f"the setting {setting} is missing")
        self.setting = setting


class UnknownTable(NotConfigured):
    """DynamoDB has no such table in this Region and account; of `tables`, at least one is missing.

    `region` and `account` are empty where the client does not tell.
    """

    def __init__(self, tables: Sequence[str], region: str = "", account: str = "") -> None:
        names = " or ".join(map(repr, tables))
        where = f"Region {region or 'of the client'}, account {account or 'of its credentials'}"
        FairboxError.__init__(self, f"there is no table {names} in {where}")
        self.setting = f"table {names}"
        self.tables = tuple(tables)
        self.region = region
        self.account = account


class NotAllowed(FairboxError):
    """A service refused the credentials, or what they may do; or there are none.

    Attributes:
        action: such as `dynamodb:PutItem`.
        resource: its ARN; empty where the service does not tell.
        role: the ARN that called; empty where the service does not tell.
        detail: why, as far as anybody tells.
    """

    def __init__(self, action: str, detail: str, resource: str = "", role: str = "") -> None:
        where = f" on {resource}" if resource else ""
        who = f" for {role}" if role else ""
        super().__init__(f"not allowed: {action}{where}{who}: {detail}")
        self.action = action
        self.resource = resource
        self.role = role
        self.detail = detail


class Throttled(FairboxError):
    """DynamoDB, or a service beside it, refused a call under load; it may be repeated.

    The call was tried several times already.
    """

    retry = "after"

    def __init__(self, operation: str, retry_after: float = 3.0) -> None:
        super().__init__(f"{operation} was throttled: try again in {retry_after:g} s")
        self.operation = operation
        self.retry_after = retry_after


class Unavailable(FairboxError):
    """A service answered with a fault or not at all; the call may be repeated.

    Where the service refused the request itself, `retry` is `never`.
    """

    def __init__(self, operation: str, detail: str, retry: RetryWord = "same_token") -> None:
        super().__init__(f"{operation} failed: {detail}")
        self.operation = operation
        self.detail = detail
        self.retry = retry
        self.retry_after = None if retry == "never" else 1.0


_CONDITION: Final = "ConditionalCheckFailed"


def _why(action: str) -> str:
    """Return why the condition of one of our own actions does not hold."""
    if action.startswith("messages"):
        return " (it is outstanding already)"
    return " (it was seen within its window)" if action.startswith("dedup_key") else ""


class TransactionCancelled(FairboxError):
    """A transaction was refused, and nothing was written.

    Attributes:
        reasons: a (code, old item) for each of its actions.
        actions: what each action is of the call, in the same order: `items[0]`, `messages[2]`,
            `dedup_key of messages[2]`; empty where the caller gave the actions as they are.
    """

    def __init__(
        self, reasons: Sequence[tuple[str, Mapping[str, Any]]], actions: Sequence[str] = ()
    ) -> None:
        codes = [code for code, _ in reasons]
        told = [
            f"{action}: {code}{_why(action) if code == _CONDITION else ''}"
            for action, code in zip(actions, codes, strict=False)
            if code != "None"
        ]
        super().__init__(f"the transaction was cancelled: {'; '.join(told) or codes}")
        self.reasons = list(reasons)
        self.actions = tuple(actions)


FAILED: Final = (Throttled, Unavailable, NotAllowed)
"""Errors of a call that a service did not carry out: what the caller gave is not at fault."""
