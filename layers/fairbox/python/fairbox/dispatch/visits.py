"""A visit: delivery of one shard, read from the table."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from fairbox.dispatch.ordered.visit import OrderedVisits
from fairbox.dispatch.ports import OVERDUE_MS, Doorbell
from fairbox.dispatch.visit_steps import MAX_BACKOFF_SECONDS, VisitReport, postpone_check, readable
from fairbox.model.clock import milliseconds
from fairbox.model.ids import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dispatch.dispatcher import Dispatcher
    from fairbox.model.stored_messages import ShardRow, StoredMessage
    from fairbox.model.topics import TopicState

NOT_RELAYED_MS: Final = 25_000
"""Age from which the relay sends a message no more: it treats records as young until 21 s."""
PAGE: Final = 100
_LEAST_PAGE: Final = 5
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
        self._gate = dispatcher.gate

    def handle(self, doorbell: Doorbell, *, deadline: float) -> VisitReport:
        """Deliver the messages that a doorbell asks for.

        It sends the messages that the doorbell names. A doorbell of the sweep names none: the visit
        sends messages that are due and over 60 s old. On an ordered topic it sends each key's next
        messages. A doorbell that came too early is passed on.

        Raises:
            FairboxError: the tables or queues failed; the doorbell must come again.
        """
        report = VisitReport()
        self._store.refresh()
        topic = self._store.topic(doorbell.topic)
        if topic is None or not topic.pushed:
            return report
        now = milliseconds(self._clock)
        ordered = topic.topic.ordering == "key"
        if doorbell.not_before > now + 999:
            self._dispatcher.doorbells.ring([doorbell])
        elif self._gate.admission(topic) == "none" and not (ordered and doorbell.refs):
            self._put_off(doorbell, topic)
        elif ordered:
            self._ordered.visit(doorbell, topic, report, deadline)
        elif doorbell.refs:
            self._visit_named(doorbell, report, deadline)
        else:
            self._visit_shard(doorbell, topic, report, deadline)
        return report

    def _visit_named(self, doorbell: Doorbell, report: VisitReport, deadline: float) -> None:
        messages, unreadable = self._store.read(doorbell.refs, pass_newer=True)
        order = {ref: n for n, ref in enumerate(doorbell.refs)}
        messages.sort(key=lambda m: order.get(m.ref, 0))
        self._deliver(readable(self._store, messages, unreadable, report), report, deadline)
        if (resume := _resume(report)) is not None:
            self._go_on(doorbell, None, resume)

    def _visit_shard(
        self, doorbell: Doorbell, topic: TopicState, report: VisitReport, deadline: float
    ) -> None:
        """Scan the shard from its head for overdue messages."""
        row: ShardRow | None = None
        dues: list[int] = []
        for lane in _LANES:
            after: str | None = None
            idle = 0
            while idle < _IDLE_PAGES:
                if self._clock.now() >= deadline:
                    self._again(doorbell, report)
                    return
                if self._gate.admission(topic) == "none":
                    break  # the rest stays unread
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
                messages = readable(self._store, page.messages, page.unreadable, report)
                wanted = [m for m in messages if self._wanted(m, topic, now, doorbell)]
                self._deliver(wanted, report, deadline)
                dues += [_next_check(m) for m in messages]
                idle = 0 if report.progress > moved else idle + 1
                after = page.last
                alone = doorbell.repeats or len(topic.subscriptions) == 1
                paced = alone and _resume(report) is not None
                if after is None or paced:
                    break
        due = min(dues, default=0)
        if self._gate.admission(topic) == "none":
            due = self._gate.quiet_until(topic)  # whoever closes the circuit enqueues visits
        if (resume := _resume(report)) is not None:
            self._go_on(doorbell, row, resume)
        elif row is not None and report.progress == 0:
            postpone_check(self._store, row, due, milliseconds(self._clock))

    def _wanted(
        self, stored: StoredMessage, topic: TopicState, now: int, doorbell: Doorbell
    ) -> bool:
        """Whether a scan should send a message.

        It should if the message is overdue, or was added before the doorbell's `before` and is no
        longer the relay's.
        """
        added = time_of(stored.ref.id)
        if stored.ref.due is not None or now - added > OVERDUE_MS:
            return True
        theirs = now - added <= NOT_RELAYED_MS and self._dispatcher.relayed(stored, topic)
        return added < doorbell.before and not theirs

    def _go_on(self, doorbell: Doorbell, row: ShardRow | None, resume: int) -> None:
        """Enqueue a visit for when the rate has tokens again; keep the sweep away meanwhile.

        The queue keeps one doorbell for each shard and second, so scans do not multiply.
        """
        now = milliseconds(self._clock)
        if row is not None and row.look_at is not None and row.look_at <= now:
            self._store.look_again(row, now + MAX_BACKOFF_SECONDS * 1000, row.backoff)
        second = max(-(-resume // 1000) * 1000, doorbell.not_before + 1000)
        shard = (doorbell.topic, doorbell.epoch, doorbell.shard)
        self._dispatcher.doorbells.ring([Doorbell(*shard, not_before=second, before=second)])

    def _put_off(self, doorbell: Doorbell, topic: TopicState) -> None:
        """Drop a doorbell while nothing may be sent: whoever closes a circuit enqueues visits.

        For a doorbell of the sweep the next check is postponed too (1 RRU and 3 WRU, at most twice
        in a quiet period or in ten minutes).
        """
        if doorbell.refs:
            return
        shard = (doorbell.topic, doorbell.epoch, doorbell.shard)
        row = self._store.read_lane("ready", *shard, limit=1).row
        now = milliseconds(self._clock)
        if row is not None and row.look_at is not None and row.look_at <= now:
            postpone_check(self._store, row, self._gate.quiet_until(topic), now)

    def _deliver(
        self, messages: Sequence[StoredMessage], report: VisitReport, deadline: float
    ) -> None:
        if messages:
            report.deliveries.append(self._dispatcher.deliver(messages, deadline=deadline))

    def _again(self, doorbell: Doorbell, report: VisitReport) -> None:
        """Enqueue another visit, behind the others, because the time limit came first."""
        report.unfinished = True
        self._dispatcher.doorbells.ring([replace(doorbell, refs=(), not_before=0)])


def _page(topic: TopicState) -> int:
    """Return the size of a page: no more messages than may be sent in two seconds."""
    rates = [s.rate for s in topic.subscriptions]
    most = max((PAGE if rate is None else math.ceil(2 * rate) for rate in rates), default=PAGE)
    return min(PAGE, max(_LEAST_PAGE, most))


def _resume(report: VisitReport) -> int | None:
    """Return when messages without a token may go on (ms); None: all had one."""
    return min((d.resume for d in report.deliveries if d.resume is not None), default=None)


def _next_check(stored: StoredMessage) -> int:
    dues = [state.due for state in stored.states.values() if not state.dead]
    return max(time_of(stored.ref.id) + OVERDUE_MS, stored.ref.due or 0, min(dues, default=0))
