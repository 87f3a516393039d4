"""Request and answer models of the HTTP API: they check requests and write the OpenAPI page.

Times are integers, milliseconds since 1970 UTC, unless a field says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fairbox.api.field_types import (
    DESTINATION,
    TENANT_WEIGHTS,
    TEXT,
    WHOLE,
    BodyEncoding,
    ContentType,
    Cursor,
    Encoding,
    Headers,
    In,
    Item,
    MessageId,
    Milliseconds,
    Out,
    Query,
    Text,
    Time,
    Whole,
)
from fairbox.client.topic_administration import MAX_PAUSE_REASON
from fairbox.model.epochs import MAX_SHARDS
from fairbox.model.messages import MAX_DELAY_SECONDS
from fairbox.model.topics import (
    DAY,
    MAX_DEDUP_WINDOW,
    MAX_IN_FLIGHT,
    MAX_MESSAGE_RETENTION,
    MAX_MINI_BATCH,
    MAX_RATE,
    MAX_TENANT_WEIGHTS,
    MAX_WEIGHT,
    MIN_MESSAGE_RETENTION,
    MIN_RATE,
    MIN_WEIGHT,
    MOST_OUTSTANDING,
)

State = Literal["outstanding", "waiting", "dead", "delivered"]


class MessageIn(In):
    """A message to publish."""

    body: Any = Field(
        description="Text, read by `body_encoding`; or any other JSON value, which is stored as it"
        " was written."
    )
    body_encoding: BodyEncoding = None
    partition_key: Text | None = Field(default=None, description="At most 256 bytes.")
    content_type: ContentType | None = Field(
        default=None,
        description="By default `text/plain; charset=utf-8` for text, `application/octet-stream`"
        " for base64, `application/json` for another JSON value.",
    )
    headers: Headers = Field(
        default_factory=dict, description="At most 64 and 16 KiB; no line breaks."
    )
    delay: float = Field(
        default=0, ge=0, le=MAX_DELAY_SECONDS, description="Seconds until it is due."
    )
    dedup_key: Text | None = Field(
        default=None,
        description="The caller's own name; seen within the topic's window: the same ref.",
    )
    fairness_key: Text | None = Field(
        default=None, description="The tenant that its share counts for."
    )
    direct: bool = Field(
        default=False, description="It goes before other messages, as a reply or a notice does."
    )
    batch_item: Item | None = Field(
        default=None,
        description="`batch:group:index`: the item that delivery acks and death fails.",
    )
    after: MessageId | None = Field(
        default=None, description="A UUIDv7 that this message's id sorts above."
    )
    id: MessageId | None = Field(
        default=None, description="A UUIDv7; made here unless it is given."
    )


class RetryIn(In):
    """The repetition of failures: exponential backoff with full jitter, then dead."""

    max_attempts: Whole = Field(default=10, ge=1, le=1000)
    base: float = Field(default=1.0, ge=0.001, le=900, description="Seconds.")
    cap: float = Field(
        default=900.0, ge=0.001, le=12 * 3600, description="Seconds; at least `base`."
    )


class TopicIn(In):
    """A topic as it should be."""

    shards: Whole = Field(default=8, ge=1, le=MAX_SHARDS)
    ordering: Literal["none", "key"] = "none"
    on_dead: Literal["skip", "block"] = Field(
        default="skip",
        description="Of a key whose message died, on ordered topics: it goes on, or waits until the"
        " dead letter is redriven or gone.",
    )
    retry: RetryIn = Field(default_factory=RetryIn)
    dedup_window: Annotated[int, Field(ge=1, le=MAX_DEDUP_WINDOW), WHOLE] | None = Field(
        default=None, description="Seconds."
    )
    retention: Whole = Field(default=7 * DAY, ge=3600, le=3650 * DAY, description="Seconds.")
    message_retention: (
        Annotated[int, Field(ge=MIN_MESSAGE_RETENTION, le=MAX_MESSAGE_RETENTION), WHOLE] | None
    ) = Field(
        default=None,
        description="Of pulled topics: seconds after which messages expire; null: they stay.",
    )
    max_outstanding: Annotated[int, Field(ge=1, le=MOST_OUTSTANDING), WHOLE] | None = Field(
        default=None,
        description="Messages past which no more are taken (429); null: no limit. The count trails"
        " by half a minute.",
    )
    weight: float = Field(
        default=1.0,
        ge=MIN_WEIGHT,
        le=MAX_WEIGHT,
        description="Its share of a destination's bytes beside other topics.",
    )
    mini_batch: Whole = Field(
        default=1, ge=1, le=MAX_MINI_BATCH, description="Messages that it sends in one turn."
    )
    tenant_weights: dict[str, float] = Field(
        default_factory=dict,
        json_schema_extra=TENANT_WEIGHTS,
        description="Shares of tenants (by fairness key) where they are not 1; at most"
        f" {MAX_TENANT_WEIGHTS}.",
    )


class SubscriptionIn(In):
    """A subscription as it should be."""

    destination: str = Field(
        json_schema_extra=DESTINATION,
        description="`sqs:<queue url>`, `sns:<arn>`, `events:<bus>`, `kinesis:<arn>`,"
        " `lambda:<arn>`, `https://...`, `topic:<name>` or `feed:<name>`.",
    )
    max_attempts: Annotated[int, Field(ge=1, le=1000), WHOLE] | None = Field(
        default=None, description="Default: the topic's."
    )
    timeout: float = Field(default=10.0, ge=1, le=14, description="Seconds for one call.")
    max_in_flight: Annotated[int, Field(ge=1, le=MAX_IN_FLIGHT), WHOLE] | None = Field(
        default=None,
        description="Messages of this topic that the destination has in hand at a time; null: as"
        " many as there are.",
    )
    rate: float | None = Field(
        default=None,
        ge=MIN_RATE,
        le=MAX_RATE,
        description="Messages a second; null: as fast as they come.",
    )
    weight: float | None = Field(
        default=None,
        ge=MIN_WEIGHT,
        le=MAX_WEIGHT,
        description="The topic's share of this destination's bytes. Default: the topic's.",
    )


class TopicsQuery(Query):
    """Limit and cursor of a list of topics."""

    limit: int = Field(default=500, ge=1, le=500)
    cursor: Cursor = None


class PauseIn(In):
    """The reason for a pause."""

    reason: str = Field(
        default="",
        description="At most 200 bytes.",
        json_schema_extra=TEXT | {"maxLength": MAX_PAUSE_REASON},
    )


class ListQuery(Query):
    """State, limit and cursor of a list of messages."""

    state: State = Field(
        default="outstanding",
        description="`outstanding`: due and not yet delivered; `waiting`: delayed and not yet due.",
    )
    limit: int = Field(default=50, ge=1, le=100)
    cursor: Cursor = None
    since: Time | None = Field(
        default=None,
        description="Of `delivered`: RFC 3339 or milliseconds, included.",
    )
    until: Time | None = Field(
        default=None,
        description="Of `delivered`: RFC 3339 or milliseconds, excluded.",
    )


class CancelQuery(Query):
    """The reason for a cancellation, and whether it is for one subscription only."""

    subscription: str | None = Field(
        default=None,
        description="Skip the message for this subscription only; the others still get it.",
    )
    reason: Text = Field(default="", description="At most 256 bytes; the archive keeps it.")


class NoQuery(Query):
    """No parameters."""


class Published(Out):
    """The refs of the messages, in the order of the request."""

    refs: list[str]


class FailureOut(Out):
    """One attempt that failed."""

    attempt: int
    at: Milliseconds
    error: str


class SubscriptionStateOut(Out):
    """The state of a message for a subscription that has not accepted it at once."""

    subscription: str
    attempts: int
    due_at: Milliseconds
    dead: bool
    history: list[FailureOut] = Field(description="The newest failures, oldest first.")


class MessageOut(Out):
    """A message as it lies in the outbox or among the dead letters."""

    ref: str
    topic: str
    id: str
    state: Literal["outstanding", "held", "waiting", "dead"] = Field(
        description="`held`: outstanding, and a consumer holds it."
    )
    added_at: Milliseconds | None = Field(description="The id's time.")
    due_at: Milliseconds | None = None
    partition_key: str | None = None
    content_type: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    body: str | None = Field(default=None, description="Null: `body_omitted` says why.")
    body_encoding: Encoding | None = None
    body_omitted: Literal["too large", "unavailable", "unreadable"] | None = None
    size: int | None = Field(default=None, description="Bytes of the body.")
    dedup_key: str | None = None
    fairness_key: str | None = None
    direct: bool = False
    batch_item: str | None = None
    pending: list[str] | None = Field(
        default=None,
        description="Subscriptions that still lack it, or that it died for; null: all.",
    )
    subscriptions: list[SubscriptionStateOut] = Field(default_factory=list)
    receive_count: int = Field(default=0, description="How often consumers received it.")
    held_until: Milliseconds | None = Field(
        default=None, description="When others may receive it; null: nobody holds it."
    )
    consumer: str | None = Field(
        default=None, description="The name that its holder gave; ordered topics keep none."
    )
    reason: str | None = Field(default=None, description="Why it is dead.")
    died_at: Milliseconds | None = None
    raw: str | None = Field(default=None, description="An item that nothing could read, as JSON.")


class DeliveryOut(Out):
    """One delivery, as the ledger has it."""

    ref: str = Field(description="Without due time, which the ledger does not keep.")
    topic: str
    id: str
    subscription: str = Field(description="`pull` on topics without subscriptions.")
    delivered_at: Milliseconds
    added_at: Milliseconds
    attempts: int
    size: int


class Messages(Out):
    """A page of messages, or of deliveries."""

    messages: list[MessageOut | DeliveryOut]
    cursor: str | None = Field(description="Gives the next page; null: this was the last.")


class EpochOut(Out):
    """A width of a topic, and since when it holds."""

    number: int
    shards: int
    since: Milliseconds


class SubscriptionOut(Out):
    """A subscription as it is."""

    topic: str
    name: str
    destination: str
    max_attempts: int | None
    timeout: float
    weight: float | None = Field(description="Null: the topic's.")
    max_in_flight: int | None
    rate: float | None = Field(description="Messages a second.")
    since: Milliseconds = Field(description="When it was added. Milliseconds since 1970 UTC.")
    circuit: Literal["closed", "open", "half-open"] = Field(
        description="`open`: it fails, and nothing but a probe is sent; `half-open`: one is on its"
        " way."
    )
    next_probe_at: Milliseconds | None = Field(
        description="Of a circuit that is not closed. Milliseconds since 1970 UTC."
    )
    error: str | None = Field(description="Of a circuit that is not closed: what was last said.")
    paused_at: Milliseconds | None = Field(
        description="Since when nothing is sent; null: it is not paused."
    )
    pause_reason: str | None


class RetryOut(Out):
    """The repetition of failures; seconds."""

    max_attempts: int
    base: float
    cap: float


class PartitionOut(Out):
    """The place of a topic in a partitioned queue."""

    queue: str = Field(description="The logical name.")
    number: int
    count: int = Field(description="How many partitions there are.")


class TopicOut(Out):
    """A topic as it is."""

    name: str
    shards: int
    ordering: Literal["none", "key"]
    on_dead: Literal["skip", "block"] = Field(
        description="What becomes of a key whose message died, on ordered topics."
    )
    retry: RetryOut
    dedup_window: int | None
    retention: int
    message_retention: int | None = Field(
        description="Seconds after which messages expire; null: they stay."
    )
    max_outstanding: int | None = Field(
        description="Messages past which no more are taken; null: no limit."
    )
    weight: float
    mini_batch: int
    tenant_weights: dict[str, float]
    pushed: bool = Field(description="It has subscriptions, so the dispatcher delivers it.")
    paused: bool = Field(description="Receiving from it gives nothing.")
    deleting: Milliseconds | None = Field(
        description="Since when it takes no messages, for it is being deleted; null: it is not."
    )
    partition: PartitionOut | None = Field(description="Of a partitioned queue; null: of none.")
    epochs: list[EpochOut]
    subscriptions: list[SubscriptionOut]


class Topics(Out):
    """A page of topics, by name."""

    topics: list[TopicOut]
    cursor: str | None = Field(description="Gives the next page; null: this was the last.")


class FiguresOut(Out):
    """The messages in the outbox, counted from the stream: some seconds behind."""

    outstanding: int = Field(description="Not yet delivered, delayed ones among them.")
    waiting: int = Field(description="Of these: added with a delay.")
    dead: int
    oldest_age_seconds: float = Field(description="Since the oldest was due; 0 without any.")
    delivered_per_second: float = Field(
        description="Over the minute that ended half a minute ago, counted by subscription."
    )


class TopicFiguresOut(FiguresOut):
    """The figures of one topic."""

    topic: str


class Stats(Out):
    """Figures by topic, and in all."""

    as_of: Milliseconds
    total: FiguresOut
    topics: list[TopicFiguresOut]


class GatewayOut(Out):
    """A refusal by the gateway itself: unsigned, too many requests, or too large a body."""

    message: str


class FieldErrorOut(Out):
    """The value that a field should have had."""

    field: str
    expected: str


class ProblemOut(Out):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str = Field(description="Names the request; the log has the same id.")
    retry: Literal["never", "after", "same_token"] = Field(
        description="Whether to send the request again: `after` as it is, once `Retry-After` has "
        "passed; `same_token` with the same ids, because it may have been carried out."
    )
    errors: list[FieldErrorOut] = Field(default_factory=list)
    items: list[str] = Field(
        default_factory=list, description="Of batches: every id that was never issued, or ended."
    )
    left: list[str] = Field(
        default_factory=list, description="Of batches: what is not done yet, to be sent again."
    )
    changed: int | None = Field(
        default=None, description="Of batches: items that the call changed before it was refused."
    )
    completed: list[str] = Field(
        default_factory=list, description="Of batches: those that the call completed before that."
    )
