"""Request and answer models of the queue routes."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from fairbox.api.field_types import In, Milliseconds, Out, Receipt, Whole
from fairbox.model.messages import MAX_DELAY_SECONDS
from fairbox.model.receipts import MAX_CONSUMER_CHARACTERS

MAX_RECEIPTS: Final = 100
MAX_WAIT_SECONDS: Final = 20
MAX_VISIBILITY_SECONDS: Final = 12 * 3600


class ReceiveDeadIn(In):
    """Number and visibility of a receive of dead letters."""

    max_messages: Whole = Field(default=10, ge=1, le=MAX_RECEIPTS)
    visibility_timeout: float = Field(
        default=30,
        ge=0.001,
        le=MAX_VISIBILITY_SECONDS,
        description="Seconds until others may receive them.",
    )


class ReceiveIn(ReceiveDeadIn):
    """Number, visibility and wait of a receive."""

    wait: float = Field(
        default=0, ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the first."
    )
    max_per_key: Whole = Field(
        default=1,
        ge=1,
        le=MAX_RECEIPTS,
        description="Messages of one key at most, in order (ordered topics).",
    )
    consumer: str = Field(
        default="",
        max_length=MAX_CONSUMER_CHARACTERS,
        json_schema_extra={"pattern": "^[\\u0020-\\u007e]*$"},
        description="A name in ASCII, shown with what is held (unordered topics).",
    )


class AcksIn(In):
    """Messages that are done."""

    receipts: list[Receipt] = Field(
        min_length=1, max_length=MAX_RECEIPTS, json_schema_extra={"uniqueItems": True}
    )


class ReleasesIn(AcksIn):
    """Messages that are given back untouched."""


class NackIn(In):
    """A message that failed."""

    receipt: Receipt
    delay: float | None = Field(
        default=0,
        ge=0,
        le=MAX_DELAY_SECONDS,
        description="Seconds until it may be received again; null: the topic's back-off.",
    )
    reason: str = Field(default="", description="200 characters of it are kept.")
    dead: bool = Field(default=False, description="Give it up: it goes to the dead letters.")


class NacksIn(In):
    """Messages that failed."""

    nacks: list[NackIn] = Field(min_length=1, max_length=MAX_RECEIPTS)


class ExtensionIn(In):
    """A message that takes longer."""

    receipt: Receipt
    seconds: float = Field(
        ge=0.001, le=MAX_VISIBILITY_SECONDS, description="From now until others may receive it."
    )


class ExtensionsIn(In):
    """Messages that take longer."""

    extensions: list[ExtensionIn] = Field(min_length=1, max_length=MAX_RECEIPTS)


class ReceivedOut(Out):
    """A message that is held."""

    receipt: str = Field(description="For `/acks`, `/nacks`, `/extensions` and `/releases`.")
    receive_count: int = Field(description="How often it was received, this time included.")
    visible_at: Milliseconds = Field(description="When others may receive it.")
    ref: str
    topic: str
    id: str
    added_at: Milliseconds
    partition_key: str | None
    content_type: str
    headers: dict[str, str]
    body: str | None = Field(description="Null: `body_omitted` says why.")
    body_encoding: Literal["utf-8", "base64"] | None
    body_omitted: Literal["too large"] | None = Field(
        description="`too large`: it fits no answer; the library receives it."
    )
    size: int = Field(description="Bytes of the body.")
    dedup_key: str | None
    fairness_key: str | None
    batch_item: str | None
    reason: str | None = Field(description="Of a dead letter: its last failure.")
    subscriptions: list[str] | None = Field(description="Of a dead letter: those it died for.")


class ReceivedMessages(Out):
    """The messages received; empty: there was nothing to receive."""

    messages: list[ReceivedOut]


class SettledOut(Out):
    """The outcome of one receipt."""

    receipt: str
    status: Literal["done", "stale", "failed"] = Field(
        description="`stale`: it holds its message no more, and changed nothing; `failed`: not"
        " known to be done, to be sent again."
    )


class SettledReceipts(Out):
    """The outcome of each receipt, in the order of the request."""

    results: list[SettledOut]
