"""Refusals as RFC 9457 problem details: every error of Fairbox to status, title and fields."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import (
    BatchBusy,
    BatchEnded,
    BatchSealed,
    BodyTooLarge,
    DeadLettersUnreadable,
    FairboxError,
    FeedFull,
    FeedRefused,
    InvalidInput,
    MalformedItems,
    MessagesClaimed,
    MessagesNotFound,
    MessagesNotWritten,
    MessagesOutstanding,
    NothingToSkip,
    ParentItemTaken,
    RequestConflict,
    ResizeUnderway,
    StaleReceipt,
    Throttled,
    TopicConflict,
    TopicFull,
    TopicIsPushed,
    Unavailable,
    UnknownBatch,
    UnknownFeed,
    UnknownItems,
    UnknownSubscription,
    UnknownTopic,
    Unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROBLEM_TYPE: Final = "application/problem+json"
URN: Final = "urn:fairbox:problem:"
RETRY_AFTER_SECONDS: Final = 1
MAX_ERRORS: Final = 500
_MAX_FIELD: Final = 200
_MAX_TEXT: Final = 500
_MAX_ID: Final = 60  # an item's id has 52 at most; what is echoed of 10,000 fits an answer

KINDS: Final[Mapping[str, tuple[int, str]]] = {
    "malformed": (400, "The request is malformed"),
    "feed-refused": (403, "The server of feeds refuses the client"),
    "unknown-route": (404, "There is no such route"),
    "unknown-topic": (404, "There is no such topic"),
    "unknown-message": (404, "There is no such message"),
    "unknown-subscription": (404, "There is no such subscription"),
    "unknown-batch": (404, "There is no such batch"),
    "unknown-feed": (404, "There is no such feed"),
    "method-not-allowed": (405, "The route does not take this method"),
    "conflict": (409, "The request conflicts with what is there"),
    "batch-sealed": (409, "The batch takes no more items"),
    "batch-ended": (409, "The batch is complete, cancelled or reaped"),
    "request-conflict": (409, "The request id was used with other values"),
    "stale-receipt": (409, "The receipts hold their messages no more"),
    "too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The body's media type is not taken here"),
    "invalid-field": (422, "A field is not what it takes"),
    "unknown-items": (422, "Some items were never issued"),
    "throttled": (429, "The database is busy"),
    "topic-full": (429, "The topic holds as many messages as it may"),
    "feed-full": (429, "The private topic takes no more until its client acknowledges some"),
    "internal": (500, "The service is not set up for this"),
    "not-written": (503, "Some messages were not written"),
    "batch-busy": (503, "Others kept changing the batch"),
    "unavailable": (503, "A service behind this one failed"),
}
"""Status and title of each kind of problem."""

_PLAIN: Final[Mapping[type[FairboxError], str]] = {
    UnknownTopic: "unknown-topic",
    UnknownSubscription: "unknown-subscription",
    MessagesNotFound: "unknown-message",
    TopicConflict: "conflict",
    ResizeUnderway: "conflict",
    TopicIsPushed: "conflict",
    TopicFull: "topic-full",
    FeedFull: "feed-full",
    UnknownBatch: "unknown-batch",
    UnknownFeed: "unknown-feed",
    FeedRefused: "feed-refused",
    BatchSealed: "batch-sealed",
    RequestConflict: "request-conflict",
    DeadLettersUnreadable: "conflict",
    MessagesClaimed: "conflict",
    MessagesOutstanding: "conflict",
    NothingToSkip: "conflict",
    StaleReceipt: "stale-receipt",
}


@dataclass(frozen=True, slots=True)
class FieldError:
    """The value that a field of the request should have had."""

    field: str
    expected: str


class Refusal(FairboxError):
    """A request that is refused.

    Attributes:
        kind: one of `KINDS`.
        detail: what is wrong with this request.
        errors: the fields that are wrong.
        headers: HTTP headers that the answer carries.
        lists: further members of the problem, each a list of texts.
        changed: items that the call changed before; None: it does not say.
        retry: whether to make the request again, as an error's `retry` says.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        lists: Mapping[str, Sequence[str]] | None = None,
        *,
        changed: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})
        self.changed = changed
        self.lists = {
            name: [text if len(text) <= _MAX_ID else f"{text[:_MAX_ID]}..." for text in texts]
            for name, texts in (lists or {}).items()
        }

    @property
    def status(self) -> int:
        """The HTTP status."""
        return KINDS[self.kind][0]

    def problem(self, instance: str) -> dict[str, Any]:
        """Return the problem details; `instance` names the request."""
        errors = [
            {"field": e.field[:_MAX_FIELD], "expected": e.expected[:_MAX_TEXT]}
            for e in self.errors[:MAX_ERRORS]
        ]
        return {
            "type": URN + self.kind,
            "title": KINDS[self.kind][1],
            "status": self.status,
            "detail": self.detail[:_MAX_TEXT],
            "instance": instance,
            "retry": self.retry,
            **({"errors": errors} if errors else {}),
            **{name: texts for name, texts in self.lists.items() if texts},
            **({} if self.changed is None else {"changed": self.changed}),
        }


