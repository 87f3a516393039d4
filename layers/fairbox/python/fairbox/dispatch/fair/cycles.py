"""Cycles over the destinations that are ready and have pending work."""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

from fairbox.dispatch.fair.pending_work import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from fairbox.dispatch.fair.pending_work import Work
    from fairbox.dispatch.ports import Limits
    from fairbox.model.clock import Clock

D = TypeVar("D", bound="Hashable")
T = TypeVar("T")


class Cycles(Generic[D, T]):
    """The next calls, over many destinations.

    A destination is ready when work waits for it, all its calls are answered, and it does not rest.
    All others cost nothing, however many they are. In a cycle each ready destination gets one call,
    so that a message reaches all of them in the same cycle.

    Args:
        clock: the time, for destinations that rest.
        limits: of a destination's next call.
        size: bytes that an item takes of a destination's call; by default its work's size.
        skip: says which items are not to be sent; they are forgotten.
        fill: see `Pending.next_call`.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        limits: Callable[[D], Limits],
        size: Callable[[D, T], int] | None = None,
        skip: Callable[[T], bool] | None = None,
        fill: bool = True,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._size = size
        self._skip = skip
        self._fill = fill
        self._pending: dict[D, Pending[T]] = {}
        self._ready: dict[D, None] = {}  # in the order in which they became ready
        self._unanswered: set[D] = set()
        self._resting: dict[D, float] = {}
        self._alarms: list[tuple[float, int, D]] = []
        self._numbers = count()

    def __len__(self) -> int:
        """The number of messages that wait."""
        return sum(len(pending) for pending in self._pending.values())

    def add(self, destination: D, work: Work[T]) -> None:
        """Add pending work of a destination."""
        pending = self._pending.get(destination)
        if pending is None:
            size = None if self._size is None else partial(self._size, destination)
            pending = self._pending[destination] = Pending(size)
        pending.add(work)
        self._offer(destination)

    def rest(self, destination: D, seconds: float) -> None:
        """Leave a destination and its work alone for some seconds."""
        until = self._clock.now() + seconds
        self._resting[destination] = until
        self._ready.pop(destination, None)
        heappush(self._alarms, (until, next(self._numbers), destination))

    def drop(self, destination: D) -> None:
        """Forget the pending work of a destination."""
        self._pending.pop(destination, None)
        self._ready.pop(destination, None)

    def cycle(self) -> Iterator[tuple[D, list[T]]]:
        """Yield one call for each ready destination, those that waited longest first.

        A destination that was given a call gets no other before `answered`.
        """
        self._wake()
        ready = list(self._ready)
        self._ready = dict.fromkeys(ready)  # to walk a dict that was large once takes long for ever
        for destination in ready:
            pending = self._pending.get(destination)
            if pending is None or destination not in self._ready:
                continue
            call = pending.next_call(self._limits(destination), fill=self._fill, skip=self._skip)
            del self._ready[destination]
            if not len(pending):
                del self._pending[destination]
                self._pending = self._pending or {}
            if call:
                self._unanswered.add(destination)
                yield destination, call
            else:
                self._offer(destination)

    def answered(self, destination: D) -> None:
        """Let a destination have calls again: its last call is settled."""
        self._unanswered.discard(destination)
        self._offer(destination)

    @property
    def wakes(self) -> float | None:
        """The time at which the next rest ends, in seconds since 1970; None: none rests."""
        while self._alarms and self._resting.get(self._alarms[0][2]) != self._alarms[0][0]:
            heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def _wake(self) -> None:
        now = self._clock.now()
        while (at := self.wakes) is not None and at <= now:
            destination = heappop(self._alarms)[2]
            del self._resting[destination]
            self._offer(destination)

    def _offer(self, destination: D) -> None:
        """Add a destination to the ready ones, if it is ready."""
        busy = destination in self._unanswered or destination in self._resting
        if destination in self._pending and not busy:
            self._ready.setdefault(destination)
