"""Relay: the outbox table's stream to destinations."""

from __future__ import annotations

from functools import cache
from typing import Any

from fairbox.dispatch.record_relay import Relay
from fairbox.observability.metrics import NEWER, RUNG, UNREADABLE
from fairbox.runtime.function_application import Application
from fairbox.runtime.function_process import ends_in_time, make_at_start


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@cache
def relay() -> Relay:
    """Return this process's relay."""
    return Relay(application().dispatcher)


@ends_in_time(application)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Deliver a batch of stream records; a destination's failure never fails a record."""
    app = application()
    # half of the remaining time is kept for deletes and doorbells
    deadline = app.clock.now() + context.get_remaining_time_in_millis() / 2000
    report = relay().handle(event["Records"], deadline=deadline)
    app.report([report.delivery.metrics])
    figures = {RUNG: report.rung, UNREADABLE: report.unreadable, NEWER: report.newer}
    app.metrics.emit(figures, zeros=False)
    # what was not sent stays in the table: visits and the sweep take it up
    return {"batchItemFailures": []}


make_at_start(relay)
