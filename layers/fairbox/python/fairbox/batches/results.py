"""Results of calls on batches: batches, groups, progress, pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.tables.batch_values import Root, State

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Group:
    """A group as `add` hands it out; `id` is `batch:ordinal`."""

    batch: str
    ordinal: int
    size: int

    @property
    def id(self) -> str:
        """The text before an item's index."""
        return f"{self.batch}:{self.ordinal}"

    def item_ids(self) -> Iterator[str]:
        """Yield the ids of its items."""
        prefix = self.id
        return (f"{prefix}:{index}" for index in range(self.size))


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as `open` and `list` show it.

    Attributes:
        opened: milliseconds since 1970 UTC.
        on_complete, on_success, on_cancel, on_death: topics of its callbacks; of a destination,
            the topic before it.
        retry_hours: hours for which it stays open for retries when items have failed.
    """

    id: str
    state: State
    opened: int
    user_key: str = ""
    total: int = 0
    parent_item: str | None = None
    on_complete: str | None = None
    on_success: str | None = None
    retry_hours: int = 0
    on_cancel: str | None = None
    on_death: str | None = None

    @classmethod
    def of(cls, root: Root) -> Batch:
        """Return a root as callers see it."""
        return cls(
            root.batch,
            root.state,
            root.opened,
            root.user_key,
            root.total,
            root.parent_item,
            root.callbacks.on_complete,
            root.callbacks.on_success,
            root.retry_hours,
            root.callbacks.on_cancel,
            root.callbacks.on_death,
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a batch.

    Attributes:
        exact: whether `pending`, `acked` and `failed` are counts; else they are estimates.
        error: items that `pending` may be off by, either way, in 95 of 100 cases; 0 when exact.
        limit: a certain upper bound of the pending items, also of an estimate.
    """

    id: str
    state: State
    total: int
    pending: int
    acked: int
    failed: int
    exact: bool = True
    error: int = 0
    limit: int = 0
    user_key: str = ""

    @property
    def complete(self) -> bool:
        """Whether the batch has completed and been announced."""
        return self.state == "complete"


@dataclass(frozen=True, slots=True)
class AckResult:
    """The result of a call that settles items.

    Attributes:
        changed: items that it changed.
        completed: ids of the batches that it completed, or found complete when it cleared emptied
            leaves and nodes. Several calls may name the same batch, or no call: the batches' stream
            finishes cascades that a crash or lost races cut off. The message always comes, once.
    """

    changed: int = 0
    completed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedItem:
    """A failed item; `reason` is kept for the eight newest of a group."""

    id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list.

    Attributes:
        entries: maybe none, though there is more.
        after: gives the next page; None: this was the last.
    """

    entries: tuple[T, ...]
    after: str | None = None
