"""Threads of an invocation in simulated time: they stand where the ones of Python stand."""

from __future__ import annotations

from collections import deque
from concurrent.futures import FIRST_COMPLETED
from contextlib import contextmanager
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Self

from fairbox.dispatch.dispatcher import run_concurrently
from fairbox.dispatch.sending import bodies_in_hand
from greenlet import getcurrent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from fairbox.dispatch.sending.sender import FanOut
    from greenlet import greenlet

    from fairbox_simulation.load.timeline import Timeline


_LEAST_SECONDS: Final = 0.001


class _Future:
    """The result of a task, or what it raised."""

    def __init__(self) -> None:
        self.done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self.waiting: list[greenlet] = []

    def finish(self, result: Any, error: BaseException | None) -> None:
        self.done, self._result, self._error = True, result, error

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


class Threads:
    """Makes what shipped code asks of threads.

    Args:
        timeline: in which they run.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def fan_out(self) -> FanOut:
        """Return the shipped `run_concurrently`, on these threads and this time."""
        shipped: Any = run_concurrently
        stand_ins = {
            "ThreadPoolExecutor": partial(_Pool, self._timeline),
            "wait": self._wait,
            "time": SimpleNamespace(monotonic=self._timeline.clock.now),
        }
        names = {**shipped.__globals__, **stand_ins}
        return FunctionType(shipped.__code__, names, shipped.__name__)

    def run_all(self, calls: Sequence[Callable[[], object]]) -> None:
        """Make independent calls sixteen at a time, as `fairbox.dispatch.parallel.in_threads`."""
        left = deque(calls)

        def work() -> None:
            while left:
                left.popleft()()

        with _Pool(self._timeline, 16) as pool:
            self._wait([pool.submit(work) for _ in range(min(16, len(left)))], all_=True)

    @contextmanager
    def conditions(self) -> Iterator[None]:
        """Let shipped code that waits for bytes in hand wait in simulated time."""
        module: Any = bodies_in_hand
        shipped = module.threading
        conditions = partial(_Condition, self._timeline)
        module.threading = SimpleNamespace(Condition=conditions, Lock=shipped.Lock)
        try:
            yield
        finally:
            module.threading = shipped

    def _wait(
        self,
        futures: Collection[_Future],
        timeout: float | None = None,
        return_when: str = FIRST_COMPLETED,
        *,
        all_: bool = False,
    ) -> tuple[list[_Future], list[_Future]]:
        clock, me = self._timeline.clock, getcurrent()
        # a clock of seconds since 1970 cannot tell less than a microsecond
        until = None if timeout is None else clock.now() + max(timeout, _LEAST_SECONDS)
        enough = all if all_ else any
        while not enough(f.done for f in futures) and (until is None or clock.now() < until):
            for future in futures:
                future.waiting.append(me)
            self._timeline.park(until)
            for future in futures:
                if me in future.waiting:
                    future.waiting.remove(me)
        done = [f for f in futures if f.done]  # a list: sets have no order that a seed repeats
        return done, [f for f in futures if not f.done]


class _Pool:
    """A pool of threads that has always one more."""

    def __init__(self, timeline: Timeline, most: int) -> None:
        self._timeline = timeline
        self._most = most

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it: whoever uses it has waited for all of its calls."""

    def submit(self, work: Callable[..., Any], *given: Any) -> _Future:
        future = _Future()

        def run() -> None:
            try:
                future.finish(work(*given), None)
            except Exception as error:  # noqa: BLE001 - the caller's
                future.finish(None, error)
            for task in future.waiting:
                self._timeline.wake(task)
            future.waiting.clear()

        task = self._timeline.start(run)
        task.invocation = getattr(getcurrent(), "invocation", None)
        return future


class _Condition:
    """A condition variable; nothing else runs while its lock is held, because nothing sleeps."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._waiting: list[greenlet] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""

    def wait(self, timeout: float) -> None:
        me = getcurrent()
        self._waiting.append(me)
        self._timeline.park(self._timeline.clock.now() + timeout)
        if me in self._waiting:
            self._waiting.remove(me)

    def notify_all(self) -> None:
        for task in self._waiting:
            self._timeline.wake(task)
        self._waiting.clear()
