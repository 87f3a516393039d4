"""A topic's pending work for one destination: its tenants in turn, each one's in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from fairbox.dispatch.fair.deficit_round_robin import QUANTUM, Turns

if TYPE_CHECKING:
    from fairbox.dispatch.fair.work_item import Work

T = TypeVar("T")


def charge(size: int) -> int:
    """Return the bytes that a message counts for: a quantum at least, for it costs a place too."""
    return max(size, QUANTUM)


class TopicQueue(Generic[T]):
    """What a topic sends next.

    Attributes:
        block: the messages of its next turn, planned when the turn before was over.
        weight, batch: as its newest work says.
    """

    __slots__ = ("_queues", "_turns", "batch", "block", "weight")

    def __init__(self) -> None:
        self._turns: Turns[str | None] = Turns()
        self._queues: dict[str | None, deque[Work[T]]] = {}
        self.block: deque[Work[T]] = deque()
        self.weight = 1.0
        self.batch = 1

    def add(self, work: Work[T]) -> None:
        """Put work behind that of its tenant."""
        self.weight, self.batch = work.weight, work.batch
        queue = self._queues.get(work.tenant)
        if queue is None:
            queue = self._queues[work.tenant] = deque()
            self._turns.enter(work.tenant, charge(work.size), work.tenant_weight)
        queue.append(work)

    def plan(self) -> int | None:
        """Fill the block of the next turn; return what it counts for, None: nothing is left."""
        while len(self.block) < self.batch and (work := self._next()) is not None:
            self.block.append(work)
        return sum(charge(work.size) for work in self.block) if self.block else None

    def _next(self) -> Work[T] | None:
        tenant = self._turns.take()
        queue = self._queues.get(tenant)
        if queue is None:
            return None
        work = queue.popleft()
        if not queue:
            del self._queues[tenant]
        following = charge(queue[0].size) if queue else None
        self._turns.serve(tenant, charge(work.size), following)
        return work
