"""Clearing upwards: an emptied leaf or node leaves its parent, and the root completes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from fairbox.batches.context import CASCADE_TRIES, Work, acked, failed, short, with_failures
from fairbox.batches.ids import bit_of, node_of, parse_item, slot_of
from fairbox.batches.models import Change, FailedItems, Leaf, LeafKey, NodeKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fairbox.batches.models import Node, Root

Emptied = LeafKey | NodeKey


class Cascade(Work):
    """Rule 3: read the parent, then the children, then write the parent on its version.

    Order and repetition do not matter. After three lost races the rest is left to the stream,
    which brings every emptied item again.
    """

    def cascade(self, emptied: Iterable[Emptied]) -> list[str]:
        """Clear these from their parents where they are empty, and so on upwards.

        Returns:
            The ids of the batches that this completed, nested ones first.
        """
        nodes, roots = by_parent(emptied)
        for key, children in nodes.items():
            if self.clear_node(key, children):
                roots[key.batch].add(key)
        completed: list[str] = []
        for batch, under_root in roots.items():
            completed += self.clear_root(batch, under_root) or []
        return completed

    def clear_node(
        self, key: NodeKey, children: Collection[LeafKey], tries: int = CASCADE_TRIES
    ) -> bool | None:
        """Clear emptied leaves from a node.

        Returns:
            Whether it is empty now; None when every race was lost.
        """
        for _ in self.tries(tries):
            node, leaves = self.read_node(key, children)
            if node is None:
                return False
            gone = [c for c in leaves if c.count == 0 and node.bits >> bit_of(c.group) & 1]
            if not gone:
                return not node.bits
            new = replace(
                node,
                bits=node.bits & ~sum(1 << bit_of(c.group) for c in gone),
                failed=node.failed + sum(c.failed for c in gone),
                settled=node.settled + sum(c.size for c in gone),
                version=node.version + 1,
                hour=self.hour,
            )
            if self.store.write([Change(new, node)]) is None:
                return not new.bits
        return None

    def read_node(
        self, key: NodeKey, children: Collection[LeafKey]
    ) -> tuple[Node | None, list[Leaf]]:
        """Read a node, and only then its leaves."""
        node = self.store.nodes([key]).get(key)
        return node, [] if node is None else list(self.store.leaves(sorted(children)).values())

    def clear_root(
        self, batch: str, children: Collection[Emptied], tries: int = CASCADE_TRIES
    ) -> list[str] | None:
        """Clear emptied leaves and nodes from a root.

        Returns:
            The batches completed by that; None when every race was lost.
        """
        message = self.ids.next()
        for _ in self.tries(tries):
            root, under = self.read_root(batch, children)
            if root is None:
                return []
            if root.ended:
                return self.after_end(root, message)
            new = _cleared(root, under)
            if new is None:
                return []
            written = self.decide(root, new, message)
            if written is not None:
                return self.after_end(written, message)
        return None

    def read_root(
        self, batch: str, children: Collection[Emptied]
    ) -> tuple[Root | None, list[Leaf | Node]]:
        """Read a root, and only then its children."""
        root = self.store.root(batch)
        if root is None or root.ended:
            return root, []
        return root, self.read_children(children)

    def read_children(self, children: Collection[Emptied]) -> list[Leaf | Node]:
        """Read leaves and nodes, in the order of their keys: a set's is not that of a replay."""
        leaves = self.store.leaves(sorted(c for c in children if isinstance(c, LeafKey)))
        nodes = self.store.nodes(sorted(c for c in children if isinstance(c, NodeKey)))
        return [*leaves.values(), *nodes.values()]

    def after_end(self, root: Root, message: str) -> list[str]:
        """Tell the parent of a batch that has ended; return what completed, this one included.

        A root that bears `message` was completed by this very call, also when the answer to the
        write was lost.
        """
        completed = [root.batch] if root.message == message else []
        if root.ended and root.parent_item is not None and not root.told:
            completed += self.tell(root.batch) or []
        return completed

    def tell(self, batch: str, tries: int = CASCADE_TRIES) -> list[str] | None:
        """Settle the parent's item of a nested batch that has ended, once.

        Returns:
            The ids of the batches that this completed; None when every race was lost.
        """
        for _ in self.tries(tries):
            root = self.store.root(batch)
            item = parse_item(root.parent_item or "") if root is not None else None
            if root is None or item is None or not root.ended or root.told:
                return []
            told = Change(replace(root, told=True, version=root.version + 1), root)
            key = LeafKey(item.batch, item.group)
            leaf = self.store.leaves([key]).get(key)
            if leaf is None or not leaf.pending >> item.index & 1:
                changes = [told]
            else:
                changes = [told, *self._settled(leaf, item.index, root)]
            if self.store.write(changes) is None:
                settled = changes[1].new if len(changes) > 1 else None
                emptied = isinstance(settled, Leaf) and settled.count == 0
                return self.cascade([key]) if emptied else []
        return None

    def _settled(self, leaf: Leaf, index: int, child: Root) -> list[Change]:
        hit = 1 << index
        if child.state == "complete" and not child.failed:
            return [Change(acked(leaf, hit, self.hour), leaf)]
        there = self.store.failed([leaf.key]).get(leaf.key)
        reason = f"batch {child.batch} {child.state}, {child.failed} failed"
        new = FailedItems(leaf.batch, leaf.group, hit, leaf.size, ((index, short(reason)),))
        return [
            Change(failed(leaf, hit, self.hour), leaf),
            Change(with_failures(there, new), there),
        ]


def by_parent(
    emptied: Iterable[Emptied],
) -> tuple[dict[NodeKey, set[LeafKey]], defaultdict[str, set[Emptied]]]:
    """Return emptied leaves by their node, and what lies directly under a root by batch."""
    nodes: defaultdict[NodeKey, set[LeafKey]] = defaultdict(set)
    roots: defaultdict[str, set[Emptied]] = defaultdict(set)
    for child in emptied:
        node = node_of(child.group) if isinstance(child, LeafKey) else None
        if isinstance(child, NodeKey) or node is None:
            roots[child.batch].add(child)
        else:
            nodes[NodeKey(child.batch, node)].add(child)
    return nodes, roots


def _cleared(root: Root, children: Collection[Leaf | Node]) -> Root | None:
    """Return the root without the bits of those that are empty; None when nothing changes."""
    bits, gone_failed, settled = root.bits, root.failed, root.settled
    for child in children:
        if _is_empty(child) and bits >> _slot(child) & 1:
            bits &= ~(1 << _slot(child))
            gone_failed += child.failed
            settled += _items_settled(child)
    if bits == root.bits:
        return None
    return replace(root, bits=bits, failed=gone_failed, settled=settled)


def _is_empty(child: Leaf | Node) -> bool:
    return not (child.count if isinstance(child, Leaf) else child.bits)


def _slot(child: Leaf | Node) -> int:
    return bit_of(child.group) if isinstance(child, Leaf) else slot_of(child.node)


def _items_settled(child: Leaf | Node) -> int:
    return child.size if isinstance(child, Leaf) else child.settled
