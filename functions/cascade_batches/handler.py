"""Cascade batches: the batches' stream to cascades that a crash or a burst left undone."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from fairbox.dispatch.stream.batch_records import cascade_records
from fairbox.observability.metrics import BATCHES_COMPLETED, BATCHES_ORPHANED, UNREADABLE
from fairbox.runtime.application import Application

logger = logging.getLogger("fairbox")


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Clear and tell what the records show; what is not done comes again, with all behind it."""
    app = application()
    deadline = app.clock.now() + context.get_remaining_time_in_millis() / 2000
    report = cascade_records(event["Records"], app.keeper, deadline=deadline)
    figures = {
        BATCHES_COMPLETED: report.ended["complete"],
        BATCHES_ORPHANED: report.ended["reaped"],
        UNREADABLE: report.unreadable,
    }
    app.metrics.emit({name: value for name, value in figures.items() if value})
    for error in report.errors[:1]:
        logger.warning("a cascade will be tried again", extra={"error": error})
    if report.again is None:
        return {"batchItemFailures": []}
    return {"batchItemFailures": [{"itemIdentifier": report.again}]}
