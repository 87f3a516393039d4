"""A bound on handlers at a time, over several consumers of one process."""

from __future__ import annotations

import threading

from fairbox.consumer.options import MAX_CONCURRENCY
from fairbox.errors import InvalidInput


class Permits:
    """So many handlers run at a time, whichever consumer they belong to.

    Args:
        count: 1 to 1,000.
    """

    def __init__(self, count: int) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1000:
            raise InvalidInput("concurrency_cap", f"a whole number from 1 to {MAX_CONCURRENCY:,}")
        self.count = count
        self._semaphore = threading.Semaphore(count)

    def acquire(self, timeout: float) -> bool:
        """Wait for a permit, so many seconds at most; return whether it was had."""
        return self._semaphore.acquire(timeout=timeout)

    def release(self) -> None:
        """Give a permit back."""
        self._semaphore.release()
