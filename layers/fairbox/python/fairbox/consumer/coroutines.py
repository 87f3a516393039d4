"""The event loop of a consumer, on which the coroutines of its handlers run."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable

CLEANUP_SECONDS: Final = 5.0
"""Seconds that a cancelled coroutine has to clean up, before its message is failed without it."""


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


class HandlerLoop:
    """One event loop in a thread of its own, which starts with the first coroutine.

    Args:
        time_limit: seconds after which a coroutine is cancelled; None: never.
    """

    def __init__(self, time_limit: float | None = None) -> None:
        self._time_limit = time_limit
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, awaitable: Awaitable[object]) -> object:
        """Await on the loop, from a worker's thread; return its result, or raise its error.

        Raises:
            TimeoutError: the time limit passed, and the coroutine was cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(self._awaited(awaitable), self._started())
        answer = future.result()
        if isinstance(answer, _Raised):
            raise answer.error
        return answer

    def close(self) -> None:
        """Cancel the coroutines that still run, and end the loop."""
        with self._lock:
            # a coroutine that comes later starts another loop
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(_cancel_all(), loop)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_run, args=(self._loop,), name="handlers", daemon=True
                )
                thread.start()
            return self._loop

    async def _awaited(self, awaitable: Awaitable[object]) -> object:
        timeout = asyncio.timeout(self._time_limit)
        try:
            async with timeout:
                return await awaitable
        except BaseException as error:  # noqa: BLE001 - an exit raised here would end the loop
            late = timeout.expired() and isinstance(error, TimeoutError)
            return _Raised(over_limit(self._time_limit) if late else error)


def over_limit(seconds: float | None) -> TimeoutError:
    """Return the error of a handler that took longer than its time limit."""
    return TimeoutError(f"the handler took over {seconds} s")


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _cancel_all() -> None:
    # not this one, which would cancel itself
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=CLEANUP_SECONDS)
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.stop)
