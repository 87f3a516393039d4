"""A visit: delivery of one shard, read from the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from fairbox.clock import milliseconds
from fairbox.dispatch.cutover import NOTHING, Cutover
from fairbox.dispatch.dispatcher import Report
from fairbox.dispatch.finishing import finish_marked
from fairbox.dispatch.ports import Doorbell
from fairbox.ids import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dispatch.cutover import Waits
    from fairbox.dispatch.dispatcher import Dispatcher
    from fairbox.dispatch.ports import ShardPage
    from fairbox.stored import ShardRow, StoredMessage
    from fairbox.topics import TopicState

OVERDUE_MS: Final = 60_000
PAGE: Final = 100
_FIRST_BACKOFF_SECONDS: Final = 60
_MAX_BACKOFF_SECONDS: Final = 600
_IDLE_PAGES: Final = 10  # pages without progress after which a visit gives up for this time
_LANES: Final[tuple[Literal["later", "ready"], ...]] = ("later", "ready")
_ORDERED_LANES: Final[tuple[Literal["ready"], ...]] = ("ready",)


@dataclass(slots=True)
class VisitReport:
    """What a visit did: reports of its deliveries, marked messages finished, whether time ran out.

    Attributes:
        deliveries: one for each page.
        finished: marked messages whose leaving somebody else had begun.
        unreadable: items buried as they are.
        unfinished: the time limit came first; the shard was rung for again.
    """

    deliveries: list[Report] = field(default_factory=list)
    finished: int = 0
    unreadable: int = 0
    unfinished: bool = False

    @property
    def progress(self) -> int:
        """How much moved."""
        moved = sum(d.progress + d.delivered for d in self.deliveries)
        return moved + self.finished + self.unreadable


class Visits:
    """Visits shards that doorbells name.

    Args:
        dispatcher: sends, deletes, retries.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._store = dispatcher.store
        self._clock = dispatcher.clock
        self._cutover = Cutover(self._store, self._clock)

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
        elif doorbell.refs and topic.topic.ordering == "none":
            self._visit_named(doorbell, report, deadline)
        else:
            self._visit_shard(doorbell, topic, report, deadline)
        return report

    def _visit_named(self, doorbell: Doorbell, report: VisitReport, deadline: float) -> None:
        messages, unreadable = self._store.read(doorbell.refs)
        for item in unreadable:
            self._store.bury_raw(item, "unreadable")
            report.unreadable += 1
        order = {ref: n for n, ref in enumerate(doorbell.refs)}
        messages.sort(key=lambda m: order.get(m.ref, 0))
        self._deliver(self._finish(messages, report), report, deadline)

    def _visit_shard(
        self, doorbell: Doorbell, topic: TopicState, report: VisitReport, deadline: float
    ) -> None:
        """Walk the shard from its head: what is overdue or, on an ordered topic, all in turn."""
        ordered = topic.topic.ordering == "key"
        held: set[tuple[str, str]] = set()
        waits, waiting = NOTHING, False
        row: ShardRow | None = None
        dues: list[int] = []
        for lane in _ORDERED_LANES if ordered else _LANES:
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
                messages = self._readable(page, report)
                if ordered and after is None and messages:
                    waits = self._waits(doorbell, topic, row)
                    held |= waits.holds(topic)
                waiting = waiting or any(map(waits.hold, messages))
                if waits.everything:
                    break
                self._deliver(
                    [m for m in messages if ordered or _overdue(m, now)], report, deadline, held
                )
                dues += [_next_look(m) for m in messages]
                idle = 0 if report.progress > moved else idle + 1
                after = page.last
                if after is None:
                    break
        self._ring_in_order(doorbell, report, waits.again if waiting else None)
        if row is not None and report.progress == 0:
            self._look_again(row, min(dues, default=0))

    def _waits(self, doorbell: Doorbell, topic: TopicState, row: ShardRow | None) -> Waits:
        """Return what of a shard waits for older shards of its topic."""
        shard = (doorbell.topic, doorbell.epoch, doorbell.shard)
        return self._cutover.waits(topic, shard, settled=row is not None and row.settled)

    def _ring_in_order(self, doorbell: Doorbell, report: VisitReport, waits: int | None) -> None:
        """Ring once for an ordered shard, for when the first of what was tried is due again.

        Args:
            doorbell: names the shard.
            report: of this visit.
            waits: when to look again for keys that wait for older shards (ms); None: none does.
        """
        due = [*(d.again for d in report.deliveries), waits]
        again = min((ms for ms in due if ms is not None), default=None)
        if again is not None:
            second = -(-again // 1000) * 1000
            shard = (doorbell.topic, doorbell.epoch, doorbell.shard)
            self._dispatcher.doorbells.ring([Doorbell(*shard, not_before=second)])

    def _look_again(self, row: ShardRow, next_due: int) -> None:
        """Move the next look on: to what is due next, or twice as far as the last time."""
        now = milliseconds(self._clock)
        backoff = min(_MAX_BACKOFF_SECONDS, max(_FIRST_BACKOFF_SECONDS, row.backoff * 2))
        look_at = now + backoff * 1000
        if now < next_due:
            look_at = min(look_at, next_due)
        self._store.look_again(row, look_at, backoff)

    def _readable(self, page: ShardPage, report: VisitReport) -> list[StoredMessage]:
        for item in page.unreadable:
            self._store.bury_raw(item, "unreadable")
            report.unreadable += 1
        return self._finish(page.messages, report)

    def _finish(
        self, messages: Sequence[StoredMessage], report: VisitReport
    ) -> list[StoredMessage]:
        """Finish what is marked as leaving; return the messages that are outstanding."""
        marked = [m for m in messages if m.gone]
        errors: list[str] = []
        report.finished += finish_marked(self._store, marked, errors)
        if errors:
            report.deliveries.append(Report(errors=errors))
        return [m for m in messages if not m.gone]

    def _deliver(
        self,
        messages: Sequence[StoredMessage],
        report: VisitReport,
        deadline: float,
        held: set[tuple[str, str]] | None = None,
    ) -> None:
        if messages:
            delivery = self._dispatcher.deliver(messages, deadline=deadline, held=held)
            report.deliveries.append(delivery)

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
