"""The messages in flight of a consumer: waiting for a worker, being handled, or done."""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fairbox.consumer.outcomes import RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.consumer.outcomes import Outcome
    from fairbox.consumer.ports import Received


@dataclass(slots=True, eq=False)
class InFlightMessage:
    """One message in hand; times are seconds of the consumer's clock.

    Attributes:
        received: the message and its receipt.
        until: the earliest end of its visibility.
        extend_at: the time of the next heartbeat.
        since: the time of its last change of state.
        state: it waits for a worker, is being handled, or is to be settled.
        outcome: the outcome of its handler.
        settle_at: the time of the next try to settle it.
        lost: its receipt is stale: another consumer may hold it.
        hangs: its handler took too long, and it is no longer extended.
    """

    received: Received
    until: float
    extend_at: float
    since: float
    state: Literal["waiting", "running", "done"] = "waiting"
    outcome: Outcome | None = None
    settle_at: float = 0.0
    lost: bool = False
    hangs: bool = False

    @property
    def receipt(self) -> str:
        """Its receipt."""
        return self.received.receipt


class InFlight:
    """The messages in hand; every method may be called from any thread.

    Args:
        concurrency: maximum number handled at a time.
        prefetch: maximum number that wait in addition.
        now: seconds that never go back.

    Attributes:
        closed: nothing more is taken in hand.
        ended: its threads are to end.
        version: grows with every change that receiver or keeper wait for.
    """

    def __init__(self, concurrency: int, prefetch: int, now: Callable[[], float]) -> None:
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._now = now
        self._waiting: deque[InFlightMessage] = deque()
        self._held: set[InFlightMessage] = set()
        self._late: set[InFlightMessage] = set()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._work = threading.Condition(lock)
        self.closed = False
        self.ended = False
        self.version = 0

    def __len__(self) -> int:
        """Return the number of messages in hand."""
        return len(self._held)

    @property
    def late(self) -> int:
        """The number of handlers that still run after their time limit."""
        return len(self._late)

    def room(self) -> int:
        """Return the number of messages wanted: 0 until half of the prefetch is used up.

        If every worker hangs, none are wanted.
        """
        with self._changed:
            if self.closed or len(self._waiting) * 2 > self._prefetch or self._all_hang():
                return 0
            free = self._concurrency - len(self._late)
            return max(0, free + self._prefetch - len(self._held - self._late))

    def put(self, received: Received, until: float, extend_at: float) -> None:
        """Take a message in hand; once closed, to release it."""
        with self._changed:
            held = InFlightMessage(received, until, extend_at, self._now())
            self._held.add(held)
            self._waiting.append(held)
            if self.closed:
                self._release_waiting()
            else:
                self._work.notify()

    def take(self) -> InFlightMessage | None:
        """Return the next message to handle; None if none waits."""
        with self._changed:
            if not self._waiting:
                return None
            held = self._waiting.popleft()
            held.state, held.since = "running", self._now()
            self._note()
            return held

    def finish(self, held: InFlightMessage, outcome: Outcome) -> None:
        """Note the outcome of a message, unless it was settled without its handler."""
        with self._changed:
            if held in self._late:
                self._late.discard(held)
                self._note()
            self._finish(held, outcome)

    def time_out(self, held: InFlightMessage, outcome: Outcome) -> None:
        """Settle a message whose handler still runs; its worker is busy until that returns."""
        with self._changed:
            if held.state == "running":
                self._late.add(held)
                self._finish(held, outcome)
                if self._all_hang():
                    self._release_waiting()

    def extended(self, held: InFlightMessage, until: float, extend_at: float) -> None:
        """Note the new end of a message's visibility, and the time of the next extension."""
        with self._changed:
            held.until, held.extend_at = until, extend_at

    def lose(self, held: InFlightMessage) -> None:
        """Drop a message with a stale receipt; its worker is free when its handler returns."""
        with self._changed:
            held.lost, held.extend_at = True, math.inf
            if held.state == "waiting":
                self._waiting.remove(held)
            if held.state != "running":
                self._held.discard(held)
            self._note()

    def settled(self, held: InFlightMessage) -> None:
        """Drop a settled message."""
        with self._changed:
            self._held.discard(held)
            self._note()

    def give_up(self, held: InFlightMessage) -> None:
        """Stop extending a message; if every worker hangs, release the waiting messages."""
        with self._changed:
            held.hangs, held.extend_at = True, math.inf
            if self._all_hang():
                self._release_waiting()

    def all(self) -> list[InFlightMessage]:
        """Return the messages in hand, those longest in their state first."""
        with self._changed:
            return sorted(self._held, key=lambda held: held.since)

    def close(self) -> None:
        """Take no more messages; release the waiting ones."""
        with self._changed:
            self.closed = True
            self._release_waiting()
            self._note()

    def abandon(self, outcome: Outcome) -> list[InFlightMessage]:
        """Settle the messages being handled without their handlers; return them."""
        with self._changed:
            running = [held for held in self._held if held.state == "running"]
            for held in running:
                self._finish(held, outcome)
            return running

    def end(self) -> None:
        """Let every thread go."""
        with self._changed:
            self.closed = self.ended = True
            self._work.notify_all()
            self._note()

    def wait(self, timeout: float, seen: int) -> None:
        """Wait for a change since version `seen`, so many seconds at most."""
        with self._changed:
            if self.version == seen and not self.ended:
                self._changed.wait(timeout)

    def wait_for_work(self, timeout: float) -> bool:
        """Wait until a message waits for a worker; return whether one does."""
        with self._work:
            if not self._waiting and not self.ended:
                self._work.wait(timeout)
            return bool(self._waiting)

    def _finish(self, held: InFlightMessage, outcome: Outcome) -> None:
        if held.state == "running":
            held.state, held.since, held.outcome = "done", self._now(), outcome
            self._note()

    def _note(self) -> None:
        self.version += 1
        self._changed.notify_all()

    def _all_hang(self) -> bool:
        hanging = sum(held.hangs and held.state == "running" for held in self._held)
        return hanging + len(self._late) >= self._concurrency

    def _release_waiting(self) -> None:
        for held in self._waiting:
            held.state, held.since, held.outcome = "done", self._now(), RELEASE
        if self._waiting:
            self._waiting.clear()
            self._note()
