"""Cascade batches: finish cascades that a crash or a burst left to the batches' stream."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from fairbox.observability.metrics import BATCHES_COMPLETED, BATCHES_ORPHANED, UNREADABLE
from fairbox.runtime.function_application import Application
from fairbox.runtime.function_process import ends_in_time, make_at_start

logger = logging.getLogger("fairbox")


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@ends_in_time(application)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Cascade what the records show; the first one not done comes again, with all behind it."""
    app = application()
    # half of what is left is kept for the call under way and its tries
    deadline = app.clock.now() + context.get_remaining_time_in_millis() / 2000
    report = app.keeper.cascade_records(event["Records"], deadline=deadline)

    figures = {
        BATCHES_COMPLETED: report.ended["complete"],
        BATCHES_ORPHANED: report.ended["reaped"],
        UNREADABLE: report.unreadable,
    }
    app.metrics.emit(figures, zeros=False)
    # one line for all: a service that is away fails them all alike
    for error in report.errors[:1]:
        logger.warning("a cascade will be tried again", extra={"error": error})

    if report.again is None:
        return {"batchItemFailures": []}
    return {"batchItemFailures": [{"itemIdentifier": report.again}]}


make_at_start(lambda: application().keeper)
