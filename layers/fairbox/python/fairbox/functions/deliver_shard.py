"""Deliver shard: visits for doorbells; delayed doorbells are forwarded when they are due."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from fairbox.aws.sqs_queues import answer_doorbells
from fairbox.dispatch.visits import Visits
from fairbox.runtime.function_application import Application
from fairbox.runtime.function_process import ends_in_time, make_at_start

if TYPE_CHECKING:
    from fairbox.dispatch.delivery import VisitReport

SENDING = 0.4
"""Share of the time limit in which calls to destinations begin: 18 s of 45."""


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@cache
def visits() -> Visits:
    """Return this process's visits."""
    return Visits(application().dispatcher)


def _report(visit: VisitReport) -> None:
    application().report([delivery.metrics for delivery in visit.deliveries])


@ends_in_time(application)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Visit the shards that the queue's messages name; failed ones come again, in order."""
    app = application()
    # the longest call, and the writes of its outcomes, come before the last call's time
    deadline = app.clock.now() + context.get_remaining_time_in_millis() / 1000 * SENDING
    return answer_doorbells(
        event["Records"],
        visits=visits(),
        doorbells=app.doorbells,
        deadline=deadline,
        report=_report,
    )


make_at_start(visits, lambda: application().doorbells)
