"""Items of the batches table: the tree of a batch, and how each item changes.

A root has `ROOT_SLOTS` slots: one for each of the first groups, and behind them one for each node,
which covers further groups. A bit that is set means that the child is unfinished.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from fairbox.model.ids import ItemId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_GROUP_SIZE: Final = 7168
ROOT_GROUPS: Final = 64
NODE_GROUPS: Final = 7168
ROOT_SLOTS: Final = 7168
MAX_GROUPS: Final = ROOT_GROUPS + (ROOT_SLOTS - ROOT_GROUPS) * NODE_GROUPS
REASONS: Final = 8
REASON_BYTES: Final = 120

Unknown = tuple[tuple[str, Any], ...]
"""Attributes that this release does not know, by name: every rewrite of their item keeps them."""
State = Literal["open", "sealed", "complete", "cancelled", "reaped"]
FENCED: Final = frozenset({"cancelled", "reaped"})
"""States in which every ack is refused: the groups are erased as soon as the batch has ended."""
Called = Literal["complete", "success", "cancel", "death"]
ENDED: Final = FENCED | {"complete"}
COMPLETED_TOPIC: Final = "fairbox.batches.completed"
ORPHANED_TOPIC: Final = "fairbox.batches.orphaned"
NOTICE_TOPICS: Final = frozenset({COMPLETED_TOPIC, ORPHANED_TOPIC})
"""Topics that Fairbox itself writes to, whether somebody has subscribed or not."""


def hour_of(seconds: float) -> int:
    """Return the whole hours of a time in seconds: activity is noted by the hour."""
    return int(seconds // 3600)


def node_of(group: int) -> int | None:
    """Return the number of the node that covers a group; None: the root does."""
    return None if group < ROOT_GROUPS else (group - ROOT_GROUPS) // NODE_GROUPS


def first_group(node: int) -> int:
    """Return the first group that a node covers."""
    return ROOT_GROUPS + NODE_GROUPS * node


def bit_of(group: int) -> int:
    """Return a group's bit in its parent: its slot in the root, or its bit in the node."""
    node = node_of(group)
    return group if node is None else group - first_group(node)


def slot_of(node: int) -> int:
    """Return the root's slot of a node."""
    return ROOT_GROUPS + node


def ones(low: int, high: int) -> int:
    """Return the bitfield with bits `low` to `high` - 1."""
    return ((1 << (high - low)) - 1) << low if high > low else 0


