"""SIGTERM and SIGINT while something runs in the main thread."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_signals(call: Callable[[], None]) -> Iterator[None]:
    """Call `call` at each of both signals meanwhile; in other threads than the main one, never.

    `call` interrupts the main thread anywhere, so it may take no lock that this thread takes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupted(_number: int, _frame: Any) -> None:
        call()

    before = {number: signal.signal(number, interrupted) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: a handler that Python did not set and cannot set again
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
