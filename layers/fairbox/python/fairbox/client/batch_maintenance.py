"""What the application does for all batches: acks of the queue, cascades, cleanup, figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.batches.cleanup import Cleaning
from fairbox.batches.coalesced_acks import Draining
from fairbox.batches.statistics import Watching
from fairbox.batches.stream_follow_up import Finishing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fairbox.batches.cleanup import Cleaned
    from fairbox.batches.coalesced_acks import Drained
    from fairbox.batches.statistics import OpenBatches, Stalled
    from fairbox.batches.stream_follow_up import Cause, Finished
    from fairbox.client.batches import Batches


class Keeper:
    """Keeps the batches of a table going, for the functions.

    Args:
        batches: the batches.
    """

    def __init__(self, batches: Batches) -> None:
        self._draining = Draining(*batches.parts)
        self._finishing = Finishing(*batches.parts)
        self._cleaning = Cleaning(*batches.parts)
        self._watching = Watching(*batches.parts)

    def drain(self, item_ids: Iterable[str], *, deadline: float) -> Drained:
        """Ack what can be acked by then (seconds since 1970): 1 RRU and 1 WRU a group touched.

        Bad ids are dropped and named, and what failed or came too late is named: it raises nothing
        of Fairbox's.
        """
        return self._draining.drain(item_ids, deadline=deadline)

    def finish(self, causes: Collection[Cause], *, deadline: float) -> Finished:
        """Cascade and tell what the stream brings, and name what is to be brought again."""
        return self._finishing.finish(causes, deadline=deadline)

    def clean(
        self, *, deadline: float, open_hours: int, sealed_hours: int, dry_run: bool = False
    ) -> Cleaned:
        """Look at the batches that are due: keep, reap or erase each, until the deadline.

        Raises:
            Throttled, Unavailable: the index could not be read.
        """
        return self._cleaning.clean(
            deadline=deadline, open_hours=open_hours, sealed_hours=sealed_hours, dry_run=dry_run
        )

    def open_batches(self) -> OpenBatches:
        """Count the open and sealed batches (8 RRU, and one for 80 of them)."""
        return self._watching.open_batches()

    def stalled(self, hours: int, *, deadline: float) -> Stalled:
        """Count the open and sealed batches in which nothing has happened for so many hours."""
        return self._watching.stalled(hours, deadline=deadline)
