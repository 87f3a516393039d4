"""Clean orphans: each hour, check idle batches, reap orphans, erase ended batches."""

from __future__ import annotations

import logging
from dataclasses import asdict
from functools import cache
from typing import Any

from fairbox.observability.metrics import STALLED_BATCHES
from fairbox.runtime.function_application import Application
from fairbox.runtime.function_process import ends_in_time, make_at_start
from fairbox.settings import (
    CLEAN_ORPHANS_DRY_RUN,
    OPEN_BATCH_DAYS,
    SEALED_BATCH_DAYS,
    STALLED_BATCH_HOURS,
)

logger = logging.getLogger("fairbox")


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@ends_in_time(application)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Clean until shortly before the time limit; `{"dry_run": true}` reports and changes nothing.

    The answer is the report; the lists in it are cut to 100 ids.
    """
    app = application()
    settings = app.settings

    # a long cleanup leaves time for the count of stalled batches
    left = context.get_remaining_time_in_millis() / 1000
    now = app.clock.now()
    cleaned = app.keeper.cleanup.clean(
        deadline=now + left * 0.7,
        open_hours=24 * settings.whole(OPEN_BATCH_DAYS, 7),
        sealed_hours=24 * settings.whole(SEALED_BATCH_DAYS, 14),
        dry_run=event.get("dry_run") is True or settings.flag(CLEAN_ORPHANS_DRY_RUN),
    )

    stalled = app.keeper.statistics.stalled(
        settings.whole(STALLED_BATCH_HOURS, 24), deadline=now + left * 0.9
    )
    app.metrics.emit({STALLED_BATCHES: stalled.count})

    # the answer and the log line have limits, and counts tell the rest
    report = {k: v[:100] if isinstance(v, list) else v for k, v in asdict(cleaned).items()}
    counts = {"orphans": len(cleaned.reaped), "cancelled_with_parent": len(cleaned.cancelled)}
    report |= counts | {"stalled": stalled.count, "stalled_batches": stalled.batches}
    logger.info("the cleanup ran", extra=report)
    return report


make_at_start(lambda: application().keeper)
