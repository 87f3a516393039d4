"""Parallel scans: the pages of several segments, as they come."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox.tables.calls import Calls


def parallel_scan(
    calls: Calls, arguments: Callable[[int, int], dict[str, Any]], *, concurrency: int
) -> Iterator[dict[str, Any]]:
    """Yield the items of a table, in no order, reading `concurrency` segments at a time.

    At most one page of each segment is held. `arguments` gives the scan's for (segment, segments).
    """
    if concurrency == 1:
        for page in calls.pages("scan", **arguments(0, 1)):
            yield from page["Items"]
        return

    def scan(request: dict[str, Any]) -> Future[dict[str, Any]]:
        # how long calls may be made (`calls_until`) holds in these threads too
        return pool.submit(copy_context().run, partial(calls.call, "scan", **request))

    with ThreadPoolExecutor(concurrency) as pool:
        running: dict[Future[dict[str, Any]], dict[str, Any]] = {}
        for segment in range(concurrency):
            request = arguments(segment, concurrency)
            running[scan(request)] = request
        try:
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    request = running.pop(future)
                    page = future.result()
                    if "LastEvaluatedKey" in page:
                        # the next page is read while this one is worked on
                        request = request | {"ExclusiveStartKey": page["LastEvaluatedKey"]}
                        running[scan(request)] = request
                    yield from page["Items"]
        finally:
            # a caller that stops early waits for no page that has not begun
            for future in running:
                future.cancel()
