"""Maintenance of all batches, for the functions: queued acks, cascades, cleanup, figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from fairbox.batches.coalesced_acks import CoalescedAcks
from fairbox.batches.figures import Statistics
from fairbox.errors import FairboxError, NewerVersion, Unreadable
from fairbox.tables.batch_records import read_image
from fairbox.tables.batch_values import Cause, FirstDeath
from fairbox.tables.stream_records import sequence_order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from fairbox.batches.cascade import Cascaded
    from fairbox.client.batch_context import BatchPart


@dataclass(slots=True)
class CascadeReport:
    """The result of cascading stream records.

    Attributes:
        again: the lowest sequence number that must come again; None: all is done.
        ended: number of batches that ended, by state; a repeated record counts again.
        completed: ids of the batches that this completed.
        unreadable: number of records that the codec has not written.
        errors: the reasons why records must come again.
    """

    again: str | None = None
    ended: Counter[str] = field(default_factory=Counter)
    completed: list[str] = field(default_factory=list)
    unreadable: int = 0
    errors: list[str] = field(default_factory=list)


class BatchMaintenance:
    """Maintains all batches of a table, for the functions: the use cases, and those of its stream.

    Attributes:
        coalesced: acks of the ack queue.
    """

    def __init__(self, batches: BatchPart) -> None:
        context = batches._context  # noqa: SLF001 - over the same context
        self.cascade = context.cascade
        self.cleanup = context.cleanup
        self.lifecycle = context.lifecycle
        self.settlement = context.settlement
        self.coalesced = CoalescedAcks(context.core, context.settlement, context.cascade)
        self.statistics = Statistics(context.core)

    def finish(self, causes: Collection[Cause], *, deadline: float) -> Cascaded:
        """Cascade the causes from the stream; the result names the causes to bring again.

        Groups left by a crash are erased if their batch was cancelled or reaped. The first death of
        a batch is told after the cascades: a batch that completes tells it itself.
        """
        found = self.cascade.finish(causes, deadline=deadline)
        for batch in sorted(cause for cause in causes if isinstance(cause, str)):
            self._try(partial(self.lifecycle.fence, batch, deadline), batch, found)
        for batch in sorted(cause.batch for cause in causes if isinstance(cause, FirstDeath)):
            self._try(partial(self.lifecycle.tell_death, batch), FirstDeath(batch), found)
        return found

    @staticmethod
    def _try(step: Callable[[], bool], cause: Cause, found: Cascaded) -> None:
        """Take a step, and leave its cause to the stream if it was not done."""
        try:
            done = step()
        except FairboxError as error:
            done = False
            found.errors.append(str(error))
        if not done:
            found.left.add(cause)

    def cascade_records(
        self, records: Sequence[Mapping[str, Any]], *, deadline: float
    ) -> CascadeReport:
        """Cascade records of the batches' stream, all of one parent at once.

        Args:
            records: stream records as Lambda passes them, with new images.
            deadline: seconds since 1970.
        """
        report = CascadeReport()
        causes: dict[Cause, str] = {}
        newer: list[str] = []
        for record in records:
            body = record["dynamodb"]
            image = body.get("NewImage")
            # an item was deleted: the erasure of a batch asks for nothing
            if image is None:
                continue

            try:
                cause, ended = read_image(image)
            except NewerVersion as error:
                # it comes again: a function of a newer release can read it
                newer.append(body["SequenceNumber"])
                report.errors.append(str(error))
                continue
            except Unreadable:
                report.unreadable += 1
                continue

            if ended is not None:
                report.ended[ended] += 1
            if cause is not None:
                causes[cause] = body["SequenceNumber"]  # the latest: it is enough to repeat that

        finished = self.finish(causes, deadline=deadline)
        left = [*newer, *(causes[cause] for cause in finished.left)]
        # the lowest that is left: Lambda brings again all from that one on
        report.again = min(left, key=sequence_order, default=None)
        report.completed = finished.completed
        report.errors += finished.errors
        return report
