"""Records of the doorbell queues: visits for those due, forwarding of the others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fairbox.aws.sqs_doorbells import decode
from fairbox.errors import FairboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fairbox.aws.sqs_doorbells import SqsDoorbells
    from fairbox.dispatch.visit_steps import VisitReport
    from fairbox.dispatch.visits import Visits

Answer = dict[str, list[dict[str, str]]]
"""The answer of a function to an event source mapping: `batchItemFailures`."""

logger = logging.getLogger("fairbox")


def answer_doorbells(
    records: Iterable[Mapping[str, Any]],
    *,
    visits: Visits,
    doorbells: SqsDoorbells,
    deadline: float,
    report: Callable[[VisitReport], object] = lambda _: None,
) -> Answer:
    """Visit the shards that records of the FIFO queues name; pass on those of the queue for later.

    A doorbell for a visit apart that lies in the queue of shared visits is passed on too.

    Args:
        records: of an event, from one queue.
        visits: makes the visits.
        doorbells: passes doorbells on that have waited.
        deadline: when calls to destinations must no longer begin (seconds since 1970 UTC).
        report: takes the report of each visit.

    Returns:
        The records that failed, which come again; from a FIFO queue with all that follow, so that
        their order is kept.
    """
    failures: list[dict[str, str]] = []
    for record in records:
        queue = record["eventSourceARN"].rpartition(":")[2]
        fifo = queue.endswith(".fifo")
        if failures and fifo:
            # in a FIFO queue, all behind a failure must come again: else their order is lost
            failures.append({"itemIdentifier": record["messageId"]})
            continue

        try:
            doorbell = decode(record["body"])
            if not fifo:
                doorbells.pass_on(doorbell)
            elif doorbells.misplaced(doorbell, queue):
                doorbells.ring([doorbell])
            else:
                report(visits.handle(doorbell, deadline=deadline))
        except FairboxError as error:
            logger.warning("a doorbell failed", extra={"error": str(error)})
            failures.append({"itemIdentifier": record["messageId"]})

    return {"batchItemFailures": failures}