def bits(field: int) -> Iterator[int]:
    """Yield the bits of a bitfield, ascending."""
    # by bytes: a shift of the whole field for each bit would copy some 900 bytes each time
    for place, byte in enumerate(field.to_bytes((field.bit_length() + 7) // 8, "little")):
        for bit in range(8 if byte else 0):
            if byte >> bit & 1:
                yield place * 8 + bit


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


Emptied = LeafKey | NodeKey
"""An item without a bit, which is to be cleared from its parent."""


@dataclass(frozen=True, slots=True)
class FirstDeath:
    """A batch of which a group has its first failed items."""

    batch: str


Cause = Emptied | FirstDeath | str
"""A cause of work in the stream: an emptied item, a first death, or a batch that has ended."""


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

    def with_acked(self, items: int, hour: int) -> Leaf:
        """Return the leaf without these pending items."""
        return replace(
            self,
            pending=self.pending & ~items,
            count=self.count - items.bit_count(),
            version=self.version + 1,
            hour=hour,
            # an ack proves that its large add is done: the next one need not read the request
            request=None,
        )

    def with_failed(self, items: int, hour: int) -> Leaf:
        """Return the leaf with these pending items failed."""
        return replace(self.with_acked(items, hour), failed=self.failed + items.bit_count())

    def with_retried(self, items: int, hour: int) -> Leaf:
        """Return the leaf with these failed items pending again."""
        return replace(
            self,
            pending=self.pending | items,
            count=self.count + items.bit_count(),
            failed=self.failed - items.bit_count(),
            version=self.version + 1,
            hour=hour,
            request=None,
        )


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

    @classmethod
    def of(cls, leaf: Leaf, items: int, reason: str, there: FailedItems | None) -> FailedItems:
        """Return a group's failed items, those there with these bits, and the newest reasons.

        Of a reason the first 120 bytes are kept, cut between characters.
        """
        text = reason.encode(errors="replace")[:REASON_BYTES].decode(errors="ignore")
        reasons = tuple((index, text) for index in bits(items)) if reason else ()

        if there is None:
            return cls(leaf.batch, leaf.group, items, leaf.size, reasons[-REASONS:])
        return replace(
            there,
            bits=there.bits | items,
            reasons=(there.reasons + reasons)[-REASONS:],
            version=there.version + 1,
        )

    def without(self, items: int) -> FailedItems:
        """Return the failed items without these, and without their reasons."""
        return replace(
            self,
            bits=self.bits & ~items,
            reasons=tuple(r for r in self.reasons if not items >> r[0] & 1),
            version=self.version + 1,
        )


@dataclass(frozen=True, slots=True)
class Node:
    """Inner tree node: one bit per unfinished group, totals of the finished ones."""

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

    def without(self, leaves: Iterable[Leaf], hour: int) -> Node | None:
        """Return the node without the leaves that are empty; None when nothing changes."""
        changed = _without(self, leaves)
        return changed and replace(changed, hour=hour)

    def refilled(self, leaf: Leaf, hour: int) -> Node:
        """Return the node with the bit of a leaf that was empty, and without its sums."""
        return replace(_refilled(self, leaf), hour=hour)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The topics that a batch of its own tells: of its end, and of the first item that failed."""

    on_complete: str | None = None
    on_success: str | None = None
    on_cancel: str | None = None
    on_death: str | None = None

    def __bool__(self) -> bool:
        return bool(self.on_complete or self.on_success or self.on_cancel or self.on_death)

    def due(self, failed: int, *, death_told: bool) -> list[tuple[Called, str]]:
        """Return the callbacks due, with topics, when a batch completes with so many failures."""
        due: list[tuple[Called, str]] = []
        # usually the stream has told it: after the end it tells none, so nobody else would
        if self.on_death is not None and failed and not death_told:
            due.append(("death", self.on_death))
        if self.on_complete is not None:
            due.append(("complete", self.on_complete))
        if self.on_success is not None and not failed:
            due.append(("success", self.on_success))
        return due


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
        death_told: whether its `on_death` has been told.
        next_check: hour since 1970 UTC of the cleanup's next check; None once erased.
        cursor: how far it is erased; None: erasing has not begun.
        expires: seconds since 1970 UTC when the tombstone goes.
        callbacks: the topics of this batch alone.
        retry_hours: how long it waits for retries when nothing is pending and items have failed.
        retry_until: hour since 1970 UTC when that wait ends; None: it does not wait.
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
    next_check: int | None = None
    cursor: int | None = None
    expires: int | None = None
    callbacks: Callbacks = Callbacks()
    retry_hours: int = 0
    retry_until: int | None = None
    death_told: bool = False
    unknown: Unknown = field(default=(), hash=False)

    @property
    def waits(self) -> bool:
        """Whether it is done, and stays open for retries of failed items."""
        return self.state == "sealed" and not self.bits and self.retry_until is not None

    @property
    def ended(self) -> bool:
        """Whether nothing will be added or settled any more."""
        return self.state in ENDED

    def without(self, children: Iterable[Leaf | Node]) -> Root | None:
        """Return the root without the children that are empty; None when nothing changes."""
        return _without(self, children)

    def refilled(self, child: Leaf | Node) -> Root:
        """Return the root with the bit of a child that was empty, and without its sums."""
        # the wait begins anew when nothing is pending again
        return replace(_refilled(self, child), retry_until=None)


Parent = TypeVar("Parent", Node, Root)


def _in_parent(child: Leaf | Node) -> tuple[int, int]:
    """Return a child's bit in its parent, and how many items it has settled."""
    if isinstance(child, Leaf):
        return 1 << bit_of(child.group), child.size - child.count
    return 1 << slot_of(child.node), child.settled


def _without(parent: Parent, children: Iterable[Leaf | Node]) -> Parent | None:
    """Return a parent without the children that are empty; None when nothing changes."""
    gone, failed, settled = 0, parent.failed, parent.settled
    for child in children:
        bit, done = _in_parent(child)
        # a child without its bit is counted already: a repetition finds it again
        if parent.bits & bit and not (child.count if isinstance(child, Leaf) else child.bits):
            gone, failed, settled = gone | bit, failed + child.failed, settled + done

    if not gone:
        return None
    bits, version = parent.bits & ~gone, parent.version + 1
    return replace(parent, bits=bits, failed=failed, settled=settled, version=version)


def _refilled(parent: Parent, child: Leaf | Node) -> Parent:
    """Return a parent with the bit of an empty child, and without its sums if it has them."""
    bit, settled = _in_parent(child)
    version = parent.version + 1
    # where the bit is set, the clear has not come: the parent does not have these sums yet
    if parent.bits & bit:
        return replace(parent, version=version)
    return replace(
        parent,
        bits=parent.bits | bit,
        failed=parent.failed - child.failed,
        settled=parent.settled - settled,
        version=version,
    )


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
        """The number of its groups."""
        return -(-self.count // self.size)

    def size_of(self, group: int) -> int:
        """Return the number of items of one of its groups."""
        last = self.first + self.groups - 1
        return self.size if group < last else self.count - self.size * (self.groups - 1)


@dataclass(frozen=True, slots=True)
class Child:
    """The nested batch of an item: the one that settles it.

    Attributes:
        child: id of the nested batch.
        expires: seconds since 1970 UTC when the record goes; None until the item is settled, from
            when on it may have another nested batch.
    """

    batch: str
    group: int
    index: int
    child: str
    expires: int | None = None
    unknown: Unknown = field(default=(), hash=False)


Record = Root | Node | Leaf | FailedItems | Request | Child


@dataclass(frozen=True, slots=True)
class Metadata:
    """The caller's metadata of a batch."""

    batch: str
    values: Mapping[str, object]


class LeafCounts(NamedTuple):
    """The items of a leaf: those pending, those failed, and all."""

    pending: int
    failed: int
    size: int


@dataclass(frozen=True, slots=True)
class ListPlace:
    """The place where a list of batches in a state stopped: its bucket, hour and last batch."""

    bucket: int
    hour: int
    batch: str

    def __str__(self) -> str:
        return f"{self.bucket}:{self.hour}:{self.batch}"


@dataclass(frozen=True, slots=True)
class Announcement:
    """The content of a message on `fairbox.batches.completed` or `.orphaned`."""

    topic: str
    id: str
    root: Root
    metadata: Mapping[str, object]
    acked: int
    pending: int = 0
    at: int = field(default=0)
    callback: Called | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One conditional write: `new` where `old` still stands, or where nothing does.

    A `plain` one has no condition: a leaf of an add that is not done, which no other call touches.
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
