"""Mark delivered: every message record to the ledger, the archive, the counts and the index."""

from __future__ import annotations

from functools import cache
from typing import Any

from fairbox.dispatch.stream.marking import Marking
from fairbox.observability.metrics import UNREADABLE
from fairbox.runtime.application import Application
from fairbox.runtime.time_limit import ends_in_time


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@cache
def marking() -> Marking:
    """Return this process's marking."""
    app = application()
    return Marking(app.store, app.archive, app.clock, app.acks)


@ends_in_time(application)
def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Mark a batch of stream records; after any error the whole batch comes again."""
    report = marking().handle(event["Records"])
    if report.unreadable:
        application().metrics.emit({UNREADABLE: report.unreadable})
    return {"batchItemFailures": []}
