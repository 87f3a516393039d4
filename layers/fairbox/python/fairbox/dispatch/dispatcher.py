"""The dispatcher: sends messages to their subscriptions, then deletes, retries or buries them.

Relay and visit run this one code. Delivery is at least once: send, then delete. On the happy path
a message costs one delete and no other write.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairbox.clock import milliseconds
from fairbox.dispatch.circuits import Admitted, Gate
from fairbox.dispatch.deciding import decide, next_due
from fairbox.dispatch.packing import Job
from fairbox.dispatch.ports import Doorbell
from fairbox.dispatch.sending import Sender, at_once, in_turn
from fairbox.dispatch.waking import follow_up
from fairbox.errors import BatchBusy, FairboxError
from fairbox.ids import time_of
from fairbox.stored import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

    from fairbox.clock import Clock
    from fairbox.dispatch.circuits import Event
    from fairbox.dispatch.ports import Destinations, Doorbells, Outcome, Store
    from fairbox.dispatch.readiness import Readiness
    from fairbox.dispatch.sending import FanOut, Outcomes
    from fairbox.messages import MessageRef
    from fairbox.topics import TopicState

_CAS_TRIES: Final = 8
_AFTER_PROBE_MS: Final = 5000
_BUSY_MS: Final = 1000  # until a message is visited whose item's group others kept changing


@dataclass(slots=True)
class Report:
    """What came of a delivery.

    Attributes:
        sent: (topic, subscription) -> messages taken.
        failed: (topic, subscription) -> attempts counted.
        dead: (topic, subscription) -> messages that died.
        delivered: messages that left the outbox.
        retried: (topic, subscription) -> messages tried again.
        delay: (topic, subscription) -> the longest that a message taken had been due (s).
        circuits: what became of circuits.
        errors: what went wrong with the tables; the sweep takes these messages up.
        again: of ordered topics, when to visit the shard next (ms), for the visit to ring; None:
            nothing that was tried here has to wait.
    """

    sent: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    failed: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    dead: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    retried: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    delay: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    circuits: list[Event] = field(default_factory=list)
    delivered: int = 0
    errors: list[str] = field(default_factory=list)
    again: int | None = None

    @property
    def progress(self) -> int:
        """How much moved: what was taken and what died."""
        return sum(self.sent.values()) + sum(self.dead.values())


@dataclass(frozen=True, slots=True)
class _Said:
    """Of one message by subscription: what was answered, and when to ring for who was not asked."""

    outcomes: Mapping[str, Outcome]
    waits: Mapping[str, int | None]


class Dispatcher:
    """Delivers messages that somebody read or was handed.

    Args:
        store: the tables.
        destinations: opens destinations.
        doorbells: rings for what has to wait.
        clock, rng: time and jitter.
        fan_out: runs the calls to several destinations; `at_once` or `in_turn`.
        readiness: says which subscriptions are ready; by default circuits and limits do.
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
        self.gate = Gate(store, clock, rng)
        self._sender = Sender(store, destinations, clock, fan_out, readiness or self.gate)
        self._rng = rng

    def quick(self, topic: TopicState) -> bool:
        """Whether every subscription of the topic may be called from the stream."""
        return self._sender.quick(topic)

    def deliver(
        self,
        messages: Sequence[StoredMessage],
        *,
        deadline: float,
        timeout: float = 14.0,
        held: set[tuple[str, str]] | None = None,
    ) -> Report:
        """Send what is due to the subscriptions that lack it, and write down what came of it.

        Args:
            messages: outstanding messages of pushed topics, in the order to send them.
            deadline: no call begins after this time (seconds since 1970).
            timeout: seconds that one call may take, where the subscription does not say less.
            held: of ordered topics, the (subscription, key) whose turn it is not; what fails or
                is not due is added, so that its followers in later pages wait too.

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
        admitted = self._admit(jobs, report)
        outcomes = self._sender.send(admitted.jobs, deadline, timeout)
        for job in (job for job in jobs if job.in_order):
            outcome = outcomes.get((job.stored.ref, job.subscription.name))
            if outcome is None or not outcome.taken:
                held.add(job.hold)
        follow_up(self.gate, topics, report, self.clock, self.doorbells)
        concluded = [s for s in messages if s.ref.topic in topics]
        self._conclude(concluded, topics, outcomes, admitted, report)
        return report

    def _admit(self, jobs: Sequence[Job], report: Report) -> Admitted:
        """Return what circuits and rates let through; nothing where the tables do not say."""
        try:
            return self.gate.admit(jobs)
        except FairboxError as error:
            report.errors.append(str(error))
            return Admitted()

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
        admitted: Admitted,
        report: Report,
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
            self._count_sent(stored, mine, report)
            died = sum(report.dead.values())
            try:
                waits = self._waits(stored, topic, admitted)
                due = self._settle(stored, topic, _Said(mine, waits), gone, report)
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

    def _count_sent(
        self, stored: StoredMessage, outcomes: Mapping[str, Outcome], report: Report
    ) -> None:
        now = milliseconds(self.clock)
        for name, outcome in outcomes.items():
            key = (stored.ref.topic, name)
            report.sent[key] += outcome.taken
            report.retried[key] += stored.state(name).attempts > 0
            if outcome.taken:
                since = max(time_of(stored.ref.id), stored.ref.due or 0)
                report.delay[key] = max(report.delay[key], (now - since) / 1000)

    def _waits(
        self, stored: StoredMessage, topic: TopicState, admitted: Admitted
    ) -> dict[str, int | None]:
        """Return by subscription that is not ready when to ring (ms); None: not for it."""
        waits: dict[str, int | None] = {}
        for subscription in topic.subscriptions:
            key = (stored.ref, subscription.name)
            probe = self.gate.next_probe(subscription)
            if key in admitted.waits:
                waits[subscription.name] = admitted.waits[key]
            elif probe is not None:
                # after whoever was not tried yet, who is rung for at that time
                waits[subscription.name] = probe + _AFTER_PROBE_MS
        return waits

    def _settle(
        self,
        stored: StoredMessage,
        topic: TopicState,
        said: _Said,
        gone: list[StoredMessage],
        report: Report,
    ) -> int | None:
        """Write one message's outcome; return when to ring for it, None when not to."""
        try:
            return self._write(stored, topic, said, gone, report)
        except BatchBusy as error:
            report.errors.append(str(error))
            return milliseconds(self.clock) + _BUSY_MS

    def _write(
        self,
        stored: StoredMessage,
        topic: TopicState,
        said: _Said,
        gone: list[StoredMessage],
        report: Report,
    ) -> int | None:
        before, outcomes = stored, said.outcomes
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
            return next_due(decision, outcomes, said.waits, now=now, rng=self._rng)
        return milliseconds(self.clock) + _BUSY_MS

    def _leave(self, marked: StoredMessage, died: frozenset[str], report: Report) -> None:
        """Take a message that was just marked out of the outbox."""
        if died:
            self.store.bury(marked, died)
        else:
            self.store.delete_marked(marked)
        report.delivered += 1


def _count(
    stored: StoredMessage, outcomes: Mapping[str, Outcome], died: frozenset[str], report: Report
) -> None:
    for name, outcome in outcomes.items():
        report.failed[stored.ref.topic, name] += outcome.verdict == "refused"
    for name in died:
        report.dead[stored.ref.topic, name] += 1


__all__ = ["Dispatcher", "Report", "at_once", "in_turn"]
