"""Deliver shard: visits for doorbells; delayed doorbells are forwarded when they are due."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from fairbox.aws.sqs_doorbells import decode
from fairbox.dispatch.visits import Visits
from fairbox.errors import FairboxError
from fairbox.runtime.application import Application
from fairbox.runtime.time_limit import ends_in_time

SENDING = 0.4
"""Share of the time limit in which calls to destinations begin: 18 s of 45."""

logger = logging.getLogger("fairbox")


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@cache
def visits() -> Visits:
    """Return this process's visits."""
    return Visits(application().dispatcher)


@ends_in_time(application)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Visit the shards that the queue's messages name; failed ones come again, in order."""
    app = application()
    # the longest call, and the writes of its outcomes, come before the last call's time
    deadline = app.clock.now() + context.get_remaining_time_in_millis() / 1000 * SENDING
    failures: list[dict[str, str]] = []
    for record in event["Records"]:
        fifo = record["eventSourceARN"].endswith(".fifo")
        if failures and fifo:
            failures.append({"itemIdentifier": record["messageId"]})
            continue
        try:
            doorbell = decode(record["body"])
            if fifo:
                report = visits().handle(doorbell, deadline=deadline)
                app.report([delivery.metrics for delivery in report.deliveries])
            else:
                app.doorbells.pass_on(doorbell)
        except FairboxError as error:
            logger.warning("a doorbell failed", extra={"error": str(error)})
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}
