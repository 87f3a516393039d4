"""The heartbeats of a consumer: which messages are to be extended, and when."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.consumer.in_flight_message import InFlightMessage

    _Entry = tuple[float, int, InFlightMessage]

_OLD: Final = 10


class Heartbeats:
    """The next extension of each message; every method may be called from any thread.

    Args:
        now: seconds that never go back.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._entries: dict[InFlightMessage, _Entry] = {}
        self._heap: list[_Entry] = []  # old ones among them
        self._numbers = itertools.count()
        self._changed = threading.Condition()

    @property
    def next(self) -> float:
        """The time of the next one; infinity: there is none."""
        with self._changed:
            while self._heap and not self._is_current(self._heap[0]):
                heapq.heappop(self._heap)
            return self._heap[0][0] if self._heap else math.inf

    def set(self, message: InFlightMessage, at: float) -> None:
        """Set the time of a message's next extension; infinity: never."""
        with self._changed:
            first = self.next
            self._entries.pop(message, None)
            if at < math.inf:
                self._entries[message] = entry = (at, next(self._numbers), message)
                heapq.heappush(self._heap, entry)

            if len(self._heap) > 2 * len(self._entries) + _OLD:  # they keep bodies in memory
                self._heap = [entry for entry in self._heap if self._is_current(entry)]
                heapq.heapify(self._heap)

            if at < first:
                # a thread waits for the first of all: it looks again
                self._changed.notify()

    def take(self, count: int, ahead: float, again: float) -> list[InFlightMessage]:
        """Return messages to extend in one call, earliest end first; empty: none is due.

        If one is due, messages due within `ahead` seconds are included. All are due again after
        `again` seconds: another thread extends them if the call has not returned by then.
        """
        with self._changed:
            now = self._now()
            if self.next > now:
                return []

            found: list[InFlightMessage] = []
            while self.next <= (now + ahead if len(found) < count else now):
                found.append(heapq.heappop(self._heap)[2])

            found.sort(key=lambda message: message.until)
            # too many for one call: the others keep their times
            for message in found[count:]:
                self.set(message, self._entries[message][0])
            for message in found[:count]:
                self.set(message, now + again)
            return found[:count]

    def wait(self, until: float, timeout: float) -> None:
        """Wait until a time, or until one is due or `wake`; so many seconds at most."""
        with self._changed:
            pause = min(until, self.next) - self._now()
            if pause > 0:
                self._changed.wait(min(pause, timeout))

    def wake(self, *, everyone: bool = False) -> None:
        """End the wait of one thread, or of all."""
        with self._changed:
            self._changed.notify_all() if everyone else self._changed.notify()

    def _is_current(self, entry: _Entry) -> bool:
        return self._entries.get(entry[2]) is entry
