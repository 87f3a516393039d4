"""Feeds visit: send what doorbells bring to the clients of an audience shard."""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import cache
from typing import Any

from fairbox.errors import FairboxError
from fairbox.feeds.ringing import Doorbell
from fairbox.observability.metrics import FEED_DELAY, FEED_FRAMES, FEED_PUT_OUT
from fairbox.runtime.feed_application import FeedsApplication
from fairbox.runtime.function_process import ends_in_time, make_at_start

SENDING = 0.5
"""Share of the time limit in which posts begin: 20 s of 40."""

logger = logging.getLogger("fairbox")


@cache
def application() -> FeedsApplication:
    """Return this process's application."""
    return FeedsApplication.from_env()


@ends_in_time(application)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Visit each shard that the records are for; those of a shard that failed come again."""
    app = application()
    deadline = app.clock.now() + context.get_remaining_time_in_millis() / 1000 * SENDING
    shards: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in event["Records"]:
        # one visit for all doorbells of a shard: its connections are read once
        shards[record["attributes"]["MessageGroupId"]].append(record)

    failures: list[dict[str, str]] = []
    for shard, records in shards.items():
        try:
            pushed = app.pushing.push(int(shard), map(_doorbell, records), deadline)
        except FairboxError as error:
            # a shard that failed keeps no other from its visit
            logger.warning("a visit of feeds failed", extra={"shard": shard, "error": str(error)})
            failures += [{"itemIdentifier": record["messageId"]} for record in records]
        else:
            figures = {
                FEED_FRAMES: pushed.frames,
                FEED_PUT_OUT: pushed.put_out,
                FEED_DELAY: pushed.delay,
            }
            app.metrics.emit(figures if pushed.clients or pushed.delay else {})

    return {"batchItemFailures": failures}


def _doorbell(record: dict[str, Any]) -> Doorbell:
    attributes = record["attributes"]
    rung, tries = (attributes[name] for name in ("SentTimestamp", "ApproximateReceiveCount"))
    return Doorbell(record["body"], int(rung) / 1000, int(tries))


make_at_start(lambda: application().pushing)
