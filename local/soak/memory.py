"""Samples of the memory of processes and its growth over a run."""

from __future__ import annotations

import threading
import time
from array import array
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

import psutil

from local.soak.phases import RECOVERED, STEADY
from local.soak.trends import Trend, trend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local.soak.phases import Phase

MEGABYTE: Final = 1024 * 1024
HOUR: Final = 3600.0


def resident(pid: int) -> int | None:
    """Return the resident bytes of a process; None: it has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return None


@dataclass
class Sampler:
    """Samples every process periodically, in a thread of its own.

    Args:
        pids: returns the running processes as (name, process id).
        seconds: between two samples.
        clock: monotonic seconds.
    """

    pids: Callable[[], Sequence[tuple[str, int]]]
    seconds: float
    clock: Callable[[], float] = time.monotonic
    times: dict[tuple[str, int], array[float]] = field(default_factory=dict)
    bytes: dict[tuple[str, int], array[int]] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start sampling."""
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self.seconds):
            self.sample()

    def sample(self) -> None:
        """Take one sample of every process."""
        now = self.clock()
        for name, pid in self.pids():
            taken = resident(pid)
            if taken:  # a process that has just ended has no memory
                self.times.setdefault((name, pid), array("d")).append(now)
                self.bytes.setdefault((name, pid), array("q")).append(taken)

    def series(self) -> dict[tuple[str, int], list[tuple[float, float]]]:
        """Return the samples (seconds, bytes) of each process."""
        return {
            one: list(zip(self.times[one], map(float, self.bytes[one]), strict=True))
            for one in self.times
        }


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one process over the steady phases before and after the overload.

    `growth` is in MB an hour, None if the process did not live long enough; the levels are
    medians in MB, None if there are no samples.
    """

    name: str
    pid: int
    growth: Trend | None
    before: float | None
    after: float | None
    most: float

    @property
    def ratio(self) -> float | None:
        """The level after the overload divided by the level before it."""
        return self.after / self.before if self.before and self.after else None


def memories(
    series: Mapping[tuple[str, int], Sequence[tuple[float, float]]], phases: Mapping[str, Phase]
) -> list[Memory]:
    """Return each process's memory, by name.

    Growth is measured within the phases before and after the overload. Memory that the overload
    takes and keeps is a step between them, which the levels show.
    """
    found = []
    for (name, pid), samples in sorted(series.items()):
        parts = [
            [(at / HOUR, size / MEGABYTE) for at, size in samples if phases[phase].measures(at)]
            for phase in (STEADY, RECOVERED)
        ]
        before, after = (median(size for _, size in p) if p else None for p in parts)
        most = max(size for _, size in samples) / MEGABYTE
        found.append(Memory(name, pid, trend(parts), before, after, most))
    return found
