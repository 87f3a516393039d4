"""The dispatcher: sends messages to their subscriptions, then deletes, retries or buries them.

Relay and visit run this one code. Delivery is at least once: send, then delete. On the happy path
a message costs one delete and no other write.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairbox.clock import milliseconds
from fairbox.dispatch.deciding import decide, next_due
from fairbox.dispatch.packing import Job
from fairbox.dispatch.ports import Doorbell
from fairbox.dispatch.sending import Sender, at_once, in_turn
from fairbox.errors import BatchBusy, FairboxError
from fairbox.stored import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

    from fairbox.clock import Clock
    from fairbox.dispatch.ports import Destinations, Doorbells, Outcome, Store
    from fairbox.dispatch.readiness import Readiness
    from fairbox.dispatch.sending import FanOut, Outcomes
    from fairbox.messages import MessageRef
    from fairbox.topics import TopicState

_CAS_TRIES: Final = 8
_BUSY_MS: Final = 1000  # until a message is visited whose item's group others kept changing


@dataclass(slots=True)
class Report:
    """What came of a delivery.

    Attributes:
        sent: (topic, subscription) -> messages taken.
        failed: (topic, subscription) -> attempts counted.
        dead: (topic, subscription) -> messages that died.
        bytes: (topic, subscription) -> bytes of the bodies of what was taken.
        delivered: messages that left the outbox.
        left: of a delivery to quick ones only, what others still lack who were not tried.
        errors: what went wrong with the tables; the sweep takes these messages up.
        again: of ordered topics, when to visit the shard next (ms), for the visit to ring; None:
            nothing that was tried here has to wait.
    """

    sent: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    failed: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    dead: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    bytes: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    delivered: int = 0
    left: list[MessageRef] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    again: int | None = None

    @property
    def progress(self) -> int:
        """How much moved: what was taken and what died."""
        return sum(self.sent.values()) + sum(self.dead.values())


class Dispatcher:
    """Delivers messages that somebody read or was handed.

    Args:
        store: the tables.
        destinations: opens destinations.
        doorbells: rings for what has to wait.
        clock, rng: time and jitter.
        fan_out: runs the calls to several destinations; `at_once` or `in_turn`.
        readiness: says which subscriptions are ready; by default all are.
    """

    def __init__(
        self,
        store: Store,
        destinations: Destinations,
        doorbells: Doorbells,
        *,
        clock: Clock,
        rng: Random,
        fan_out: FanOut = at_once,
        readiness: Readiness | None = None,
    ) -> None:
        self.store = store
        self.doorbells = doorbells
        self.clock = clock
        self._sender = Sender(store, destinations, clock, fan_out, readiness)
        self._rng = rng

    def quick(self, topic: TopicState) -> bool:
        """Whether a subscription of the topic may be called from the stream."""
        return any(self._sender.quick(s) for s in topic.subscriptions)

    def deliver(
        self,
        messages: Sequence[StoredMessage],
        *,
        deadline: float,
        timeout: float = 14.0,
        held: set[tuple[str, str]] | None = None,
        quick_only: bool = False,
    ) -> Report:
        """Send what is due to the subscriptions that lack it, and write down what came of it.

        Args:
            messages: outstanding messages of pushed topics, in the order to send them.
            deadline: no call begins after this time (seconds since 1970).
            timeout: seconds that one call may take, where the subscription does not say less.
            held: of ordered topics, the (subscription, key) whose turn it is not; what fails or
                is not due is added, so that its followers in later pages wait too.
            quick_only: leave out who may not be called from the stream; the report names what is
                `left`, and nothing rings for it here.

        Returns:
            The report; it raises for nothing that a destination does.
        """
        report = Report()
        held = set() if held is None else held
        jobs: list[Job] = []
        topics: dict[str, TopicState] = {}
        for stored in messages:
            topic = self.store.topic(stored.ref.topic)
            if topic is not None and topic.pushed:
                topics[stored.ref.topic] = topic
                jobs += self._jobs(stored, topic, held)
        if quick_only:
            jobs = [job for job in jobs if self._sender.quick(job.subscription)]
        outcomes = self._sender.send(jobs, deadline, timeout, quick_only=quick_only)
        for job in (job for job in jobs if job.in_order):
            outcome = outcomes.get((job.stored.ref, job.subscription.name))
            if outcome is None or not outcome.taken:
                held.add(job.hold)
        those = [s for s in messages if s.ref.topic in topics]
        self._conclude(those, topics, outcomes, report, quick_only=quick_only)
        return report

    def _jobs(
        self, stored: StoredMessage, topic: TopicState, held: set[tuple[str, str]]
    ) -> Iterator[Job]:
        now = milliseconds(self.clock)
        in_order = topic.topic.ordering == "key"
        lacking = stored.lacking(topic.subscription_names)
        for subscription in topic.subscriptions:
            job = Job(subscription, stored, in_order, topic.topic)
            if subscription.name not in lacking or (in_order and job.hold in held):
                continue
            if stored.due(subscription.name) <= now:
                yield job
            elif in_order:
                held.add(job.hold)

    def _conclude(
        self,
        messages: Sequence[StoredMessage],
        topics: Mapping[str, TopicState],
        outcomes: Outcomes,
        report: Report,
        *,
        quick_only: bool,
    ) -> None:
        gone: list[StoredMessage] = []
        rings: dict[tuple[str, int, int, int], list[MessageRef]] = defaultdict(list)
        for stored in messages:
            topic = topics[stored.ref.topic]
            mine = {
                name: outcomes[stored.ref, name]
                for name in topic.subscription_names
                if (stored.ref, name) in outcomes
            }
            _count_sent(stored, mine, report)
            died = sum(report.dead.values())
            try:
                due = self._settle(stored, topic, mine, gone, report)
            except FairboxError as error:
                report.errors.append(str(error))
                continue
            if topic.topic.ordering == "key":
                # one doorbell a visit, and none for who only waits for the head of its key: else
                # every visit would ring for every follower, and doorbells multiply
                if sum(report.dead.values()) > died:
                    due = milliseconds(self.clock)
                if mine and due is not None:
                    report.again = min(due, report.again or due)
            elif due is not None and quick_only and self._left_out(stored, topic, mine):
                report.left.append(stored.ref)
            elif due is not None:
                ref = stored.ref
                rings[ref.topic, ref.epoch, ref.shard, -(-due // 1000)].append(ref)
        try:
            if gone:
                self.store.delete(gone)
                report.delivered += len(gone)
        except FairboxError as error:
            report.errors.append(str(error))
        self._ring(rings, report)

    def _left_out(
        self, stored: StoredMessage, topic: TopicState, tried: Mapping[str, Outcome]
    ) -> bool:
        """Whether somebody was not tried because it may not be called from the stream."""
        lacking = stored.lacking(topic.subscription_names) - tried.keys()
        return any(s.name in lacking and not self._sender.quick(s) for s in topic.subscriptions)

    def _ring(
        self, rings: Mapping[tuple[str, int, int, int], list[MessageRef]], report: Report
    ) -> None:
        doorbells = [
            Doorbell(topic, epoch, shard, tuple(refs), second * 1000)
            for (topic, epoch, shard, second), refs in rings.items()
        ]
        try:
            if doorbells:
                self.doorbells.ring(doorbells)
        except FairboxError as error:
            report.errors.append(str(error))

    def _settle(
        self,
        stored: StoredMessage,
        topic: TopicState,
        outcomes: Mapping[str, Outcome],
        gone: list[StoredMessage],
        report: Report,
    ) -> int | None:
        """Write one message's outcome; return when to ring for it, None when not to."""
        try:
            return self._write(stored, topic, outcomes, gone, report)
        except BatchBusy as error:
            report.errors.append(str(error))
            return milliseconds(self.clock) + _BUSY_MS

    def _write(
        self,
        stored: StoredMessage,
        topic: TopicState,
        outcomes: Mapping[str, Outcome],
        gone: list[StoredMessage],
        report: Report,
    ) -> int | None:
        before = stored
        for _ in range(_CAS_TRIES):
            now = milliseconds(self.clock)
            decision = decide(before, topic, outcomes, now=now, rng=self._rng)
            after, died = decision.after, decision.died
            if decision.delivered and not before.any_dead:
                gone.append(before)
                return None
            if decision.delivered:
                # not to be deleted with the others: a redrive may have put back whom it died for
                saved = self.store.delete_unchanged(before)
            elif after == before:
                saved = "saved"
            elif died and decision.left:
                saved = self.store.bury_partly(after, before, died)
            else:
                saved = self.store.save_state(after, before)
            if isinstance(saved, StoredMessage) and not saved.gone:
                before = saved
                continue
            if saved != "saved":
                return None  # it has left, or whoever marked it finishes it
            if decision.delivered:
                report.delivered += 1
                return None
            _count(stored, outcomes, died, report)
            if after.gone:
                self._leave(after, died, report)
                return None
            return next_due(decision, outcomes, now=now, rng=self._rng)
        return milliseconds(self.clock) + _BUSY_MS

    def _leave(self, marked: StoredMessage, died: frozenset[str], report: Report) -> None:
        """Take a message that was just marked out of the outbox."""
        if died:
            self.store.bury(marked, died)
        else:
            self.store.delete_marked(marked)
        report.delivered += 1


def _count_sent(stored: StoredMessage, outcomes: Mapping[str, Outcome], report: Report) -> None:
    for name, outcome in outcomes.items():
        report.sent[stored.ref.topic, name] += outcome.taken
        report.bytes[stored.ref.topic, name] += stored.size if outcome.taken else 0


def _count(
    stored: StoredMessage, outcomes: Mapping[str, Outcome], died: frozenset[str], report: Report
) -> None:
    for name, outcome in outcomes.items():
        report.failed[stored.ref.topic, name] += outcome.verdict == "refused"
    for name in died:
        report.dead[stored.ref.topic, name] += 1


__all__ = ["Dispatcher", "Report", "at_once", "in_turn"]
