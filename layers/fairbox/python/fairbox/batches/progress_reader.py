"""Progress: exact, by a walk over unfinished leaves, or estimated from some of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.batches.batch_parts import (
    known_root,
    unfinished_groups,
    unfinished_nodes,
    unfinished_under_root,
)
from fairbox.batches.results import Progress
from fairbox.tables.batch_values import LeafKey

if TYPE_CHECKING:
    from fairbox.batches.batch_parts import Context
    from fairbox.tables.batch_values import Root

SAMPLE: Final = 100
EXACT_SEAL_LEAVES: Final = 1000
_TWO_SIDED_95: Final = 1.98  # Student's t with 99 degrees of freedom


class ProgressReader:
    """Reads how far batches are; every read is consistent, the whole is not one moment."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._rng = context.rng

    def progress(self, batch: str, *, exact: bool = True, at_most: int | None = None) -> Progress:
        """Return how far a batch is, as `Batches.progress` does.

        While acks and adds run, an exact figure lies between the truth at its begin and its end.
        """
        root = known_root(self._store, batch)
        if not exact or (at_most is not None and self._leaves_left(root) > at_most):
            return self.estimate(root)

        found = self.progress_of(root)
        after = known_root(self._store, batch) if root.bits else root
        if (after.total, after.cursor) != (root.total, root.cursor):
            # an add or an erasure has come in between, and may be counted in part
            found = self.progress_of(after)
        return found

    def sealed_progress(self, root: Root) -> Progress:
        """Return the progress that `seal` answers with: exact up to 1,000 unfinished leaves."""
        few = self._leaves_left(root) <= EXACT_SEAL_LEAVES
        return self.progress_of(root) if few else self.estimate(root)

    def _leaves_left(self, root: Root) -> int:
        """Return the number of leaves with a bit; reads each node that has one."""
        leaves = unfinished_under_root(root).bit_count()
        return leaves + sum(n.bits.bit_count() for n in unfinished_nodes(self._store, root))

    def progress_of(self, root: Root) -> Progress:
        """Return the exact progress of a root as read; of an erased one, the figures of the root.

        The total is the sum of the items counted, because a node that is read after the root may
        have had an add in between.
        """
        if root.cursor is not None or not root.bits:
            return _answer(root, root.total, root.total - root.settled, root.failed)

        nodes = unfinished_nodes(self._store, root)
        groups = unfinished_groups(root, nodes)
        counts = self._store.counts([LeafKey(root.batch, group) for group in groups])
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

        nodes = unfinished_nodes(self._store, root)
        groups = unfinished_groups(root, nodes)
        if len(groups) <= SAMPLE:
            # the exact figure costs no more reads then
            return self.progress_of(root)

        keys = [LeafKey(root.batch, g) for g in self._rng.sample(groups, SAMPLE)]
        counts = self._store.counts(keys)

        many = len(groups)
        mean = sum(leaf.pending for leaf in counts) / SAMPLE
        gone = sum(leaf.failed for leaf in counts) / SAMPLE
        spread = math.sqrt(sum((leaf.pending - mean) ** 2 for leaf in counts) / (SAMPLE - 1))
        # the last factor: a sample that is drawn without replacement varies less
        error = _TWO_SIDED_95 * many * spread / math.sqrt(SAMPLE) * math.sqrt(1 - SAMPLE / many)

        # nodes may count items of adds that came after the root was read
        limit = max(0, root.total - root.settled - sum(node.settled for node in nodes))
        pending = min(limit, round(mean * many))
        failed = root.failed + sum(node.failed for node in nodes) + round(gone * many)
        failed = min(failed, root.total - pending)

        found = _answer(root, root.total, pending, failed)
        return replace(found, exact=False, error=math.ceil(error), limit=limit)


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
