"""A visit: delivery of one shard, read from the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from fairbox.clock import milliseconds
from fairbox.dispatch.ordered_visit import OrderedVisits
from fairbox.dispatch.ports import Doorbell
from fairbox.dispatch.visiting import VisitReport, look_again, readable
from fairbox.ids import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dispatch.dispatcher import Dispatcher
    from fairbox.stored import ShardRow, StoredMessage

OVERDUE_MS: Final = 60_000
PAGE: Final = 100
_IDLE_PAGES: Final = 10  # pages without progress after which a visit gives up for this time
_LANES: Final[tuple[Literal["later", "ready"], ...]] = ("later", "ready")


class Visits:
    """Visits shards that doorbells name.

    Args:
        dispatcher: sends, deletes, retries.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._store = dispatcher.store
        self._clock = dispatcher.clock
        self._ordered = OrderedVisits(dispatcher)

    def handle(self, doorbell: Doorbell, *, deadline: float) -> VisitReport:
        """Deliver what a doorbell asks for.

        It sends the messages that the doorbell names or, rung by the sweep, what is over 60 s old
        and due; of an ordered topic, whatever each key's turn is. A doorbell that came too early
        is passed on.

        Raises:
            FairboxError: the tables or queues failed; the doorbell is to come again.
        """
        report = VisitReport()
        self._store.refresh()
        topic = self._store.topic(doorbell.topic)
        if topic is None or not topic.pushed:
            return report
        now = milliseconds(self._clock)
        if doorbell.not_before > now + 999:
            self._dispatcher.doorbells.ring([doorbell])
        elif topic.topic.ordering == "key":
            self._ordered.visit(doorbell, topic, report, deadline)
        elif doorbell.refs:
            self._visit_named(doorbell, report, deadline)
        else:
            self._visit_shard(doorbell, report, deadline)
        return report

    def _visit_named(self, doorbell: Doorbell, report: VisitReport, deadline: float) -> None:
        messages, unreadable = self._store.read(doorbell.refs)
        order = {ref: n for n, ref in enumerate(doorbell.refs)}
        messages.sort(key=lambda m: order.get(m.ref, 0))
        self._deliver(readable(self._store, messages, unreadable, report), report, deadline)

    def _visit_shard(self, doorbell: Doorbell, report: VisitReport, deadline: float) -> None:
        """Walk the shard from its head: what is overdue."""
        row: ShardRow | None = None
        dues: list[int] = []
        for lane in _LANES:
            after: str | None = None
            idle = 0
            while idle < _IDLE_PAGES:
                if self._clock.now() >= deadline:
                    self._again(doorbell, report)
                    return
                now = milliseconds(self._clock)
                page = self._store.read_lane(
                    lane,
                    doorbell.topic,
                    doorbell.epoch,
                    doorbell.shard,
                    limit=PAGE,
                    after=after,
                    until_due=now if lane == "later" else None,
                )
                row = page.row or row
                moved = report.progress
                messages = readable(self._store, page.messages, page.unreadable, report)
                self._deliver([m for m in messages if _overdue(m, now)], report, deadline)
                dues += [_next_look(m) for m in messages]
                idle = 0 if report.progress > moved else idle + 1
                after = page.last
                if after is None:
                    break
        if row is not None and report.progress == 0:
            look_again(self._store, row, min(dues, default=0), milliseconds(self._clock))

    def _deliver(
        self, messages: Sequence[StoredMessage], report: VisitReport, deadline: float
    ) -> None:
        if messages:
            report.deliveries.append(self._dispatcher.deliver(messages, deadline=deadline))

    def _again(self, doorbell: Doorbell, report: VisitReport) -> None:
        """Ring again, behind the others, when the time limit came first."""
        report.unfinished = True
        self._dispatcher.doorbells.ring([Doorbell(doorbell.topic, doorbell.epoch, doorbell.shard)])


def _overdue(stored: StoredMessage, now: int) -> bool:
    """Whether a message is no longer the relay's: delayed and due, or over 60 s old."""
    return stored.ref.due is not None or now - time_of(stored.ref.id) > OVERDUE_MS


def _next_look(stored: StoredMessage) -> int:
    dues = [state.due for state in stored.states.values() if not state.dead]
    return max(time_of(stored.ref.id) + OVERDUE_MS, stored.ref.due or 0, min(dues, default=0))
