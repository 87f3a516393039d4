"""Sweep: each minute, visits for shards with overdue messages, and the end of expired ones."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from fairbox.dispatch.maintenance.expiry import Expiry
from fairbox.dispatch.maintenance.shard_sweep import Sweep
from fairbox.dispatch.parallel import in_threads
from fairbox.observability.metrics import EXPIRED, NEWER, RUNG
from fairbox.runtime.function_application import Application
from fairbox.runtime.function_process import ends_in_time, make_at_start

logger = logging.getLogger("fairbox")


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@cache
def sweep() -> Sweep:
    """Return this process's sweep, which knows the shards that it has not reached."""
    app = application()
    expiry = Expiry(app.tables, app.clock, run=in_threads)
    return Sweep(app.tables, app.doorbells, app.clock, run=in_threads, expiry=expiry)


@ends_in_time(application)
def handler(_event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Check the shards that are due: enqueue visits of overdue ones, remove expired messages."""
    app = application()
    # 10 s for the calls that are under way
    deadline = app.clock.now() + context.get_remaining_time_in_millis() / 1000 - 10
    report = sweep().run(deadline=deadline)

    for topic, count in report.expired.items():
        state = app.tables.topic_cache.get(topic)
        partition = None if state is None else state.topic.partition
        app.metrics.emit({EXPIRED: count}, topic=topic, partition=partition)

    expired = sum(report.expired.values())
    figures = {RUNG: report.rung, NEWER: report.newer, EXPIRED: expired}
    app.metrics.emit(figures, zeros=False)

    rest = {"remaining": report.remaining, "seconds_to_all": report.seconds_to_all}
    if report.remaining:
        logger.warning("shards are left to the next sweep", extra=rest)
    if report.unexpired:
        left = {"remaining": report.unexpired}
        logger.warning("expired messages of shards are left to the next sweep", extra=left)

    done = {"looked": report.looked, "rung": report.rung, "expired": expired}
    return done | {"unfinished": report.unfinished} | rest


make_at_start(sweep)
