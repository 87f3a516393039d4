"""The dispatcher: sends messages to their subscriptions, then deletes, retries or buries them.

Relay and visit run this one code. Delivery is at least once: send, then delete. On the happy path
a message costs one delete and no other write.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from fairbox.dispatch.decisions import decide, next_due
from fairbox.dispatch.delivery_report import Report, count_failed, count_sent
from fairbox.dispatch.ports import Doorbell
from fairbox.dispatch.sending.circuit_breakers import Admitted, Gate
from fairbox.dispatch.sending.circuit_follow_up import follow_up
from fairbox.dispatch.sending.jobs import Job
from fairbox.dispatch.sending.sender import Sender, at_once, in_turn
from fairbox.errors import BatchBusy, FairboxError
from fairbox.model.clock import milliseconds
from fairbox.model.stored_messages import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

    from fairbox.dispatch.decisions import Decision
    from fairbox.dispatch.ports import Destinations, Doorbells, Outcome, Saved
    from fairbox.dispatch.sending.circuit_breakers import DispatchStore
    from fairbox.dispatch.sending.readiness import Readiness
    from fairbox.dispatch.sending.sender import FanOut
    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef
    from fairbox.model.topics import TopicState

_CAS_TRIES: Final = 8
_AFTER_PROBE_MS: Final = 5000
_AGAIN_MS: Final = 1000
_UNRUNG_MS: Final = 60_000
_BUSY_MS: Final = 1000  # until a message is visited whose item's group others kept changing


@dataclass(frozen=True, slots=True)
class _Said:
    """Of one message by subscription: what was answered, and when to ring for who was not asked."""

    outcomes: Mapping[str, Outcome]
    waits: Mapping[str, int | None]


class InOrder(Protocol):
    """Whose turn it is on an ordered shard."""

    def admits(self, stored: StoredMessage, name: str, now: int) -> bool:
        """Say whether a message that a subscription lacks may be sent to it at `now` (ms)."""
        ...

    def may_die(self, stored: StoredMessage, died: frozenset[str]) -> bool:
        """Say whether a message may die for these, after writing down what its death holds back.

        Raises:
            FairboxError: that could not be written.
        """
        ...


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
        store: DispatchStore,
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
        self.rng = rng

    def quick(self, topic: TopicState) -> bool:
        """Whether a subscription of the topic may be called from the stream."""
        return any(self._sender.quick(s) for s in topic.subscriptions)

    def deliver(
        self,
        messages: Sequence[StoredMessage],
        *,
        deadline: float,
        timeout: float = 14.0,
        turns: InOrder | None = None,
        quick_only: bool = False,
    ) -> Report:
        """Send what is due to the subscriptions that lack it, and write down what came of it.

        Args:
            messages: outstanding messages of pushed topics, in the order to send them.
            deadline: no call begins after this time (seconds since 1970).
            timeout: seconds that one call may take, where the subscription does not say less.
            turns: of an ordered shard, whose turn it is; the caller then rings for what waits.
            quick_only: leave out who may not be called from the stream; the report names what is
                `left`, and nothing rings for it here.

        Returns:
            The report; it raises for nothing that a destination does.
        """
        report = Report()
        jobs: list[Job] = []
        topics: dict[str, TopicState] = {}
        for stored in messages:
            topic = self.store.topic(stored.ref.topic)
            if topic is not None and topic.pushed:
                topics[stored.ref.topic] = topic
                jobs += self._jobs(stored, topic, turns)
        if quick_only:
            jobs = [job for job in jobs if self._sender.quick(job.subscription)]
        admitted = self._admit(jobs, report)
        report.resume = admitted.resume
        report.outcomes = self._sender.send(admitted.jobs, deadline, timeout, quick_only=quick_only)
        self._wait(jobs, admitted, report)
        follow_up(self.gate, topics, report, self.clock, self.doorbells)
        those = [s for s in messages if s.ref.topic in topics]
        self._conclude(those, topics, admitted, report, turns=turns, quick_only=quick_only)
        return report

    def _admit(self, jobs: Sequence[Job], report: Report) -> Admitted:
        """Return what circuits and rates let through; nothing where the tables do not say."""
        try:
            return self.gate.admit(jobs)
        except FairboxError as error:
            report.errors.append(str(error))
            return Admitted()

    def _wait(self, jobs: Sequence[Job], admitted: Admitted, report: Report) -> None:
        """Report when to come back to subscriptions that do not take everything now."""
        now = milliseconds(self.clock)
        for job in jobs:
            key = (job.stored.ref, job.subscription.name)
            outcome = report.outcomes.get(key)
            said = outcome is not None and outcome.verdict in ("taken", "refused")
            if said or key[1] in report.waits:
                continue
            probe = self.gate.next_probe(job.subscription)
            if probe is not None:
                report.waits[key[1]] = max(probe, now) + _UNRUNG_MS
                report.quiet.add(key[1])
            elif key in admitted.waiting:
                report.waits[key[1]] = max(admitted.resume or 0, now + _AGAIN_MS)

    def _jobs(
        self, stored: StoredMessage, topic: TopicState, turns: InOrder | None
    ) -> Iterator[Job]:
        now = milliseconds(self.clock)
        lacking = stored.lacking(topic.subscription_names)
        for subscription in topic.subscriptions:
            if subscription.name not in lacking:
                continue
            if turns is None:
                ready = stored.due(subscription.name) <= now
            else:
                ready = turns.admits(stored, subscription.name, now)
            if ready:
                yield Job(subscription, stored, topic.topic.ordering == "key", topic.topic)

    def _conclude(
        self,
        messages: Sequence[StoredMessage],
        topics: Mapping[str, TopicState],
        admitted: Admitted,
        report: Report,
        *,
        turns: InOrder | None,
        quick_only: bool,
    ) -> None:
        gone: list[StoredMessage] = []
        rings: dict[tuple[str, int, int, int], list[MessageRef]] = defaultdict(list)
        for stored in messages:
            topic = topics[stored.ref.topic]
            mine = {
                name: report.outcomes[stored.ref, name]
                for name in topic.subscription_names
                if (stored.ref, name) in report.outcomes
            }
            count_sent(stored, mine, report, milliseconds(self.clock))
            try:
                said = _Said(mine, self._waits(stored, topic, admitted, mine))
                due = self._settle(stored, topic, said, gone, report=report, turns=turns)
            except FairboxError as error:
                report.errors.append(str(error))
                report.unsettled.add(stored.ref)
                continue
            if due is None or turns is not None:
                continue
            if quick_only and self._left_out(stored, topic, mine):
                report.left.append(stored.ref)
            else:
                ref = stored.ref
                rings[ref.topic, ref.epoch, ref.shard, -(-due // 1000)].append(ref)
        try:
            if gone:
                self.store.delete(gone)
                report.delivered += len(gone)
        except FairboxError as error:
            report.errors.append(str(error))
            report.unsettled.update(stored.ref for stored in gone)
        self._ring(rings, report)

    def relayed(self, stored: StoredMessage, topic: TopicState) -> bool:
        """Whether the relay sends such a message, or would to somebody who lacks it."""
        lacking = stored.lacking(topic.subscription_names)
        return topic.topic.ordering == "none" and any(
            s.name in lacking and self._sender.quick(s) for s in topic.subscriptions
        )

    def _left_out(
        self, stored: StoredMessage, topic: TopicState, tried: Mapping[str, Outcome]
    ) -> bool:
        """Whether somebody was not tried because it may not be called from the stream."""
        lacking = stored.lacking(topic.subscription_names) - tried.keys()
        return any(
            s.name in lacking and not self._sender.quick(s) and self.gate.next_probe(s) is None
            for s in topic.subscriptions
        )

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

    def _waits(
        self,
        stored: StoredMessage,
        topic: TopicState,
        admitted: Admitted,
        outcomes: Mapping[str, Outcome],
    ) -> dict[str, int | None]:
        """Return by subscription that is not ready when to ring (ms); None: not for it."""
        waits: dict[str, int | None] = {}
        for subscription in topic.subscriptions:
            key = (stored.ref, subscription.name)
            probe = self.gate.next_probe(subscription)
            if key in admitted.waiting:
                waits[subscription.name] = None
            elif probe is not None:
                # who was tried comes after whoever was not, for whom it is rung at that time
                tried = probe > 0 and subscription.name in outcomes
                waits[subscription.name] = probe + _AFTER_PROBE_MS if tried else None
        return waits

    def _settle(
        self,
        stored: StoredMessage,
        topic: TopicState,
        said: _Said,
        gone: list[StoredMessage],
        *,
        report: Report,
        turns: InOrder | None,
    ) -> int | None:
        """Write one message's outcome; return when to ring for it, None when not to."""
        try:
            return self._write(stored, topic, said, gone, report=report, turns=turns)
        except BatchBusy as error:
            report.errors.append(str(error))
            report.unsettled.add(stored.ref)
            return milliseconds(self.clock) + _BUSY_MS

    def _write(
        self,
        stored: StoredMessage,
        topic: TopicState,
        said: _Said,
        gone: list[StoredMessage],
        *,
        report: Report,
        turns: InOrder | None,
    ) -> int | None:
        before, outcomes = stored, said.outcomes
        for _ in range(_CAS_TRIES):
            now = milliseconds(self.clock)
            decision = decide(before, topic, outcomes, now=now, rng=self.rng)
            after, died = decision.after, decision.died
            if decision.delivered and not before.any_dead:
                gone.append(before)
                return None
            if died and turns is not None and not turns.may_die(before, died):
                outcomes = {n: o for n, o in outcomes.items() if n not in died}
                continue
            saved = self._save(before, decision)
            if isinstance(saved, StoredMessage) and not saved.gone:
                before = saved
                continue
            if saved != "saved":
                return None  # it has left, or whoever marked it finishes it
            if decision.delivered:
                report.delivered += 1
                return None
            count_failed(stored, outcomes, died, report)
            report.after[stored.ref] = after
            if after.gone:
                self._leave(after, died, report)
                return None
            return next_due(decision, outcomes, said.waits, now=now, rng=self.rng)
        report.unsettled.add(stored.ref)
        return milliseconds(self.clock) + _BUSY_MS

    def _save(self, before: StoredMessage, decision: Decision) -> Saved:
        after, died = decision.after, decision.died
        if decision.delivered:
            # not to be deleted with the others: a redrive may have put back whom it died for
            return self.store.delete_unchanged(before)
        if after == before:
            return "saved"
        if died and decision.left:
            return self.store.bury_partly(after, before, died)
        return self.store.save_state(after, before)

    def _leave(self, marked: StoredMessage, died: frozenset[str], report: Report) -> None:
        """Take a message that was just marked out of the outbox."""
        if died:
            self.store.bury(marked, died)
        else:
            self.store.delete_marked(marked)
        report.delivered += 1


__all__ = ["Dispatcher", "Report", "at_once", "in_turn"]
