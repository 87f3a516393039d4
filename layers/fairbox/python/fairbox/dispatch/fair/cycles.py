"""Cycles over the destinations that are ready and have pending work."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from fairbox.dispatch.fair.pending_work import Pending
from fairbox.dispatch.ports import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from fairbox.dispatch.fair.pending_work import Work

D = TypeVar("D", bound="Hashable")
T = TypeVar("T")


class Cycles(Generic[D, T]):
    """The next calls, over many destinations.

    A destination is ready when work waits for it and it has room for another call. All others cost
    nothing, however many they are. In a cycle each ready destination gets one call, so that a
    message reaches all of them in the same cycle.

    Args:
        limits: of a destination's next call.
        size: bytes that an item takes of a destination's call; by default its work's size.
        skip: says which items are not to be sent; they are forgotten.
        fill: see `Pending.next_call`.
        in_flight: messages of a destination that may be unanswered at once, in as many calls as it
            takes; None: one call at a time.
    """

    def __init__(
        self,
        *,
        limits: Callable[[D], Limits],
        size: Callable[[D, T], int] | None = None,
        skip: Callable[[T], bool] | None = None,
        fill: bool = True,
        in_flight: Callable[[D], int | None] = lambda _: None,
    ) -> None:
        self._limits = limits
        self._size = size
        self._skip = skip
        self._fill = fill
        self._in_flight = in_flight
        self._pending: dict[D, Pending[T]] = {}
        self._ready: dict[D, None] = {}  # in the order in which they became ready
        self._unanswered: dict[D, int] = {}  # messages

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

    def drop(self, destination: D) -> None:
        """Forget the pending work of a destination."""
        self._pending.pop(destination, None)
        self._ready.pop(destination, None)

    def cycle(self) -> Iterator[tuple[D, list[T]]]:
        """Yield one call for each ready destination, the longest waiting first.

        A destination at its limit in flight gets no other call before `answered`.
        """
        ready = list(self._ready)
        self._ready = dict.fromkeys(ready)  # to walk a dict that was large once takes long for ever

        for destination in ready:
            pending = self._pending.get(destination)
            if pending is None or destination not in self._ready:
                continue
            limits = self._room(destination)
            call = pending.next_call(limits, fill=self._fill, skip=self._skip)
            del self._ready[destination]
            if not len(pending):
                del self._pending[destination]
                self._pending = self._pending or {}

            if call:
                unanswered = self._unanswered.get(destination, 0)
                self._unanswered[destination] = unanswered + len(call)
            self._offer(destination)
            if call:
                yield destination, call

    def answered(self, destination: D, messages: int | None = None) -> None:
        """Settle a call of so many messages (None: all): its destination may have calls again."""
        left = 0 if messages is None else self._unanswered.get(destination, 0) - messages
        if left > 0:
            self._unanswered[destination] = left
        else:
            self._unanswered.pop(destination, None)
        self._offer(destination)

    def idle(self, destination: D) -> bool:
        """Whether nothing waits for a destination, and all its calls are answered."""
        return destination not in self._pending and destination not in self._unanswered

    def has_room(self, destination: D) -> bool:
        """Whether a destination may have another call unanswered."""
        return not self._busy(destination)

    def _room(self, destination: D) -> Limits:
        """Return the limits of a destination's next call: at most its room in flight."""
        limits, most = self._limits(destination), self._in_flight(destination)
        if most is None:
            return limits
        room = most - self._unanswered.get(destination, 0)
        return Limits(min(limits.messages, room), limits.bytes)

    def _busy(self, destination: D) -> bool:
        unanswered = self._unanswered.get(destination)
        if unanswered is None:
            return False
        most = self._in_flight(destination)
        return most is None or unanswered >= most

    def _offer(self, destination: D) -> None:
        """Add a destination to the ready ones, if it is ready."""
        if destination in self._pending and not self._busy(destination):
            self._ready.setdefault(destination)
