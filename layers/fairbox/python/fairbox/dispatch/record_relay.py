"""The relay: sends young messages straight from the stream's image, and leaves others to visits."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairbox.dispatch.burials import Burials
from fairbox.dispatch.delivery import DeliveryResult, How
from fairbox.dispatch.ports import Doorbell
from fairbox.errors import FairboxError, NewerVersion, Unreadable
from fairbox.model.clock import milliseconds
from fairbox.model.ids import time_of
from fairbox.tables.hints import RECEIVES_CHECK_MS
from fairbox.tables.stream_records import Change, raw_image, read_record, without_heartbeats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.dispatch.dispatcher import Dispatcher
    from fairbox.model.messages import MessageRef, Shard
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.stored_messages import StoredMessage

YOUNG_MS: Final = 20_000
LATE_MS: Final = 40_000
"""A message whose id is this much older than its insert is left to a visit: the sweep may already
consider it overdue, and both would send it."""
CALL_SECONDS: Final = 3.0
RING_AHEAD_MS: Final = 900_000
WALKS_PASS_DUE_MS: Final = 4_000
QUANTUM_MESSAGES: Final = 100
QUANTUM_BYTES: Final = 4 * 1024 * 1024


@dataclass(slots=True)
class RelayReport:
    """The result of one invocation.

    Attributes:
        delivery: the delivery's result.
        rung: messages for which a visit was enqueued.
        unreadable: items buried unread.
        newer: items that only a newer release can read: they stay where they lie.
        waiting: messages left where they are, because no subscription of their topic is ready.
    """

    delivery: DeliveryResult = field(default_factory=DeliveryResult)
    rung: int = 0
    unreadable: int = 0
    newer: int = 0
    waiting: int = 0


@dataclass(slots=True)
class _Inbox:
    """The messages of one invocation, sorted by their next step.

    Attributes:
        to_send: by ref: a message added again has two records.
        rings: messages to enqueue visits for, by shard and second.
        late: of pulled topics, messages that receives may have passed; by whether they are ordered.
        passed: of ordered topics, messages that visits may have passed.
        quanta: messages and bytes so far, by topic.
        probed: topics with a visit enqueued: where nobody is ready, it serves as the probe.
        kept: pinned messages: their doorbell must not be lost, since no walk finds them.
    """

    to_send: dict[MessageRef, StoredMessage] = field(default_factory=dict)
    rings: dict[tuple[Shard, int], list[MessageRef]] = field(
        default_factory=lambda: defaultdict(list)
    )
    late: dict[bool, list[MessageRef]] = field(default_factory=lambda: {False: [], True: []})
    passed: set[MessageRef] = field(default_factory=set)
    quanta: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    probed: set[str] = field(default_factory=set)
    kept: set[MessageRef] = field(default_factory=set)


class Relay:
    """Delivers the inserts of a stream."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._tables = dispatcher.tables
        self._clock = dispatcher.clock

    def handle(self, records: Iterable[Mapping[str, Any]], *, deadline: float) -> RelayReport:
        """Deliver records as Lambda hands them over.

        A destination's failure never fails a record; a message that stays gets a visit, or the
        sweep finds it.

        Args:
            records: of the outbox table's stream.
            deadline: no call to a destination begins after this time (seconds since 1970).

        Raises:
            FairboxError: topics could not be read, or an unreadable item not buried; nothing was
                sent, and the invocation is to be repeated.
        """
        report = RelayReport()
        records = without_heartbeats(records)
        # nothing but heartbeats: not even the topics are read
        if not records:
            return report

        self._tables.topic_cache.refresh()
        # all records are placed before the first send: a failure up to there may repeat the batch
        inbox = _Inbox()
        for record in records:
            change = self._read_insert(record, report)
            stored = None if change is None else change.new
            # the mark of a purged dead letter is no message
            if change is None or stored is None or stored.gone is not None:
                continue

            topic = self._tables.topic_cache.get(stored.ref.topic)
            if topic is None:
                continue
            ordered = topic.topic.ordering == "key"
            if topic.pushed:
                self._place(stored, change.at, topic, inbox, report)
                continue
            # others need no call: the next receive begins before them
            if _passed_by(stored.ref, change.at, ordered=ordered):
                inbox.late[ordered].append(stored.ref)

        to_send, rings = inbox.to_send, inbox.rings
        if to_send:
            report.delivery = self._dispatcher.deliver(
                list(to_send.values()),
                How(from_stream=True),
                deadline=deadline,
                timeout=CALL_SECONDS,
            )

        for ref in report.delivery.left:
            rings[ref.place, 0].append(ref)
            after, topic = report.delivery.after.get(ref), self._tables.topic_cache.get(ref.topic)
            # no walk looks for a message under retry: its doorbell comes again until it is sent
            if after is not None and topic is not None and after.tried(topic.subscription_names):
                inbox.kept.add(ref)

        self._ring(inbox, report)
        self._wake(inbox.late, report)
        return report

    def _place(
        self, stored: StoredMessage, at: int, topic: TopicState, inbox: _Inbox, report: RelayReport
    ) -> None:
        """Decide about one message of a pushed topic: send it, enqueue a visit, or leave it.

        `at` is the time of its insert (ms).
        """
        ref = stored.ref
        now = milliseconds(self._clock)
        ordered = topic.topic.ordering == "key"

        if not ordered and _behind_walks(ref, at):
            inbox.kept.add(ref)

        if ref.due is not None:
            # the longest delay of SQS; the sweep rings for longer ones, a minute before they end
            if ref.due - now <= RING_AHEAD_MS:
                # rounded up: messages of one second share a doorbell, and none comes too early
                inbox.rings[ref.place, -(-ref.due // 1000)].append(ref)
            return

        if ref in inbox.kept:
            inbox.rings[ref.place, 0].append(ref)
            return

        if ordered and _passed_by(ref, at, ordered=True):
            inbox.rings[ref.place, 0].append(
                ref
            )  # else no visit would meet it, even if all are ready
            inbox.passed.add(ref)
            return

        admission = self._dispatcher.gate.admission(topic)
        if admission == "none" or (admission == "one" and ref.topic in inbox.probed):
            # no doorbell: whoever closes a circuit, or ends a pause, enqueues visits of every shard
            report.waiting += 1
            return

        # one topic's burst must not hold up the stream for the others: the rest goes to visits
        used = inbox.quanta[ref.topic]
        used[0] += 1
        used[1] += stored.size

        young = now - at <= YOUNG_MS + 999  # the stream stamps whole seconds
        young = young and now - time_of(ref.id) <= LATE_MS
        within = used[0] <= QUANTUM_MESSAGES and used[1] <= QUANTUM_BYTES

        if young and within and not ordered and self._dispatcher.allowed_in_stream(topic):
            inbox.to_send[ref] = stored
        else:
            inbox.rings[ref.place, 0].append(ref)
            inbox.probed.add(ref.topic)

    def _read_insert(self, record: Mapping[str, Any], report: RelayReport) -> Change | None:
        """Return the insert of a record; None: it is another change, or was buried unread."""
        if record["eventName"] != "INSERT":
            return None
        try:
            return read_record(record)
        except NewerVersion:  # it stays; the sweep enqueues visits until a newer release reads it
            report.newer += 1
        except Unreadable as unreadable:
            Burials(self._tables).bury_raw(raw_image(record), str(unreadable))
            report.unreadable += 1
        return None

    def _wake(self, late: Mapping[bool, list[MessageRef]], report: RelayReport) -> None:
        """Let receives of pulled topics find messages that they may have passed."""
        for ordered, refs in late.items():
            try:
                if refs:
                    if ordered:
                        self._tables.key_claims.wake(refs)
                    else:
                        self._tables.hints.wake(refs)
            except FairboxError as error:
                # not to be repeated either: receives start at the head once a minute
                report.delivery.metrics.errors.append(str(error))

    def _ring(self, inbox: _Inbox, report: RelayReport) -> None:
        """Enqueue one visit for each shard and time, and one for messages that no walk looks for.

        On ordered topics it names the smallest id, and messages that visits may have passed.
        """
        doorbells = []
        for (shard, second), refs in inbox.rings.items():
            topic = self._tables.topic_cache.get(shard[0])
            ordered = topic is not None and topic.topic.ordering == "key"
            report.rung += len(refs)
            if ordered:
                named = sorted({min(refs)} | (inbox.passed & set(refs)))
                doorbells.append(Doorbell(*shard, tuple(named), second * 1000))
                continue
            # apart, since only doorbells of kept messages come again while nothing may be sent
            for kept in (False, True):
                mine = tuple(ref for ref in refs if (ref in inbox.kept) == kept)
                if mine:
                    doorbells.append(Doorbell(*shard, mine, second * 1000, kept=kept))

        try:
            if doorbells:
                self._dispatcher.doorbells.ring(doorbells)
        except FairboxError as error:
            # not to be repeated: messages would be sent again; the sweep finds the rest
            report.delivery.metrics.errors.append(str(error))


def _behind_walks(ref: MessageRef, at: int) -> bool:
    """Whether walks may have passed the place of an insert at `at` (ms).

    They pass ids that are a minute old, and delayed messages that have been due for 5 s.
    """
    if ref.due is not None:
        return ref.due + WALKS_PASS_DUE_MS < at + 1000
    return time_of(ref.id) + LATE_MS < at


def _passed_by(ref: MessageRef, at: int, *, ordered: bool) -> bool:
    """Whether receives, or visits of an ordered shard, may begin behind an insert at `at` (ms).

    They pass ids that are half a second old, on ordered topics two seconds. The stream stamps whole
    seconds: a message committed a second later than that always counts as late, and so does one in
    fifty of those committed at once.
    """
    if ref.due is not None:
        return ref.due - at <= RECEIVES_CHECK_MS
    return time_of(ref.id) + (1000 if ordered else 0) < at
