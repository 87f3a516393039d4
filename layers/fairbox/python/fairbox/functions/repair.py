"""Repair: each hour, what waits for the archive, given-up batches, then a scan for hidden work."""

from __future__ import annotations

import logging
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from fairbox.aws.s3_failures import S3Failures
from fairbox.dispatch.maintenance.repair_scan import Repair, RepairReport
from fairbox.dispatch.stream.marking import Marking
from fairbox.model.ids import IdGenerator
from fairbox.observability.metrics import GIVEN_UP_AGE, GIVEN_UP_KEPT, NEWER
from fairbox.runtime.function_application import Application
from fairbox.runtime.function_process import ends_in_time, make_at_start
from fairbox.settings import BATCHES_TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

logger = logging.getLogger("fairbox")


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@cache
def repair() -> Repair:
    """Return this process's repair."""
    app = application()
    return Repair(
        tables=app.tables,
        marking=Marking(app.tables, app.archive, app.clock, app.acks, bodies=app.archive_bodies),
        given_up=S3Failures(lambda: app.s3, app.failures_bucket),
        doorbells=app.doorbells,
        clock=app.clock,
        # batches that were given up tell by the stream's ARN whose records they have
        others={app.settings.required(BATCHES_TABLE): _replay_batches},
        next_id=IdGenerator().next,
    )


def _replay_batches(records: Sequence[Mapping[str, Any]], deadline: float) -> bool:
    """Cascade a given-up batch of the batches' stream; return whether all is done."""
    return application().keeper.cascade_records(records, deadline=deadline).again is None


@ends_in_time(application)
def handler(_event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Repair until the end of the table or shortly before the time limit."""
    app = application()
    started, seconds = app.clock.now(), context.get_remaining_time_in_millis() / 1000
    report = RepairReport()

    try:
        # first: the scan goes on to the deadline where the outbox is large
        waiting = app.archive_objects.move_waiting(deadline=started + seconds / 4)
    finally:
        try:
            # 30 s for the page and the replay that are under way
            repair().run(deadline=started + seconds - 30, report=report)
        finally:  # whatever else fails, what is kept is known
            kept = {GIVEN_UP_KEPT: report.kept, GIVEN_UP_AGE: report.kept_hours}
            app.metrics.emit(kept | ({NEWER: report.newer} if report.newer else {}))

    figures = asdict(report) | {"archived": waiting.moved, "archive_waiting": waiting.left}
    logger.info("repair ran", extra=figures)
    return figures


make_at_start(repair)
