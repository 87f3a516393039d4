"""Mark delivered: every message record to the ledger, the archive, the counts and the index."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, Final

from fairbox.aws.s3_failures import S3Failures
from fairbox.dispatch.parallel import in_threads
from fairbox.dispatch.stream.marking import Marking
from fairbox.observability.metrics import NEWER, UNREADABLE
from fairbox.runtime.function_application import Application
from fairbox.runtime.function_process import ends_in_time, make_at_start

logger = logging.getLogger("fairbox")

SPARE_SECONDS: Final = 15.0
"""Of the time limit, for the calls that run when the time is over, and to set records aside."""


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@cache
def marking() -> Marking:
    """Return this process's marking."""
    app = application()
    return Marking(
        app.tables,
        app.archive,
        app.clock,
        app.acks,
        aside=S3Failures(lambda: app.s3, app.failures_bucket),
        run=in_threads,
        bodies=app.archive_bodies,
    )


@ends_in_time(application)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Mark a batch of stream records; after any error the whole batch comes again."""
    app = application()
    deadline = app.clock.now() + context.get_remaining_time_in_millis() / 1000 - SPARE_SECONDS
    report = marking().handle(event["Records"], deadline=deadline)
    app.metrics.emit({UNREADABLE: report.unreadable, NEWER: report.newer}, zeros=False)
    for name in report.kept:
        logger.warning("stream records were set aside for repair", extra={"object": name})
    return {"batchItemFailures": []}


make_at_start(marking)
