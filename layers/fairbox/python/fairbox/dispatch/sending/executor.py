"""Running calls: one after the other, or at once without a slow one keeping a fast one waiting."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from concurrent.futures import Future

SLOTS: Final = 8
"""Calls that begin while none of them has been running for long."""
PATIENCE: Final = 0.1
"""Seconds after which a call gives its slot to another, and goes on without one."""
MOST: Final = 64
"""Calls that run at once, slow ones among them."""
Finish = Callable[[], None]
"""What is to be done with a call's answer."""
Call = Callable[[], Finish]
Begin = Callable[[], Sequence[Call]]


def in_turn(begin: Begin) -> None:
    """Make one call after the other: for simulations and tests. As `at_once`."""
    while calls := begin():
        for call in calls:
            call()()


def at_once(begin: Begin) -> None:
    """Make calls in threads until there are no more.

    Eight are begun at once. One that takes over 0.1 s keeps no other from beginning, up to 64: so
    slow destinations do not hold the places that fast ones wait for.

    Args:
        begin: gives the calls that may begin now; asked again each time that one has ended. A call
            returns what is to be done with its answer, which is done in the caller's thread.
    """
    waiting = deque(begin())
    if not waiting:
        return
    running: dict[Future[Finish], float] = {}
    with ThreadPoolExecutor(MOST) as pool:
        while waiting or running:
            now = time.monotonic()
            fresh = [began for began in running.values() if now - began < PATIENCE]
            while waiting and len(fresh) < SLOTS and len(running) < MOST:
                running[pool.submit(waiting.popleft())] = now
                fresh.append(now)
            give_way = min(fresh) + PATIENCE - now if waiting and fresh else None
            done, _ = wait(running, timeout=give_way, return_when=FIRST_COMPLETED)
            for future in done:
                del running[future]
                future.result()()
            if done:
                waiting.extend(begin())
