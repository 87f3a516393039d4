"""Sweep: each minute, visits for shards with overdue messages."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from fairbox.dispatch.calls import in_threads
from fairbox.dispatch.maintenance.sweep import Sweep
from fairbox.observability.metrics import NEWER, RUNG
from fairbox.runtime.application import Application
from fairbox.runtime.time_limit import ends_in_time

logger = logging.getLogger("fairbox")


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@cache
def sweep() -> Sweep:
    """Return this process's sweep, which knows the shards that it has not reached."""
    app = application()
    return Sweep(app.store, app.doorbells, app.clock, run=in_threads)


@ends_in_time(application)
def handler(_event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Check the shards that are due, and enqueue visits of overdue ones."""
    app = application()
    deadline = app.clock.now() + context.get_remaining_time_in_millis() / 1000 - 10
    report = sweep().run(deadline=deadline)
    figures = {RUNG: report.rung, NEWER: report.newer}
    app.metrics.emit({name: value for name, value in figures.items() if value})
    rest = {"remaining": report.remaining, "seconds_to_all": report.seconds_to_all}
    if report.remaining:
        logger.warning("shards are left to the next sweep", extra=rest)
    return {"looked": report.looked, "rung": report.rung, "unfinished": report.unfinished} | rest
