"""Broken dispatchers: each breaks one rule, and the test of that rule must find it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from fairbox.dispatch.fair import DirectShare, Pending

from tests.unit.dispatch.fair.cases import Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.dispatch.fair import Work
    from fairbox.dispatch.ports import Limits


class _ByCount(Pending[Note]):
    """One message a topic and round, whatever its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._queues: dict[str, deque[Note]] = {}
        self._order: list[str] = []

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, work: Work[Note]) -> None:
        queue = self._queues.setdefault(work.topic, deque())
        if work.topic not in self._order:
            self._order.append(work.topic)
        queue.append(work.item)

    def next_call(
        self, limits: Limits, *, fill: bool = True, skip: Callable[[Note], bool] | None = None
    ) -> list[Note]:
        call: list[Note] = []
        used = 0
        unserved = deque(self._order)
        served: list[str] = []
        while unserved or served:
            if not unserved:
                unserved, served = deque(served), []
            queue = self._queues[unserved[0]]
            size = queue[0].size
            if call and (len(call) >= limits.messages or used + size > limits.bytes):
                break
            call.append(queue.popleft())
            used += size
            topic = unserved.popleft()
            served += [topic] if queue else []
        self._order = self.carried_over(list(unserved), served)
        return call

    def carried_over(self, unserved: list[str], served: list[str]) -> list[str]:
        return unserved + served


class CountBased(_ByCount):
    """Round-robin over messages: topics of large messages win."""


class ServedFirst(_ByCount):
    """Puts served topics that have more before topics left unserved: the tail starves."""

    def carried_over(self, unserved: list[str], served: list[str]) -> list[str]:
        return served + unserved


class _Unbounded(DirectShare):
    left = True


class UnboundedDirect(Pending[Note]):
    """Direct messages until none is left: topics starve behind them."""

    def __init__(self) -> None:
        super().__init__()
        self._share = _Unbounded()

    def next_call(
        self, limits: Limits, *, fill: bool = True, skip: Callable[[Note], bool] | None = None
    ) -> list[Note]:
        self._topics_first = False
        return super().next_call(limits, fill=fill, skip=skip)
