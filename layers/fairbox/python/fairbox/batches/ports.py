"""Ports of batches: the store of their records, announcements, and ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from fairbox.batches.models import (
        Announcement,
        Change,
        Child,
        FailedItems,
        Leaf,
        LeafCounts,
        LeafKey,
        ListPlace,
        Node,
        NodeKey,
        Record,
        Request,
        Root,
        StillWriting,
    )
    from fairbox.model.ids import ItemId


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why changes were not written.

    Attributes:
        records: for each change the record that stands in its way, as far as known.
        actions: for each action its code and the old image of what it names; none when another
            transaction was under way.
    """

    records: Sequence[Record | None]
    actions: Sequence[tuple[str, Mapping[str, Any]]] = ()


class BatchStore(Protocol):
    """Reads are consistent; a write is one call, whole or not at all."""

    def root(self, batch: str) -> Root | None:
        """Return a root."""
        ...

    def roots(self, batches: Collection[str]) -> list[Root]:
        """Return the roots that are there."""
        ...

    def leaves(self, keys: Collection[LeafKey]) -> dict[LeafKey, Leaf]:
        """Return the leaves that are there."""
        ...

    def counts(self, keys: Collection[LeafKey]) -> list[LeafCounts]:
        """Return the counts of the leaves that are there, and transfer no more."""
        ...

    def nodes(self, keys: Collection[NodeKey]) -> dict[NodeKey, Node]:
        """Return the nodes that are there."""
        ...

    def failed(self, keys: Collection[LeafKey]) -> dict[LeafKey, FailedItems]:
        """Return the failed items of these groups."""
        ...

    def child(self, item: ItemId) -> Child | None:
        """Return the nested batch of an item, or the last one that it had."""
        ...

    def requests(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Request]:
        """Return the requests of (batch, digest) that are there."""
        ...

    def requests_of(self, batch: str) -> list[Request]:
        """Return all requests of a batch."""
        ...

    def metadata(self, batch: str) -> Mapping[str, object]:
        """Return a batch's metadata."""
        ...

    def write(
        self, changes: Sequence[Change | StillWriting], actions: Sequence[dict[str, Any]] = ()
    ) -> Refusal | None:
        """Write all or nothing, together with the actions of an announcement or of a move.

        Returns:
            None when it is written, else what is in the way: a condition did not hold, or another
            transaction was under way.
        """
        ...

    def delete(
        self,
        batch: str,
        *,
        requests: Collection[str] = (),
        groups: Collection[int] = (),
        failed: bool = True,
        nodes: Collection[int] = (),
        metadata: bool = False,
    ) -> None:
        """Delete items of a batch that has ended, whatever they are."""
        ...

    def listed(self, state: str, until: int | None = None) -> Iterator[str]:
        """Yield batch ids in a state; with `until`, those whose check is due by that hour."""
        ...

    def places(self, state: str, *, after: ListPlace | None, page: int) -> Iterator[ListPlace]:
        """Yield batches in a state with their places, behind one of these; `page` a call."""
        ...


class Announcer(Protocol):
    """Makes messages part of a transaction."""

    def actions(self, announcement: Announcement) -> list[dict[str, Any]]:
        """Return the actions that publish the message; its topic is made where it is missing."""
        ...

    def expire(self, root: Root) -> None:
        """Mark the message of a complete batch as expired where its topic has no subscription."""
        ...


class Ids(Protocol):
    """Makes UUIDv7 texts."""

    def next(self) -> str:
        """Return the next one."""
        ...
