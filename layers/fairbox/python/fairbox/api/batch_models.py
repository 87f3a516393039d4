"""Request and answer models of the batch routes."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from fairbox.api.field_types import (
    BatchId,
    Callback,
    Cursor,
    In,
    Item,
    Milliseconds,
    Out,
    Query,
    Text,
    Whole,
)
from fairbox.client.batch_changes import MAX_RETRY_HOURS
from fairbox.tables.batch_values import MAX_GROUP_SIZE, State

MAX_ITEMS: Final = 10_000
"""Ids of one call."""
MAX_GROUPS: Final = 1_000
"""Groups that the ids of one call may lie in: each is a write or more, and a call has 30 s."""
MAX_ADD_GROUPS: Final = 20_000
"""Groups of one add: some 200 transactions, and an answer of 1.4 MB."""
MAX_EXACT_GROUPS: Final = 20_000
"""Unfinished groups that are counted exactly: 200 reads of 100, side by side."""

Items = Annotated[
    list[Item],
    Field(
        description=f"Ids `batch:group:index`, of any batches: at most {MAX_ITEMS:,}, in at most"
        f" {MAX_GROUPS:,} groups.",
        json_schema_extra={"maxItems": MAX_ITEMS},
    ),
]


class BatchIn(In):
    """A batch to open."""

    user_key: Text = Field(default="", description="The caller's own name; at most 256 bytes.")
    metadata: dict[str, Any] = Field(
        default_factory=dict,
        description="At most 4,096 bytes as JSON; carried into the completion message.",
    )
    id: BatchId | None = Field(
        default=None, description="A UUID; made here unless it is given. Again: the same batch."
    )
    parent_item: Item | None = Field(
        default=None, description="A pending item of another batch, settled when this one ends."
    )
    on_complete: Callback = Field(
        default=None,
        description="A topic, or a destination, that is told when this batch completes.",
    )
    on_success: Callback = Field(
        default=None, description="The same, when it completes without failures."
    )
    on_cancel: Callback = Field(default=None, description="The same, when it is cancelled.")
    on_death: Callback = Field(
        default=None, description="The same, when the first of its items fails, once."
    )
    retry_hours: Whole | None = Field(
        default=None,
        json_schema_extra={"minimum": 0, "maximum": MAX_RETRY_HOURS},
        description="Hours for which a batch with failures stays open for retries; 24 with "
        "`on_success`, else 0.",
    )


class AddIn(In):
    """Items to add."""

    count: Whole = Field(
        description=f"Items, from 1; at most {MAX_ADD_GROUPS:,} groups of them.",
        json_schema_extra={"minimum": 1, "maximum": MAX_ADD_GROUPS * MAX_GROUP_SIZE},
    )
    request_id: Text = Field(
        json_schema_extra={"minLength": 1},
        description="Names this add: again it gives the same groups and adds nothing.",
    )
    group_size: Whole = Field(
        default=MAX_GROUP_SIZE, ge=1, le=MAX_GROUP_SIZE, description="Items of a group."
    )


class ItemsIn(In):
    """Items to ack, or to retry."""

    items: Items


class FailsIn(ItemsIn):
    """Items to fail."""

    reason: str = Field(default="", description="120 bytes of it are kept.")


class BatchesQuery(Query):
    """Filter and cursor of a list of batches."""

    state: State = Field(default="open", description="`reaped` ones are the orphans.")
    limit: int = Field(default=50, ge=1, le=100)
    cursor: Cursor = None


class ItemsQuery(Query):
    """Limit and cursor of a list."""

    limit: int = Field(default=1000, ge=1, le=10_000)
    cursor: Cursor = None


class ProgressQuery(Query):
    """Exactness of the progress asked for."""

    exact: bool = Field(
        default=True,
        description="`false`, or over"
        f" {MAX_EXACT_GROUPS:,} unfinished groups: from 100 of these at random, at most 143 read"
        " units.",
    )


class BatchOut(Out):
    """A batch."""

    id: str
    state: State
    user_key: str
    total: int
    opened_at: Milliseconds
    parent_item: str | None
    on_complete: str | None = Field(description="The topic of the callback.")
    on_success: str | None = Field(description="The topic of the callback.")
    on_cancel: str | None = Field(description="The topic of the callback.")
    on_death: str | None = Field(description="The topic of the callback.")
    retry_hours: int


class Batches(Out):
    """A page of batches; it may be short, though there is more."""

    batches: list[BatchOut]
    cursor: str | None = Field(description="Gives the next page; null: this was the last.")


class GroupOut(Out):
    """A group; its items are `id:0` to `id:(size - 1)`."""

    id: str
    size: int


class Groups(Out):
    """The groups of an add."""

    groups: list[GroupOut]


class ProgressOut(Out):
    """The progress of a batch."""

    id: str
    state: State
    complete: bool
    total: int
    pending: int
    acked: int
    failed: int
    exact: bool = Field(description="False: `pending`, `acked` and `failed` are estimates.")
    error: int = Field(
        description="Items that `pending` may be off by, either way, in 95 of 100 cases."
    )
    limit: int = Field(description="No more than so many are pending, estimate or not.")


class ShownBatch(ProgressOut):
    """A batch with its progress."""

    user_key: str
    metadata: dict[str, Any]
    opened_at: Milliseconds
    parent_item: str | None
    on_complete: str | None = Field(description="The topic of the callback.")
    on_success: str | None = Field(description="The topic of the callback.")
    on_cancel: str | None = Field(description="The topic of the callback.")
    on_death: str | None = Field(description="The topic of the callback.")
    retry_hours: int


class Missing(Out):
    """A page of pending items; it may be short or empty, though there is more."""

    items: list[str]
    cursor: str | None = Field(description="Gives the next page; null: this was the last.")


class FailedItemOut(Out):
    """A failed item."""

    id: str
    reason: str = Field(description="Of the eight newest failures of a group; else empty.")


class FailedItems(Out):
    """A page of failed items; it may be short or empty, though there is more."""

    items: list[FailedItemOut]
    cursor: str | None = Field(description="Gives the next page; null: this was the last.")


class Settled(Out):
    """The items and batches that a call settled."""

    changed: int = Field(description="Items; those settled before are not among them.")
    completed: list[str] = Field(
        description="Ids of the batches that this call completed, or found complete. Maybe no call "
        "says it of a batch; the message always comes."
    )