def malformed(field_name: str, expected: str) -> Refusal:
    """Return the refusal of a request that cannot be read at all (400)."""
    return _field("malformed", InvalidInput(field_name, expected))


def invalid(errors: Sequence[FieldError]) -> Refusal:
    """Return the refusal of fields that are not what they take (422)."""
    first = errors[0]
    return Refusal("invalid-field", f"{first.field}: expected {first.expected}", errors)


def refusal_of(error: FairboxError) -> Refusal:
    """Return the refusal that an error of the library is to the caller."""
    if isinstance(error, Refusal):
        return error
    refusal = _refusal_of(error)
    refusal.retry = error.retry
    if error.retry != "never":
        seconds = max(RETRY_AFTER_SECONDS, ceil(error.retry_after or 0))
        refusal.headers["Retry-After"] = str(seconds)
    return refusal


def _refusal_of(error: FairboxError) -> Refusal:
    match error:
        case BodyTooLarge():
            return _field("too-large", error)
        case InvalidInput():
            return _field("invalid-field", error)
        case UnknownItems() | BatchEnded():
            return _items(error)
        case TopicIsPushed() | ParentItemTaken():
            return _conflict(error)
    plain = _PLAIN.get(type(error))
    return _failure(error) if plain is None else Refusal(plain, str(error))


def _items(error: UnknownItems | BatchEnded) -> Refusal:
    """Return the answer to items that cannot be settled."""
    kind, wrong = "batch-ended", list[FieldError]()
    if isinstance(error, BatchEnded):
        lists = {"items": error.items, "completed": error.completed}
        return Refusal(kind, str(error), lists=lists, changed=error.changed)
    if isinstance(error, MalformedItems):
        kind = "invalid-field"
        wrong = [FieldError("items", f"batch:group:index, not {i!r}") for i in error.malformed]
    elif isinstance(error, UnknownItems):
        kind = "unknown-items"
    return Refusal(kind, str(error), wrong, lists={"items": error.items})


def _conflict(error: TopicIsPushed | ParentItemTaken) -> Refusal:
    """Return the answer to a field that what is stored does not allow."""
    errors: list[FieldError] = []
    if isinstance(error, ParentItemTaken):
        errors = [FieldError("parent_item", f"an item without a batch; it has {error.batch}")]
    elif error.instead:
        errors = [FieldError("topic", f"a topic without subscriptions; {error.instead}")]
    return Refusal("conflict", str(error), errors)


def _failure(error: FairboxError) -> Refusal:
    """Return the answer to what is not the caller's fault; it tells nothing of the inside."""
    match error:
        case Throttled():
            return Refusal("throttled", f"Try again in {ceil(error.retry_after or 1)} s.")
        case MessagesNotWritten():
            text = ", ".join(str(ref) for ref in error.missing)
            return Refusal("not-written", f"Not written: {text}")
        case BatchBusy():
            lists = {"left": error.left, "completed": error.completed}
            text = "Send again what is left."
            return Refusal("batch-busy", text, lists=lists, changed=error.changed)
        case Unavailable() if error.retry != "never":
            return Refusal("unavailable", "Try again later.")
        case Unreadable():
            return Refusal("conflict", "What is stored there cannot be read.")
        case _:
            return Refusal("internal", "The operators have been told.")


def _field(kind: str, error: InvalidInput) -> Refusal:
    return Refusal(kind, str(error), [FieldError(error.field, error.expected)])
