"""Simulated time in which many tasks run: each is a greenlet that sleeps until its time comes."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from fairbox.testing.manual_clock import ManualClock
from greenlet import getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable


class Task(greenlet):
    """A task in simulated time.

    Attributes:
        invocation: what stands for the invocation that it belongs to; None: none.
    """

    invocation: object = None


class Source(Protocol):
    """A source of invocations: a queue, a stream, a schedule."""

    def start(self) -> None:
        """Start the invocations for which there is work and room now."""
        ...

    def next_at(self) -> float:
        """Return when it should be asked again though no task has run; infinity: never."""
        ...


class TimelineClock(ManualClock):
    """The clock of a timeline: to sleep is to let the others run."""

    def __init__(self) -> None:
        super().__init__()
        self.timeline: Timeline | None = None

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> float:
        """Let so much time pass, and return the new time."""
        if self.timeline is None:
            return super().advance(seconds)
        self.timeline.sleep(seconds)
        return self.now()


class Timeline:
    """Tasks in simulated time. Whatever does not sleep takes none.

    Args:
        clock: the time of all tasks.

    Attributes:
        sources: start tasks whenever one has run.
    """

    def __init__(self, clock: TimelineClock) -> None:
        self.clock = clock
        self.sources: list[Source] = []
        self._main = getcurrent()
        self._due: list[tuple[float, int, greenlet]] = []
        self._numbers = count()
        self._turns: dict[greenlet, int] = {}  # the one entry of a task that counts
        clock.timeline = self

    def start(self, work: Callable[..., object], *given: Any) -> Task:
        """Start a task now; what it raises ends the run."""
        task = Task(lambda: work(*given), self._main)
        self.wake(task)
        return task

    def sleep(self, seconds: float) -> None:
        """Let so much time pass: for this task, or outside of any for the whole world."""
        until = self.clock.now() + seconds
        if getcurrent() is self._main:
            self.run(until)
        else:
            self.park(until)

    def park(self, until: float | None = None) -> None:
        """Stop this task until then, or until it is woken."""
        task = getcurrent()
        self._turns.pop(task, None)
        if until is not None:
            self.wake(task, until)
        self._main.switch()

    def wake(self, task: greenlet, at: float | None = None) -> None:
        """Let a task go on then, or now; an earlier time that was set counts no longer."""
        number = next(self._numbers)
        self._turns[task] = number
        heapq.heappush(self._due, (self.clock.now() if at is None else at, number, task))

    def run(self, until: float) -> None:
        """Run until then."""
        while (at := self._next_at()) <= until:
            self.clock.set(max(at, self.clock.now()))
            while self._due and self._due[0][0] <= self.clock.now():
                _, number, task = heapq.heappop(self._due)
                if self._turns.get(task) == number:
                    del self._turns[task]
                    task.switch()
        self.clock.set(max(until, self.clock.now()))

    def _next_at(self) -> float:
        for source in self.sources:
            source.start()
        now = self.clock.now()
        later = [source.next_at() for source in self.sources]
        if self._due:
            later.append(self._due[0][0])
        return max(now, min(later, default=float("inf")))
