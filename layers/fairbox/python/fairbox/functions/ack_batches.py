"""Ack batches: turn a window of the ack queue into one write for each group of items."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from fairbox.batches.coalesced_acks import ack_messages
from fairbox.observability.metrics import BATCH_ACKS, BATCH_ACKS_DROPPED
from fairbox.runtime.function_application import Application
from fairbox.runtime.function_process import ends_in_time, make_at_start

logger = logging.getLogger("fairbox")


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@ends_in_time(application)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Ack the items that the messages name; messages with an id that is not done come again."""
    app = application()
    # half of what is left is kept for the call under way and its tries
    deadline = app.clock.now() + context.get_remaining_time_in_millis() / 2000

    messages = ((record["messageId"], record["body"]) for record in event["Records"])
    report = ack_messages(messages, app.keeper.coalesced, deadline=deadline)

    figures = {BATCH_ACKS: report.acked, BATCH_ACKS_DROPPED: report.dropped}
    app.metrics.emit(figures, zeros=False)

    if report.dropped:
        extra = {"dropped": report.dropped, "sample": report.sample}
        logger.warning("acks were dropped", extra=extra)
    # one line for all: a service that is away fails them all alike
    for error in report.errors[:1]:
        extra = {"failed": len(report.failed), "error": error}
        logger.warning("acks will be tried again", extra=extra)

    return {"batchItemFailures": [{"itemIdentifier": name} for name in report.failed]}


make_at_start(lambda: application().keeper)
