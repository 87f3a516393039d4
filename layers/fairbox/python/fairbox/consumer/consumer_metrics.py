"""What a consumer counted, written as metrics of its topic and its partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.consumer.counts import ConsumerCounts
from fairbox.errors import FairboxError
from fairbox.observability.metrics import ACKED, DEAD, GIVEN_BACK, LOST_RECEIPTS, RECEIVED

if TYPE_CHECKING:
    from fairbox.consumer.counts import Tally
    from fairbox.consumer.ports import Figures, Source
    from fairbox.model.topics import Partition


class Measuring:
    """Writes what was counted since it was last written.

    Args:
        queue: knows the logical name and the partition that the topic was registered with.
        topic: whose.
        tally: the counts.
        figures: takes them; None: nothing is written.
    """

    def __init__(self, queue: Source, topic: str, tally: Tally, figures: Figures | None) -> None:
        self._queue = queue
        self._topic = topic
        self._tally = tally
        self._figures = figures
        self._written = ConsumerCounts()
        self._partition: Partition | None = None
        self._known = False

    def write(self, *, last: bool = False) -> None:
        """Write what was counted, by topic, by partition, and in all.

        Args:
            last: nothing is written later: where the partition cannot be read, go without.
        """
        counts = self._tally.counts
        if self._figures is None or counts == self._written:
            return
        if not self._registered() and not last:
            return  # goes with the next
        changed = _figures(self._written, counts)
        self._written = counts
        if any(changed.values()):
            self._figures.emit(changed, topic=self._topic, partition=self._partition)
            self._figures.emit(changed)

    def _registered(self) -> bool:
        """Read the topic's partition once; return whether it is known."""
        if not self._known:
            try:
                self._partition = self._queue.topic(self._topic).topic.partition
            except FairboxError:
                return False
            self._known = True
        return True


def _figures(before: ConsumerCounts, now: ConsumerCounts) -> dict[str, float]:
    """Return what happened in between, by metric."""
    return {
        RECEIVED: now.received - before.received,
        ACKED: now.acked - before.acked,
        GIVEN_BACK: _given_back(now) - _given_back(before),
        DEAD: now.dead - before.dead,
        LOST_RECEIPTS: now.lost - before.lost,
    }


def _given_back(counts: ConsumerCounts) -> int:
    return counts.failed + counts.retried + counts.released + counts.abandoned
