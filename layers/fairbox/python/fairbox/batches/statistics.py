"""Figures over all batches: how many are open, since when, and which of them stand still."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from fairbox.batches.batch_parts import finished_hour, unfinished_groups, unfinished_nodes
from fairbox.tables.batch_values import LeafKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.batches.batch_parts import Context
    from fairbox.tables.batch_values import Root

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
