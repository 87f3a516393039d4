"""What a consumer holds: messages that wait for a worker, are worked on, or are to be settled."""

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
class Held:
    """One message in hand; times are seconds of the consumer's clock.

    Attributes:
        received: the message and its receipt.
        until: when its visibility ends, at the earliest.
        extend_at: when the heartbeat is due.
        since: when it came into its state.
        state: it waits for a worker, is worked on, or is to be settled.
        outcome: what its handler made of it.
        settle_at: when settling it is tried again.
        lost: its receipt is stale: it is not ours any more.
        hangs: it was worked on for too long, and is extended no more.
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


class Hold:
    """The messages in hand; every method may be called from any thread.

    Args:
        concurrency: how many are worked on at a time.
        prefetch: how many may wait beside them.
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
        self._waiting: deque[Held] = deque()
        self._held: set[Held] = set()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._work = threading.Condition(lock)
        self.closed = False
        self.ended = False
        self.version = 0

    def __len__(self) -> int:
        """Return how many are held."""
        return len(self._held)

    def room(self) -> int:
        """Return how many messages are wanted: none until half of the prefetch is used up.

        Where every worker hangs nothing is wanted.
        """
        with self._changed:
            if self.closed or len(self._waiting) * 2 > self._prefetch or self._all_hang():
                return 0
            return max(0, self._concurrency + self._prefetch - len(self._held))

    def put(self, received: Received, until: float, extend_at: float) -> None:
        """Take a message in hand; once closed, to release it."""
        with self._changed:
            held = Held(received, until, extend_at, self._now())
            self._held.add(held)
            self._waiting.append(held)
            if self.closed:
                self._release_waiting()
            else:
                self._work.notify()

    def take(self) -> Held | None:
        """Return the next message to work on; None where none waits."""
        with self._changed:
            if not self._waiting:
                return None
            held = self._waiting.popleft()
            held.state, held.since = "running", self._now()
            self._note()
            return held

    def finish(self, held: Held, outcome: Outcome) -> None:
        """Note what becomes of a message, unless it was settled without its handler."""
        with self._changed:
            if held.state == "running":
                held.state, held.since, held.outcome = "done", self._now(), outcome
                self._note()

    def extended(self, held: Held, until: float, extend_at: float) -> None:
        """Note how long a message is ours, and when to extend it next."""
        with self._changed:
            held.until, held.extend_at = until, extend_at

    def lose(self, held: Held) -> None:
        """Let go of a message that is not ours any more; its worker is free when it is done."""
        with self._changed:
            held.lost, held.extend_at = True, math.inf
            if held.state == "waiting":
                self._waiting.remove(held)
            if held.state != "running":
                self._held.discard(held)
            self._note()

    def settled(self, held: Held) -> None:
        """Let go of a message that is settled."""
        with self._changed:
            self._held.discard(held)
            self._note()

    def give_up(self, held: Held) -> None:
        """Extend a message no more; where every worker hangs, release what waits."""
        with self._changed:
            held.hangs, held.extend_at = True, math.inf
            if self._all_hang():
                self._release_waiting()

    def all(self) -> list[Held]:
        """Return the messages in hand, those longest in their state first."""
        with self._changed:
            return sorted(self._held, key=lambda held: held.since)

    def close(self) -> None:
        """Take nothing more in hand; what waits is to be released."""
        with self._changed:
            self.closed = True
            self._release_waiting()
            self._note()

    def abandon(self, outcome: Outcome) -> list[Held]:
        """Settle what is worked on without its handlers; return it."""
        with self._changed:
            running = [held for held in self._held if held.state == "running"]
            for held in running:
                self.finish(held, outcome)
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

    def _note(self) -> None:
        self.version += 1
        self._changed.notify_all()

    def _all_hang(self) -> bool:
        hanging = sum(held.hangs and held.state == "running" for held in self._held)
        return hanging >= self._concurrency

    def _release_waiting(self) -> None:
        for held in self._waiting:
            held.state, held.since, held.outcome = "done", self._now(), RELEASE
        if self._waiting:
            self._waiting.clear()
            self._note()
