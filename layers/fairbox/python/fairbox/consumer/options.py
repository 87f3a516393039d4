"""The bounds of a consumer: its settings, a cap that several share, its lifetime, and signals."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from queue import SimpleQueue

MAX_CONCURRENCY: Final = 1_000
MAX_VISIBILITY_SECONDS: Final = 12 * 3600
MIN_RECEIVE: Final = 10
MAX_RECEIVE: Final = 100
"""Messages of one receive: ten, or a quarter of the workers, a hundred at most."""
CALL_SIZE: Final = 25
"""Receipts of one call: as many as one call of DynamoDB takes."""
ORDERED_CALL_SIZE: Final = 100
"""Receipts of one call on an ordered topic, which writes each shard's row once."""
MAX_RATE: Final = 1_000_000
MAX_SETTLERS: Final = 8
MESSAGES_A_SETTLER: Final = 50
MESSAGES_A_SECOND: Final = 400
"""Messages in hand for each second of visibility, so that all are extended in time."""
TICK_SECONDS: Final = 1.0
"""Maximum wait of the main thread: a signal just before a wait is handled only after it."""
_Order = TypeVar("_Order")
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The settings of a consumer, as `Consumer` takes them, except that prefetch is a number."""

    concurrency: int = 4
    visibility_timeout: float = 30
    max_attempts: int = 10
    prefetch: int = 4
    shutdown_timeout: float = 30.0
    processing_limit: float = 3600.0
    idle: float = 2.0
    linger: float = 0.05
    time_limit: float | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        _whole("concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        _whole("max_attempts", self.max_attempts, 1, 1000)
        _whole("prefetch", self.prefetch, 0, 1000)
        least = max(1, (self.concurrency + self.prefetch) / MESSAGES_A_SECOND)
        _seconds("visibility_timeout", self.visibility_timeout, least, MAX_VISIBILITY_SECONDS)
        _seconds("shutdown_timeout", self.shutdown_timeout, 0, 24 * 3600)
        _seconds("processing_limit", self.processing_limit, 1, 7 * 24 * 3600)
        _seconds("idle", self.idle, 0.01, 3600)
        if self.time_limit is not None:
            _seconds("time_limit", self.time_limit, 0.01, self.processing_limit)
        _seconds("linger", self.linger, 0, self.visibility_timeout / 3)
        if self.rate is not None and not (_is_number(self.rate) and 0 < self.rate <= MAX_RATE):
            raise InvalidInput("rate", f"messages a second, over 0 and up to {MAX_RATE:,}")

    @property
    def heartbeat(self) -> float:
        """Seconds between two extensions of a message."""
        return self.visibility_timeout / 3

    @property
    def turn(self) -> float:
        """Seconds before its turn by the rate that a message may be claimed: never extended."""
        return self.heartbeat / 2

    @property
    def receive_size(self) -> int:
        """Messages of one receive."""
        return min(MAX_RECEIVE, max(MIN_RECEIVE, self.concurrency // 4))

    @property
    def settlers(self) -> int:
        """Threads that settle messages."""
        return min(MAX_SETTLERS, 1 + (self.concurrency + self.prefetch) // MESSAGES_A_SETTLER)

    @property
    def extenders(self) -> int:
        """Threads that extend messages; one at least can while another one's call takes long."""
        return self.settlers + 1


def _whole(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(name, f"a whole number from {low} to {high:,}")


def _seconds(name: str, value: float, low: float, high: float) -> None:
    if not _is_number(value) or not low <= value <= high:
        raise InvalidInput(name, f"seconds from {low:g} to {high:g}")


def _is_number(value: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Permits:
    """A limit on concurrent handlers that several consumers share.

    Args:
        count: 1 to 1,000.
    """

    def __init__(self, count: int) -> None:
        _whole("concurrency_cap", count, 1, MAX_CONCURRENCY)
        self.count = count
        self._semaphore = threading.Semaphore(count)

    def acquire(self, timeout: float) -> bool:
        """Wait for a permit, so many seconds at most; return whether there was one."""
        return self._semaphore.acquire(timeout=timeout)

    def release(self) -> None:
        """Give a permit back."""
        self._semaphore.release()


class Lifetime:
    """The state of a consumer or a group: whether it can run, and whether a stop was asked for.

    `stopped` is set without a lock, because a signal handler may do so.
    """

    def __init__(self, field: str) -> None:
        self._field = field  # the name in errors
        self._lock = threading.Lock()
        self.new = True
        self.stopped = False

    @contextmanager
    def run(self, *, parts: bool = True, again: bool = False) -> Iterator[None]:
        """Hold the state of a run within the block.

        Args:
            parts: whether all that runs with it can run.
            again: it can run again afterwards, unless it was stopped.

        Raises:
            InvalidInput: it runs, or it has run.
        """
        with self._lock:
            if not (self.new and parts):
                raise InvalidInput(self._field, "one that has not run; make another for each run")
            # under the lock: of two threads that start it, one is refused
            self.new = False
        try:
            yield
        finally:
            self.new = again and not self.stopped


@contextmanager
def on_signals(call: Callable[[bool], None], *, wanted: bool = True) -> Iterator[None]:
    """Call `call` at each SIGTERM and SIGINT within the block, with whether it is a further one.

    Only in the main thread, and if it is wanted. `call` may interrupt the main thread anywhere, so
    that it must not take a lock of this thread.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return

    asked = 0

    def interrupted(_number: int, _frame: Any) -> None:
        nonlocal asked
        asked += 1
        call(asked > 1)

    before = {number: signal.signal(number, interrupted) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: a handler that Python did not set and cannot set again
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def next_order(orders: SimpleQueue[_Order], seconds: float = TICK_SECONDS) -> _Order | None:
    """Wait for an order of a signal handler or a thread, a tick at most; None: there was none."""
    try:
        return orders.get(timeout=min(seconds, TICK_SECONDS))
    except Empty:
        return None
