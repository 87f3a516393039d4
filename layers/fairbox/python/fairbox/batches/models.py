"""What a batch consists of as stored, and what callers are shown of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeVar

from fairbox.batches.ids import ItemId, bits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")
Unknown = tuple[tuple[str, Any], ...]
"""Attributes that this release does not know, by name: every rewrite of their item keeps them."""
State = Literal["open", "sealed", "complete", "cancelled", "reaped"]
ENDED: Final = frozenset({"complete", "cancelled", "reaped"})
COMPLETED_TOPIC: Final = "fairbox.batches.completed"
ORPHANED_TOPIC: Final = "fairbox.batches.orphaned"


@dataclass(frozen=True, slots=True, order=True)
class LeafKey:
    """Names a leaf; never equal to a node's name."""

    batch: str
    group: int


@dataclass(frozen=True, slots=True, order=True)
class NodeKey:
    """Names a node."""

    batch: str
    node: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """A group: its pending items as bits.

    Attributes:
        hour: of the last write, in hours since 1970 UTC.
        request: digest of the large add that wrote it, until something else writes.
    """

    batch: str
    group: int
    pending: int
    count: int
    size: int
    failed: int = 0
    version: int = 1
    hour: int = 0
    request: str | None = None
    unknown: Unknown = field(default=(), hash=False)

    @property
    def key(self) -> LeafKey:
        """Its name."""
        return LeafKey(self.batch, self.group)


@dataclass(frozen=True, slots=True)
class FailedItems:
    """The failed items of a group, and the newest reasons as (index, text)."""

    batch: str
    group: int
    bits: int
    size: int
    reasons: tuple[tuple[int, str], ...] = ()
    version: int = 1
    unknown: Unknown = field(default=(), hash=False)


@dataclass(frozen=True, slots=True)
class Node:
    """Inner item over groups: bits of the unfinished, sums over the finished."""

    batch: str
    node: int
    bits: int
    failed: int = 0
    settled: int = 0
    version: int = 1
    hour: int = 0
    unknown: Unknown = field(default=(), hash=False)

    @property
    def key(self) -> NodeKey:
        """Its name."""
        return NodeKey(self.batch, self.node)


@dataclass(frozen=True, slots=True)
class Root:
    """The item that decides.

    Attributes:
        bits: unfinished slots.
        next_group: the next ordinal to be given out.
        total: items of all adds that are done.
        failed, settled: sums over finished children.
        opened: milliseconds since 1970 UTC.
        message: id of the completion message.
        parent_item: the item of another batch that this one's end settles.
        told: whether the parent item has been settled.
        look: hour since 1970 UTC of the cleanup's next look; None once erased.
        cursor: how far it is erased; None: erasing has not begun.
        expires: seconds since 1970 UTC when the tombstone goes.
    """

    batch: str
    state: State
    opened: int
    user_key: str = ""
    bits: int = 0
    next_group: int = 0
    total: int = 0
    failed: int = 0
    settled: int = 0
    version: int = 1
    message: str | None = None
    parent_item: str | None = None
    told: bool = False
    look: int | None = None
    cursor: int | None = None
    expires: int | None = None
    unknown: Unknown = field(default=(), hash=False)

    @property
    def ended(self) -> bool:
        """Whether nothing will be added or settled any more."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class Request:
    """An add by its request id: `count` items from group `first`, `size` a group."""

    batch: str
    digest: str
    done: bool
    first: int
    count: int
    size: int
    unknown: Unknown = field(default=(), hash=False)

    @property
    def groups(self) -> int:
        """How many groups it has."""
        return -(-self.count // self.size)

    def size_of(self, group: int) -> int:
        """Return the number of items of one of its groups."""
        last = self.first + self.groups - 1
        return self.size if group < last else self.count - self.size * (self.groups - 1)


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
    """A batch as `open` and `list` show it; `opened` in milliseconds since 1970 UTC."""

    id: str
    state: State
    opened: int
    user_key: str = ""
    total: int = 0
    parent_item: str | None = None

    @classmethod
    def of(cls, root: Root) -> Batch:
        """Return what callers see of a root."""
        return cls(root.batch, root.state, root.opened, root.user_key, root.total, root.parent_item)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch is.

    Attributes:
        exact: whether `pending`, `acked` and `failed` are counts; else they are estimates.
        error: items that `pending` may be off by, either way, in 95 of 100 cases; 0 when exact.
        limit: no more than so many items are pending, estimate or not.
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


class LeafCounts(NamedTuple):
    """The items of a leaf: those pending, those failed, and all."""

    pending: int
    failed: int
    size: int


@dataclass(frozen=True, slots=True)
class AckResult:
    """What a call settled: `changed` items, and the ids of the batches that it completed."""

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


@dataclass(frozen=True, slots=True)
class ListPlace:
    """Where a list of batches in a state stopped: in which bucket, behind which hour and batch."""

    bucket: int
    look: int
    batch: str

    def __str__(self) -> str:
        return f"{self.bucket}:{self.look}:{self.batch}"


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a message on `fairbox.batches.completed` or `.orphaned` says."""

    topic: str
    id: str
    root: Root
    metadata: Mapping[str, object]
    acked: int
    pending: int = 0
    at: int = field(default=0)


Record = Root | Node | Leaf | FailedItems | Request


@dataclass(frozen=True, slots=True)
class Metadata:
    """The caller's metadata of a batch."""

    batch: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    """One conditional write: `new` where `old` still stands, or where nothing does.

    A `plain` one has no condition: a leaf of an add that is not done, which nobody else touches.
    """

    new: Record | Metadata
    old: Record | None = None
    plain: bool = False


@dataclass(frozen=True, slots=True)
class StillWriting:
    """The condition that an add has not been finished, nor its batch erased."""

    request: Request


def item_ids(leaf: Leaf | FailedItems) -> Iterator[str]:
    """Yield the ids of a leaf's pending items, or of a group's failed ones, ascending."""
    field_of = leaf.pending if isinstance(leaf, Leaf) else leaf.bits
    return (str(ItemId(leaf.batch, leaf.group, index)) for index in bits(field_of))
