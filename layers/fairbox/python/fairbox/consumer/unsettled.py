"""The messages of a consumer that are done and not yet settled."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from fairbox.consumer.options import CALL_SIZE, ORDERED_CALL_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.consumer.in_flight_message import InFlightMessage

ENOUGH: Final = 10
"""Number of acks that do not wait for others."""
_TOGETHER: Final = ("ack", "release")


class Unsettled:
    """Messages to be settled, by kind of call; every method may be called from any thread.

    Args:
        now: seconds that never go back.

    Attributes:
        ordered: they are of an ordered topic. Calls for several messages are made one at a time,
            and for more messages, because those of a shard write the same row.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.ordered = False
        self._calls = 0
        self._kinds: dict[str, deque[InFlightMessage]] = {}
        self._later: list[tuple[float, int, InFlightMessage]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()

    def put(self, message: InFlightMessage) -> None:
        """Add a message to be settled."""
        with self._changed:
            self._of(message).append(message)
            self._changed.notify()

    def put_back(self, message: InFlightMessage, at: float) -> None:
        """Add a message to be settled again at a time, because a call failed."""
        with self._changed:
            heapq.heappush(self._later, (at, next(self._numbers), message))

    def take(self, linger: float) -> list[InFlightMessage]:
        """Return messages that one call settles, the oldest first; empty: there are none.

        Acks wait `linger` seconds for others, until there are ten. Tell `called` after the call.
        """
        with self._changed:
            now = self._now()
            while self._later and self._later[0][0] <= now:
                message = heapq.heappop(self._later)[2]
                # the first of its kind again: it has waited longest
                self._of(message).appendleft(message)

            ready = [kind for kind in self._kinds if self._at(kind, linger) <= now]
            if not ready:
                return []
            kind = min(ready, key=lambda kind: self._kinds[kind][0].since)

            count = 1
            if kind in _TOGETHER:
                # two such calls at once would write the same row of an ordered shard
                self._calls += 1
                count = ORDERED_CALL_SIZE if self.ordered else CALL_SIZE

            there = self._kinds[kind]
            return [there.popleft() for _ in range(min(count, len(there)))]

    def called(self, messages: Sequence[InFlightMessage]) -> None:
        """Note the end of the call for messages that were taken."""
        with self._changed:
            if messages[0].outcome is not None and messages[0].outcome.kind in _TOGETHER:
                self._calls -= 1
                self._changed.notify()

    def next(self, linger: float) -> float:
        """Return when the next message can be settled; infinity: there is none."""
        with self._changed:
            later = self._later[0][0] if self._later else math.inf
            return min([later, *(self._at(kind, linger) for kind in self._kinds)])

    def wait(self, linger: float, timeout: float) -> None:
        """Wait until a message can be settled or `wake`; so many seconds at most."""
        with self._changed:
            pause = self.next(linger) - self._now()
            if pause > 0:
                self._changed.wait(min(pause, timeout))

    def wake(self) -> None:
        """End the wait of all threads."""
        with self._changed:
            self._changed.notify_all()

    def _of(self, message: InFlightMessage) -> deque[InFlightMessage]:
        kind = "" if message.outcome is None else message.outcome.kind
        return self._kinds.setdefault(kind, deque())

    def _at(self, kind: str, linger: float) -> float:
        """Return when messages of a kind can be settled."""
        there = self._kinds[kind]
        if not there or (self.ordered and self._calls and kind in _TOGETHER):
            return math.inf
        waits = kind == "ack" and len(there) < ENOUGH
        return there[0].since + linger if waits else there[0].since
