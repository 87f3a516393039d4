"""A visit: delivery of one shard, read from the table."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from fairbox.clock import milliseconds
from fairbox.dispatch.finishing import finish_marked
from fairbox.dispatch.ports import Doorbell
from fairbox.dispatch.report import Report
from fairbox.ids import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dispatch.dispatcher import Dispatcher
    from fairbox.dispatch.ports import ShardPage
    from fairbox.stored import ShardRow, StoredMessage
    from fairbox.topics import TopicState

OVERDUE_MS: Final = 60_000
NOT_RELAYED_MS: Final = 25_000
"""Age at which the relay sends nothing any more: it takes records for young until 21 s."""
PAGE: Final = 100
_LEAST_PAGE: Final = 5
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
        self._gate = dispatcher.gate

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
        elif self._gate.look(topic) == "none":
            self._put_off(doorbell, topic)
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
        if (resume := _resume(report)) is not None:
            self._go_on(doorbell, None, resume)

    def _visit_shard(
        self, doorbell: Doorbell, topic: TopicState, report: VisitReport, deadline: float
    ) -> None:
        """Walk the shard from its head: what is overdue or, on an ordered topic, all in turn."""
        ordered = topic.topic.ordering == "key"
        held: set[tuple[str, str]] = set()
        row: ShardRow | None = None
        dues: list[int] = []
        for lane in _ORDERED_LANES if ordered else _LANES:
            after: str | None = None
            idle = 0
            while idle < _IDLE_PAGES:
                if self._clock.now() >= deadline:
                    self._again(doorbell, report)
                    return
                if self._gate.look(topic) == "none":
                    break  # what lies behind stays unread
                now = milliseconds(self._clock)
                page = self._store.read_lane(
                    lane,
                    doorbell.topic,
                    doorbell.epoch,
                    doorbell.shard,
                    limit=_page(topic),
                    after=after,
                    until_due=now if lane == "later" else None,
                )
                row = page.row or row
                moved = report.progress
                messages = self._readable(page, report)
                self._deliver(
                    [m for m in messages if ordered or self._wanted(m, topic, now, doorbell)],
                    report,
                    deadline,
                    held,
                )
                dues += [_next_look(m) for m in messages]
                idle = 0 if report.progress > moved else idle + 1
                after = page.last
                alone = doorbell.repeats or len(topic.subscriptions) == 1
                paced = alone and _resume(report) is not None
                if after is None or paced:
                    break
        due = min(dues, default=0)
        if self._gate.look(topic) == "none":
            due = self._gate.quiet_until(topic)  # who closes the circuit rings
        else:
            self._ring_in_order(doorbell, report)
        if (resume := _resume(report)) is not None:
            self._go_on(doorbell, row, resume)
        elif row is not None and report.progress == 0:
            self._look_again(row, due)

    def _wanted(
        self, stored: StoredMessage, topic: TopicState, now: int, doorbell: Doorbell
    ) -> bool:
        """Whether a walk is to send a message: it is overdue, or was rung for and not the relay's.

        Rung for: added before the time that the doorbell says.
        """
        added = time_of(stored.ref.id)
        if stored.ref.due is not None or now - added > OVERDUE_MS:
            return True
        theirs = now - added <= NOT_RELAYED_MS and self._dispatcher.relayed(stored, topic)
        return added < doorbell.before and not theirs

    def _go_on(self, doorbell: Doorbell, row: ShardRow | None, resume: int) -> None:
        """Ring for the shard when its rate has tokens again; keep the sweep away meanwhile.

        Of doorbells for one shard and second the queue keeps one: walks do not multiply.
        """
        now = milliseconds(self._clock)
        if row is not None and row.look_at is not None and row.look_at <= now:
            self._store.look_again(row, now + _MAX_BACKOFF_SECONDS * 1000, row.backoff)
        second = max(-(-resume // 1000) * 1000, doorbell.not_before + 1000)
        shard = (doorbell.topic, doorbell.epoch, doorbell.shard)
        self._dispatcher.doorbells.ring([Doorbell(*shard, not_before=second, before=second)])

    def _put_off(self, doorbell: Doorbell, topic: TopicState) -> None:
        """Drop a doorbell for which nothing may be sent; who closes a circuit rings again.

        Rung by the sweep, the next look is moved on too (1 RRU and 3 WRU, at most twice in a
        quiet period or in ten minutes).
        """
        if doorbell.refs:
            return
        shard = (doorbell.topic, doorbell.epoch, doorbell.shard)
        row = self._store.read_lane("ready", *shard, limit=1).row
        now = milliseconds(self._clock)
        if row is not None and row.look_at is not None and row.look_at <= now:
            self._look_again(row, self._gate.quiet_until(topic))

    def _ring_in_order(self, doorbell: Doorbell, report: VisitReport) -> None:
        """Ring once for an ordered shard, for when the first of what was tried is due again."""
        again = min((d.again for d in report.deliveries if d.again is not None), default=None)
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
        self._dispatcher.doorbells.ring([replace(doorbell, refs=(), not_before=0)])


def _page(topic: TopicState) -> int:
    """Return how many messages to read at once: no more than may be sent in two seconds."""
    rates = [s.rate for s in topic.subscriptions]
    most = max((PAGE if rate is None else math.ceil(2 * rate) for rate in rates), default=PAGE)
    return min(PAGE, max(_LEAST_PAGE, most))


def _resume(report: VisitReport) -> int | None:
    """Return when what had no token may go on (ms); None: all had one."""
    return min((d.resume for d in report.deliveries if d.resume is not None), default=None)


def _next_look(stored: StoredMessage) -> int:
    dues = [state.due for state in stored.states.values() if not state.dead]
    return max(time_of(stored.ref.id) + OVERDUE_MS, stored.ref.due or 0, min(dues, default=0))
