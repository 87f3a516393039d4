"""Maintenance of all batches, for the functions: queued acks, cascades, cleanup, figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from fairbox.batches.coalesced_acks import CoalescedAcks
from fairbox.batches.statistics import Statistics
from fairbox.client.batch_context import BatchPart
from fairbox.errors import FairboxError, NewerVersion, Unreadable
from fairbox.tables.batch_records import read_image
from fairbox.tables.batch_values import FirstDeath
from fairbox.tables.stream_records import sequence_order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from fairbox.batches.cascade import Cascaded
    from fairbox.batches.cleanup import Cleaned, OrphanCheck
    from fairbox.batches.coalesced_acks import Drained
    from fairbox.batches.statistics import OpenBatches, Stalled
    from fairbox.tables.batch_values import Cause, Emptied


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


class BatchMaintenance(BatchPart):
    """Maintains all batches of a table, for the functions."""

    def __init__(self, batches: BatchPart) -> None:
        context = batches._context  # noqa: SLF001 - a part over the same context
        self._open(context)
        self._acks = CoalescedAcks(context.core, context.settlement, context.cascade)
        self._statistics = Statistics(context.core)

    def drain(self, item_ids: Iterable[str], *, deadline: float) -> Drained:
        """Ack items until the deadline (seconds since 1970): 1 RRU and 1 WRU a group touched.

        The result names unknown ids, which are dropped, and ids that failed or came too late. No
        error of Fairbox is raised.
        """
        return self._acks.drain(item_ids, deadline=deadline)

    def finish(self, causes: Collection[Cause], *, deadline: float) -> Cascaded:
        """Cascade the causes from the stream; the result names the causes to bring again.

        Groups left by a crash are erased if their batch was cancelled or reaped. The first death of
        a batch is told after the cascades: a batch that completes tells it itself.
        """
        lifecycle = self._context.lifecycle
        found = self._context.cascade.finish(causes, deadline=deadline)
        for batch in sorted(cause for cause in causes if isinstance(cause, str)):
            self._try(partial(lifecycle.fence, batch, deadline), batch, found)
        for batch in sorted(cause.batch for cause in causes if isinstance(cause, FirstDeath)):
            self._try(partial(lifecycle.tell_death, batch), FirstDeath(batch), found)
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

    def clean(
        self, *, deadline: float, open_hours: int, sealed_hours: int, dry_run: bool = False
    ) -> Cleaned:
        """Check the batches that are due: keep, reap or erase each, until the deadline.

        Raises:
            Throttled, Unavailable: the index could not be read.
        """
        return self._context.cleanup.clean(
            deadline=deadline, open_hours=open_hours, sealed_hours=sealed_hours, dry_run=dry_run
        )

    def cascade(self, emptied: Iterable[Emptied]) -> list[str]:
        """Clear emptied groups and nodes upwards; return the ids of completed batches."""
        return self._context.cascade.cascade(emptied)

    def notify_parent(self, batch: str) -> list[str]:
        """Settle the parent item of an ended nested batch; return the ids of completed batches."""
        return self._context.cascade.notify_parent(batch) or []

    def due_for_check(self) -> Iterator[str]:
        """Yield the ids of batches that are due to be checked or erased."""
        return self._context.cleanup.due_for_check()

    def check_orphan(
        self,
        batch: str,
        *,
        open_hours: int = 7 * 24,
        sealed_hours: int = 14 * 24,
        dry_run: bool = False,
    ) -> OrphanCheck:
        """Finish the interrupted work of an idle batch, and reap the batch if it is an orphan.

        Args:
            batch: its id.
            open_hours: hours without activity after which an open batch is an orphan.
            sealed_hours: the same for a sealed batch.
            dry_run: change nothing.
        """
        return self._context.cleanup.check_orphan(
            batch, open_hours=open_hours, sealed_hours=sealed_hours, dry_run=dry_run
        )

    def erase(self, batch: str, *, limit: int | None = None) -> bool:
        """Delete an ended batch when it is due, at most `limit` groups; return whether all is gone.

        Raises:
            UnknownBatch: there is none of this id.
        """
        return self._context.lifecycle.erase(batch, limit)

    def split_known(self, item_ids: Iterable[str]) -> tuple[list[str], list[str]]:
        """Split ids into two lists: ids that can be settled; ids deleted or never issued."""
        return self._context.settlement.split_known(item_ids)

    def open_batches(self) -> OpenBatches:
        """Count the open and sealed batches (8 RRU, and one for 80 of them)."""
        return self._statistics.open_batches()

    def stalled(self, hours: int, *, deadline: float) -> Stalled:
        """Count the open and sealed batches without activity for so many hours."""
        return self._statistics.stalled(hours, deadline=deadline)
