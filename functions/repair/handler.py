"""Repair: each hour, given-up batches again, then a slow scan for what no shard row knows."""

from __future__ import annotations

import logging
from dataclasses import asdict
from functools import cache
from typing import Any

from fairbox.dispatch.marking import Marking
from fairbox.dispatch.repair import Repair
from fairbox.dynamodb.archive import FirehoseArchive
from fairbox.dynamodb.failures import S3Failures
from fairbox.dynamodb.repairs import RepairTable
from fairbox.wiring import Application

logger = logging.getLogger("fairbox")


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@cache
def repair() -> Repair:
    """Return this process's repair."""
    app = application()
    archive = FirehoseArchive(app.client("firehose"), app.archive_stream, app.clock)
    return Repair(
        store=app.store,
        marking_store=app.store,
        cursor_store=RepairTable(app.tables),
        marking=Marking(app.store, archive, app.clock, app.acks),
        given_up=S3Failures(app.s3, app.failures_bucket),
        doorbells=app.doorbells,
        clock=app.clock,
    )


def handler(_event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Repair until the end of the table or shortly before the time limit."""
    app = application()
    deadline = app.clock.now() + context.get_remaining_time_in_millis() / 1000 - 30
    figures = asdict(repair().run(deadline=deadline))
    logger.info("repair ran", extra=figures)
    return figures
