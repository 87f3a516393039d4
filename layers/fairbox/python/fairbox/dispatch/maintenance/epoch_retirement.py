"""Retirement: old epochs of topics stop taking messages when they are empty, and leave the list.

It takes two steps. The first closes an epoch: from then on producers put messages of its time
elsewhere. The second, when no producer's copy can be older, takes it off the list; everybody reads
it until then, so that no message that came in between is stranded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.model.clock import Clock, milliseconds
from fairbox.model.epochs import Epoch, closed, may_close, may_leave, without
from fairbox.tables.epoch_rows import EpochTable

if TYPE_CHECKING:
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.tables import Tables

_UNITS_A_SHARD: Final = 4.0
_UNITS_A_SECOND: Final = 200.0


@dataclass(slots=True)
class RetireReport:
    """The numbers of epochs that were closed, and that left the list."""

    closed: int = 0
    retired: int = 0


class Retiring:
    """Closes and removes the epochs that hold nothing."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._epochs = EpochTable(tables)
        self._topics = tables.topics
        self._clock = clock

    def run(self, *, deadline: float) -> RetireReport:
        """Check every old epoch whose time is safely past, until the deadline.

        An idle run costs the read of the topics.

        Raises:
            FairboxError: the tables failed; the next run checks again.
        """
        report = RetireReport()
        for state in self._topics.all():
            for epoch in state.epochs[:-1]:
                if self._clock.now() >= deadline:
                    return report
                self._retire(state, epoch, report)
        return report

    def _retire(self, state: TopicState, epoch: Epoch, report: RetireReport) -> None:
        now = milliseconds(self._clock)
        leaves = may_leave(epoch, now)
        if not leaves and not may_close(state.epochs, epoch, now):
            return

        name = state.topic.name
        # the rows first: they are cheap, and say no for most
        if self._epochs.counted(name, epoch) or self._occupied(name, epoch):
            return

        changed = self._write(name, epoch.number, leaves=leaves)
        # the list first: rows that a crash leaves hold nothing, and nobody reads them
        if leaves and changed:
            self._epochs.forget(name, epoch)
        report.retired += leaves and changed
        report.closed += not leaves and changed

    def _occupied(self, topic: str, epoch: Epoch) -> bool:
        for shard in range(epoch.shards):
            if self._epochs.occupied(topic, epoch.number, shard):
                return True
            self._clock.sleep(_UNITS_A_SHARD / _UNITS_A_SECOND)
        return False

    def _write(self, topic: str, number: int, *, leaves: bool) -> bool:
        changed = False

        def decide(there: TopicState) -> TopicState:
            nonlocal changed
            now = milliseconds(self._clock)
            epoch = there.epoch(number)
            changed = epoch is not None and bool(epoch.closed) == leaves
            if epoch is None or not changed:
                return there
            left = without(there.epochs, number) if leaves else closed(there.epochs, number, now)
            return replace(there, epochs=left)

        self._topics.change(topic, decide)
        return changed
