"""Invariants of the batches table at every moment, whoever has crashed or is about to write."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairbox.tables.batch_records import read_record
from fairbox.tables.batch_values import (
    FENCED,
    FailedItems,
    Leaf,
    LeafKey,
    Node,
    NodeKey,
    Request,
    Root,
    bit_of,
    first_group,
    item_ids,
    node_of,
    slot_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Cause = LeafKey | NodeKey | str
"""Work of a stream record: clear an emptied leaf or node, or notify an ended batch's parent."""


@dataclass
class Pieces:
    """The records of a table, by kind."""

    roots: dict[str, Root] = field(default_factory=dict)
    nodes: dict[tuple[str, int], Node] = field(default_factory=dict)
    leaves: dict[tuple[str, int], Leaf] = field(default_factory=dict)
    failed: dict[tuple[str, int], FailedItems] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def committed(self, batch: str) -> list[Leaf]:
        """The leaves of adds that are done; each must be there."""
        return [
            self.leaves[batch, group]
            for request in self.requests
            if request.batch == batch and request.done
            for group in range(request.first, request.first + request.groups)
        ]

    def marked(self, leaf: Leaf) -> bool:
        """Whether the leaf's bit is set in its parent."""
        number = node_of(leaf.group)
        parent = (
            self.roots[leaf.batch].bits if number is None else self.nodes[leaf.batch, number].bits
        )
        return bool(parent >> bit_of(leaf.group) & 1)

    def pending_items(self) -> set[str]:
        """The ids of all pending items."""
        return {item for leaf in self.leaves.values() for item in item_ids(leaf)}

    def emptied(self) -> list[LeafKey | NodeKey]:
        """Work that the stream has brought or will bring."""
        leaves: list[LeafKey | NodeKey] = [x.key for x in self.leaves.values() if not x.count]
        return leaves + [node.key for node in self.nodes.values() if not node.bits]

    def untold(self) -> list[str]:
        """Ended nested batches whose parents have not been told."""
        return [
            root.batch
            for root in self.roots.values()
            if root.ended and root.parent_item and not root.told
        ]

    def unfenced(self) -> list[str]:
        """Cancelled and reaped batches that still have a group, which could be acked."""
        ended = {r.batch for r in self.roots.values() if r.state in FENCED}
        return sorted({batch for batch, _ in self.leaves if batch in ended})

    def stuck(self) -> str:
        """Say which ended batch has groups, or which sealed one is done and never completes."""
        for batch in self.unfenced():
            return f"{batch} has ended, and its items can still be acked"
        for root in self.roots.values():
            done = root.state == "sealed" and not root.waits
            if done and not any(x.count for x in self.committed(root.batch)):
                return f"{root.batch} is sealed, has nothing pending and never completes"
        return ""


def pieces(
    items: Iterable[dict[str, Any]], read: Callable[[dict[str, Any]], Any] = read_record
) -> Pieces:
    """Sort the items of a table; `read` makes records of them."""
    found = Pieces()
    for item in items:
        record = read(item)
        match record:
            case Root():
                found.roots[record.batch] = record
            case Node():
                found.nodes[record.batch, record.node] = record
            case Leaf():
                found.leaves[record.batch, record.group] = record
            case FailedItems():
                found.failed[record.batch, record.group] = record
            case Request():
                found.requests.append(record)
            case _:
                pass
    return found


def broken(items: Iterable[dict[str, Any]], messages: Iterable[str]) -> str:
    """Say what is not as it must be at every moment; empty when all is."""
    return broken_pieces(pieces(items), messages)


def broken_pieces(found: Pieces, messages: Iterable[str]) -> str:
    """Say what is not as it must be at every moment; empty when all is."""
    announced = Counter(messages)
    parents = Counter(r.parent_item for r in found.roots.values() if r.parent_item and not r.told)
    for item, children in parents.items():
        if children > 1:
            return f"{item} has {children} nested batches"
    for batch, root in found.roots.items():
        if announced[batch] != (root.state == "complete"):
            return f"{batch} is {root.state} with {announced[batch]} messages"
        if root.state == "sealed" and not root.bits and not root.waits:
            return f"{batch} is sealed, has no bit and is not complete"
        if root.cursor is None:
            problem = _counts(found, root) or _bits(found, root)
            if problem:
                return f"{batch}: {problem}"
    return ""


def _counts(found: Pieces, root: Root) -> str:
    batch = root.batch
    leaves = found.committed(batch)
    if root.total != sum(leaf.size for leaf in leaves):
        return f"total is {root.total}, but the adds that are done have other items"
    nodes = [n for n in found.nodes.values() if n.batch == batch]
    counted = [n for n in nodes if root.bits >> slot_of(n.node) & 1]
    marked = [leaf for leaf in leaves if found.marked(leaf)]
    failed = root.failed + sum(n.failed for n in counted) + sum(x.failed for x in marked)
    settled = root.settled + sum(n.settled for n in counted)
    settled += sum(leaf.size - leaf.count for leaf in marked)
    failures = sum(x.bits.bit_count() for key, x in found.failed.items() if key[0] == batch)
    if failed != failures:
        return f"{failed} failed by the sums, {failures} in truth"
    if settled != sum(leaf.size - leaf.count for leaf in leaves):
        return f"{settled} settled by the sums, not so in truth"
    return ""


def _bits(found: Pieces, root: Root) -> str:
    for leaf in found.committed(root.batch):
        failures = found.failed.get((leaf.batch, leaf.group))
        failed_bits = failures.bits if failures else 0
        if leaf.count != leaf.pending.bit_count() or leaf.failed != failed_bits.bit_count():
            return f"leaf {leaf.group} does not count its own bits"
        if leaf.pending & failed_bits:
            return f"leaf {leaf.group} has items that are pending and failed"
        if leaf.count and not found.marked(leaf):
            return f"leaf {leaf.group} has pending items and no bit in its parent"
    for node in found.nodes.values():
        if node.batch == root.batch and node.bits and not root.bits >> slot_of(node.node) & 1:
            return f"node {node.node} (from group {first_group(node.node)}) has no bit in the root"
    return ""
