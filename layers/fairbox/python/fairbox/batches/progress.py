"""Progress: exact, by a walk over what is unfinished, or estimated from a part of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.batches.ids import ROOT_GROUPS, bits, first_group, node_of, ones, parse_item, slot_of
from fairbox.batches.models import Change, LeafKey, NodeKey, Progress
from fairbox.batches.settlement import Settling
from fairbox.errors import UnknownBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.batches.ids import ItemId
    from fairbox.batches.models import Node, Root

SAMPLE: Final = 100
EXACT_SEAL_LEAVES: Final = 1000
_TWO_SIDED_95: Final = 1.98  # Student's t with 99 degrees of freedom


class Looking(Settling):
    """Reads batches; every read is consistent, the whole is not one moment."""

    def progress(self, batch: str, *, exact: bool = True, at_most: int | None = None) -> Progress:
        """Return how far a batch is.

        Of more unfinished leaves than `at_most` it is estimated, though it was to be exact.

        Exact: 1 RRU an unfinished leaf; while acks and adds run, between the truth at its
        beginning and at its end. Else from 100 unfinished leaves at random, at most 121 RRU.

        Raises:
            UnknownBatch: there is none of this id.
        """
        root = self.known_root(batch)
        if not exact or (at_most is not None and self._leaves_left(root) > at_most):
            return self.estimate(root)
        found = self.progress_of(root)
        after = self.known_root(batch) if root.bits else root
        if (after.total, after.cursor) != (root.total, root.cursor):
            found = self.progress_of(after)
        return found

    def sealed_progress(self, root: Root) -> Progress:
        """Return the progress that `seal` answers with: exact up to 1,000 unfinished leaves."""
        few = self._leaves_left(root) <= EXACT_SEAL_LEAVES
        return self.progress_of(root) if few else self.estimate(root)

    def _leaves_left(self, root: Root) -> int:
        """How many leaves have a bit: a read of each node that has one."""
        leaves = (root.bits & ((1 << ROOT_GROUPS) - 1)).bit_count()
        return leaves + sum(node.bits.bit_count() for node in self.unfinished_nodes(root))

    def known_root(self, batch: str) -> Root:
        """Return a root.

        Raises:
            UnknownBatch: there is none of this id.
        """
        root = self.store.root(batch)
        if root is None:
            raise UnknownBatch(batch)
        return root

    def progress_of(self, root: Root) -> Progress:
        """Return the exact progress of a root as read; of an erased one, what the root says.

        The total is that of what is counted: a node read after the root may have had an add.
        """
        if root.cursor is not None or not root.bits:
            return _answer(root, root.total, root.total - root.settled, root.failed)
        nodes = self.unfinished_nodes(root)
        groups = self.unfinished_groups(root, nodes)
        counts = self.store.counts([LeafKey(root.batch, group) for group in groups])
        return _answer(
            root,
            root.settled + sum(node.settled for node in nodes) + sum(c.size for c in counts),
            sum(leaf.pending for leaf in counts),
            root.failed + sum(node.failed for node in nodes) + sum(c.failed for c in counts),
        )

    def estimate(self, root: Root) -> Progress:
        """Return the progress from at most 100 unfinished leaves, with its 95 % bound."""
        if root.cursor is not None or not root.bits:
            return self.progress_of(root)
        nodes = self.unfinished_nodes(root)
        groups = self.unfinished_groups(root, nodes)
        if len(groups) <= SAMPLE:
            return self.progress_of(root)
        keys = [LeafKey(root.batch, g) for g in self.rng.sample(groups, SAMPLE)]
        counts = self.store.counts(keys)
        many = len(groups)
        mean = sum(leaf.pending for leaf in counts) / SAMPLE
        gone = sum(leaf.failed for leaf in counts) / SAMPLE
        spread = math.sqrt(sum((leaf.pending - mean) ** 2 for leaf in counts) / (SAMPLE - 1))
        error = _TWO_SIDED_95 * many * spread / math.sqrt(SAMPLE) * math.sqrt(1 - SAMPLE / many)
        # nodes may count items of adds that came after the root was read
        limit = max(0, root.total - root.settled - sum(node.settled for node in nodes))
        pending = min(limit, round(mean * many))
        failed = root.failed + sum(node.failed for node in nodes) + round(gone * many)
        failed = min(failed, root.total - pending)
        found = _answer(root, root.total, pending, failed)
        return replace(found, exact=False, error=math.ceil(error), limit=limit)

    def unfinished_nodes(self, root: Root) -> list[Node]:
        """Return the nodes with a bit in the root."""
        slots = bits(root.bits >> ROOT_GROUPS)
        keys = [NodeKey(root.batch, number) for number in slots]
        found = self.store.nodes(keys) if keys else {}
        return [found[key] for key in keys if key in found]

    def unfinished_groups(self, root: Root, nodes: Sequence[Node]) -> list[int]:
        """Return the groups with a bit, ascending."""
        groups = list(bits(root.bits & ((1 << ROOT_GROUPS) - 1)))
        for node in nodes:
            base = first_group(node.node)
            groups += [base + bit for bit in bits(node.bits)]
        return groups

    def finished_hour(self, root: Root) -> int:
        """Return the newest hour of what is finished directly under a root; 0 for nothing.

        A last ack of a group leaves its hour there, where no walk over the unfinished comes by.
        """
        given = root.next_group
        groups = bits(ones(0, min(given, ROOT_GROUPS)) & ~root.bits)
        last = node_of(given - 1) if given else None
        numbers = range(0 if last is None else last + 1)
        done = [NodeKey(root.batch, n) for n in numbers if not root.bits >> slot_of(n) & 1]
        keys = [LeafKey(root.batch, group) for group in groups]
        hours = [leaf.hour for leaf in self.store.leaves(keys).values()]
        hours += [node.hour for node in self.store.nodes(done).values()]
        return max(hours, default=0)

    def parent_of(self, root: Root) -> ItemId | None:
        """Return the item that a nested batch settles when it ends."""
        return None if root.parent_item is None else parse_item(root.parent_item)

    def stamp(self, key: LeafKey) -> None:
        """Note activity in a leaf, where it is not noted for this hour yet."""
        leaf = self.store.leaves([key]).get(key)
        if leaf is not None and leaf.hour < self.hour:
            new = replace(leaf, hour=self.hour, version=leaf.version + 1)
            self.store.write([Change(new, leaf)])


def _answer(root: Root, total: int, pending: int, failed: int) -> Progress:
    return Progress(
        root.batch,
        root.state,
        total,
        pending,
        total - pending - failed,
        failed,
        limit=pending,
        user_key=root.user_key,
    )
