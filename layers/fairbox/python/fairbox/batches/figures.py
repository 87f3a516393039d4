"""Figures: the progress of a batch, exact or estimated, and how many are open or stand still."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from fairbox.batches.batch_parts import (
    finished_hour,
    known_root,
    unfinished_groups,
    unfinished_nodes,
    unfinished_under_root,
)
from fairbox.batches.results import Progress
from fairbox.tables.batch_values import LeafKey, Root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.batches.batch_parts import Context

SAMPLE: Final = 100
EXACT_SEAL_LEAVES: Final = 1000
_TWO_SIDED_95: Final = 1.98  # Student's t with 99 degrees of freedom
_ROOTS: Final = 100
_FIRST_LEAVES: Final = 10
_LEAVES: Final = 100
NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class OpenBatches:
    """Batches that are open or sealed, and the age of the oldest in seconds; 0 for none."""

    count: int
    oldest_age: float


@dataclass(slots=True)
class Stalled:
    """Open or sealed batches in which nothing has happened for long.

    Attributes:
        looked: batches whose leaves were read.
        count: batches that stand still.
        batches: the first ids of these.
        finished: whether all batches were checked; if not, `count` is a lower bound.
    """

    looked: int = 0
    count: int = 0
    batches: list[str] = field(default_factory=list)
    finished: bool = False


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


class Statistics:
    """Reads the index and the roots behind it; the index is eventually consistent."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store
        self._opened: dict[str, int] = {}

    def open_batches(self) -> OpenBatches:
        """Count the batches that are open or sealed.

        16 queries, half a read unit each and one more for 80 batches. When a batch was opened is
        read from its root once a process (1 RRU), because it never changes.
        """
        ids = set(self._alive())
        # without those of batches that have ended since: the copy grows no further
        self._opened = {batch: at for batch, at in self._opened.items() if batch in ids}
        for roots in self._roots(sorted(ids - self._opened.keys())):
            self._opened |= {root.batch: root.opened for root in roots}
        if not self._opened:
            return OpenBatches(len(ids), 0.0)
        age = self._context.now - min(self._opened.values())
        return OpenBatches(len(ids), max(0.0, age / 1000))

    def stalled(self, hours: int, *, deadline: float) -> Stalled:
        """Count the batches in which nothing was added or settled for so many hours.

        1 RRU a batch; of those opened before that time 1 a node too, and 1 a leaf until one shows
        activity: 10 leaves at random, then 100 at a time. So a batch that stands still costs 1 an
        unfinished leaf, each time.

        Args:
            hours: from 1; activity is known by the hour.
            deadline: when to stop, in seconds since 1970.
        """
        since = self._context.hour - hours
        found = Stalled()
        for roots in self._roots(sorted(set(self._alive()))):
            for root in roots:
                if self._context.clock.now() >= deadline:
                    return found
                if root.ended or root.waits or root.opened // 3_600_000 > since:
                    continue
                found.looked += 1
                if not self._active(root, since):
                    found.count += 1
                    found.batches += [root.batch][: NAMED - len(found.batches)]

        found.finished = True
        return found

    def _alive(self) -> Iterator[str]:
        return chain(self._store.listed("open"), self._store.listed("sealed"))

    def _roots(self, ids: list[str]) -> Iterator[list[Root]]:
        for start in range(0, len(ids), _ROOTS):
            yield self._store.roots(ids[start : start + _ROOTS])

    def _active(self, root: Root, since: int) -> bool:
        """Return whether anything was written after that hour."""
        nodes = unfinished_nodes(self._store, root)
        if any(node.hour > since for node in nodes):
            return True

        groups = unfinished_groups(root, nodes)
        # at random: activity anywhere shows early
        self._context.rng.shuffle(groups)
        start, many = 0, _FIRST_LEAVES
        while start < len(groups):
            keys = [LeafKey(root.batch, group) for group in groups[start : start + many]]
            if any(leaf.hour > since for leaf in self._store.leaves(keys).values()):
                return True
            start, many = start + many, _LEAVES

        return finished_hour(self._store, root) > since


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
