"""What the batches' stream brings: emptied groups cleared, and parents of nested batches told."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from fairbox.batches.cascade import Cascade, Emptied, by_parent
from fairbox.batches.context import TRIES
from fairbox.errors import BatchBusy, FairboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fairbox.batches.models import LeafKey, NodeKey

Cause = Emptied | str
"""An emptied leaf or node, or the id of an ended batch whose parent is to be told."""


@dataclass(slots=True)
class Finished:
    """What became of a window of the stream.

    Attributes:
        completed: ids of the batches that this completed.
        left: what is to be brought again.
        errors: why, one text for each parent that could not be written.
    """

    completed: list[str] = field(default_factory=list)
    left: set[Cause] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)


class Finishing(Cascade):
    """The last one to do a cascade: what it leaves is named, and so comes again."""

    def finish(self, causes: Collection[Cause], *, deadline: float) -> Finished:
        """Clear and tell until the deadline (seconds since 1970); raises nothing of Fairbox's.

        Coalesced by parent: one read of it, one of its children in batches of a hundred, one write,
        whatever the number of children. Order and repetition do not matter.
        """
        found = Finished()
        nodes, roots = by_parent(c for c in causes if not isinstance(c, str))
        for key, leaves in nodes.items():
            if self._done(found, deadline, leaves, partial(self._node, key, leaves)):
                roots[key.batch].add(key)
        for batch, under in roots.items():
            self._done(found, deadline, under, partial(self._root, batch, under, found.completed))
        for batch in sorted(c for c in causes if isinstance(c, str)):
            self._done(found, deadline, {batch}, partial(self._tell, batch, found.completed))
        found.left &= set(causes)
        return found

    def _done(
        self,
        found: Finished,
        deadline: float,
        causes: Collection[Cause],
        work: Callable[[], bool],
    ) -> bool:
        """Do the work of one parent; what fails, or comes too late, is left."""
        if self.clock.now() < deadline:
            try:
                return work()
            except FairboxError as error:
                found.errors.append(str(error))
        found.left.update(causes)
        return False

    def _node(self, key: NodeKey, leaves: Collection[LeafKey]) -> bool:
        empty = self.clear_node(key, leaves, TRIES)
        if empty is None:
            raise BatchBusy([str(key)])
        return empty

    def _root(self, batch: str, under: Collection[Emptied], completed: list[str]) -> bool:
        done = self.clear_root(batch, under, TRIES)
        if done is None:
            raise BatchBusy([batch])
        completed += done
        return True

    def _tell(self, batch: str, completed: list[str]) -> bool:
        done = self.tell(batch, TRIES)
        if done is None:
            raise BatchBusy([batch])
        completed += done
        return True
