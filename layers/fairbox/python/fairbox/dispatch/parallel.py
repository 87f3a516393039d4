"""Many independent calls of one invocation: one after the other, or in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final

Run = Callable[[Sequence[Callable[[], None]]], None]
"""A way to make calls; the first error is raised when all have ended."""
THREADS: Final = 16


def one_by_one(calls: Sequence[Callable[[], None]]) -> None:
    """Make one call after the other: for simulations and tests."""
    for call in calls:
        call()


def in_threads(calls: Sequence[Callable[[], None]], threads: int = THREADS) -> None:
    """Make up to so many calls at a time, each with the caller's bounds of time."""
    if len(calls) < 2:
        one_by_one(calls)
        return
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(copy_context().run, call) for call in calls]
    for future in futures:
        future.result()
