"""The lifetime of a consumer or a group: it runs once, and a stop may come before the run."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator


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
