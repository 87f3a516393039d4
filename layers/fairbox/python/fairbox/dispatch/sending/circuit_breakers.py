"""Circuits: permission to send to a subscription, by the answers of its destination.

Functions share them through the subscriptions' rows. An invocation pays nothing while all is well:
the row that it reads anyway says whether a circuit opened or a pause began. While a circuit is open
nothing is sent, written or read for its subscription but probes, one at a time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from fairbox.dispatch.delivery import Admitted, Job
from fairbox.dispatch.sending.rate_limits import Rates
from fairbox.errors import FairboxError
from fairbox.model.clock import Clock, milliseconds
from fairbox.model.topic_states import FAILURES_TO_OPEN, NEW, CircuitEvent
from fairbox.model.topics import GROUPS, Subscription

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from random import Random

    from fairbox.dispatch.ports import Doorbell, Outcome
    from fairbox.model.messages import MessageRef
    from fairbox.model.topic_states import Admission, SubscriptionStatus, TopicState
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

Name = tuple[str, str]
CallVerdict = Literal["taken", "failure", "gone", "nothing"]

SHARED_WAIT_SECONDS: Final = 1.0
"""A shorter wait that a destination asks for is not shared with others."""


@dataclass(slots=True)
class _Copy:
    status: SubscriptionStatus
    announced: int
    read_at: int


class Gate:
    """Admits jobs, and takes the outcomes of calls; implements `Readiness`.

    Five calls that failed in a row open a circuit. When a destination refuses a call without an
    error about itself, one message may be to blame: the refusal counts only if that message had
    never been tried, so that one poisoned message opens nothing.

    Args:
        tables: the status of subscriptions.
    """

    def __init__(self, tables: Tables, clock: Clock, rng: Random) -> None:
        self._tables = tables
        self._clock = clock
        self._rng = rng
        self._rates = Rates(tables, clock)
        self._statuses: dict[Name, _Copy] = {}
        self._runs: dict[Name, int] = {}  # calls that failed in a row
        self._probes: dict[Name, SubscriptionStatus] = {}  # on their way from here
        self._events: list[CircuitEvent] = []
        self._errors: list[str] = []
        self._lock = threading.RLock()

    def admission(self, topic: TopicState) -> Admission:
        """Return how many messages of a topic may be sent: all, one as a probe, or none.

        Raises:
            FairboxError: the status of its subscriptions could not be read.
        """
        now, name = milliseconds(self._clock), topic.topic.name
        with self._lock:
            self._update(name, [s.name for s in topic.subscriptions], now)
            admitted = {self._copy(name, s.name).admits(now) for s in topic.subscriptions}
        return "all" if "all" in admitted else "one" if "one" in admitted else "none"

    def quiet_until(self, topic: TopicState) -> int:
        """Return when the first of a topic's circuits may be probed (ms); 0: nobody knows."""
        with self._lock:
            statuses = [self._copy(topic.topic.name, s.name) for s in topic.subscriptions]
        return min((s.until for s in statuses if not s.ready and not s.paused), default=0)

    def next_probes(self, topic: TopicState) -> dict[str, int]:
        """Return by subscription that is not ready when it may be probed (ms).

        0: nobody knows, because it is paused.
        """
        with self._lock:
            statuses = {s.name: self._copy(topic.topic.name, s.name) for s in topic.subscriptions}
        return {
            name: 0 if status.paused else status.until
            for name, status in statuses.items()
            if not status.ready
        }

    def ready(self, subscription: Subscription) -> bool:
        """Whether messages may be sent now: the circuit is closed, or a probe is on its way."""
        name = (subscription.topic, subscription.name)
        with self._lock:
            return name in self._probes or self._copy(*name).ready

    def in_flight_limit(self, subscription: Subscription, *, ordered: bool) -> int | None:
        """Return a visit's part of the limit in flight, because visits share it."""
        limit = subscription.max_in_flight
        if limit is None:
            return None
        return limit // (min(GROUPS, limit) if ordered else subscription.groups)

    def room(self, subscription: Subscription) -> int | None:
        """Return how many messages have a token of the rate (0.5 RRU); None: there is no rate.

        Raises:
            FairboxError: it could not be read.
        """
        if subscription.rate is None:
            return None
        with self._lock:
            return self._rates.room(subscription)

    def turn(self, subscription: Subscription, shard: int, shards: int, *, served: bool) -> int:
        """Return when the messages of a shard that have no token get their next turn (ms)."""
        return self._rates.turn(subscription, shard, shards, served=served)

    def turns(
        self,
        doorbell: Doorbell,
        topic: TopicState,
        waiting: Collection[str],
        served: Collection[str],
    ) -> dict[str, int]:
        """Return by subscription with a rate when the shard's messages get their next turn (ms).

        Args:
            doorbell: names the shard.
            topic: its topic.
            waiting: the subscriptions whose messages have no token.
            served: those of them that were called, or for which a second later there may be room.
        """
        epoch = topic.epoch(doorbell.epoch)
        shards = doorbell.shard + 1 if epoch is None else epoch.shards
        return {
            s.name: self.turn(s, doorbell.shard, shards, served=s.name in served)
            for s in topic.subscriptions
            if s.name in waiting and s.rate is not None
        }

    def admit(self, jobs: Sequence[Job]) -> Admitted:
        """Return the jobs that may be sent now; a probe is claimed (1 WRU).

        Raises:
            FairboxError: the status of their subscriptions could not be read.
        """
        now = milliseconds(self._clock)
        lines: dict[Name, list[Job]] = {}
        for job in jobs:
            lines.setdefault((job.subscription.topic, job.subscription.name), []).append(job)
        admitted = Admitted()
        chosen: set[int] = set()

        with self._lock:
            for topic in dict.fromkeys(topic for topic, _ in lines):
                self._update(topic, [name for t, name in lines if t == topic], now)
            for name, line in lines.items():
                passed = self._pass(name, line)
                if passed and passed[0].subscription.rate is not None and name not in self._probes:
                    if len(paced := self._rates.admit(passed)) < len(passed):
                        admitted.paced.add(name[1])
                    passed = paced
                # by identity: the order of all jobs is kept below
                chosen |= {id(job) for job in passed}

        for job in jobs:
            if id(job) in chosen:
                admitted.jobs.append(job)
            else:
                admitted.waiting.add((job.stored.ref, job.subscription.name))
        return admitted

    def answered(
        self, subscription: Subscription, answers: Sequence[tuple[StoredMessage, Outcome]]
    ) -> None:
        """Take the outcomes of one call: they open circuits, and close probed ones."""
        name = (subscription.topic, subscription.name)
        verdict, decisive = _judge(subscription.name, answers)
        ref = answers[0][0].ref

        with self._lock:
            probe = self._probes.pop(name, None)
            try:
                if probe is not None:
                    self._conclude(name, probe, verdict, decisive, ref)
                # only failures in a row open a circuit
                elif verdict == "taken":
                    self._runs.pop(name, None)
                elif verdict == "gone":
                    self._leave(name, self._copy(*name), decisive, ref)
                elif verdict == "failure":
                    self._count(name, decisive, ref)
            except FairboxError as error:
                self._errors.append(str(error))  # the next failure, or probe, tries again

    def drain(self) -> tuple[list[CircuitEvent], list[str]]:
        """Return the changes of circuits and the errors since the last time, each of them once."""
        with self._lock:
            drained = self._events, self._errors
            self._events, self._errors = [], []
            self._probes.clear()  # one that was not sent: another may go after 20 s
        return drained

    def _copy(self, topic: str, name: str) -> SubscriptionStatus:
        copy = self._statuses.get((topic, name))
        return NEW if copy is None else copy.status

    def _update(self, topic: str, names: Sequence[str], now: int) -> None:
        """Bring the copies up to date: at no cost, unless there is news that only the rows have."""
        announced = self._tables.topic_cache.stamp(topic)
        stale = []
        for name in names:
            copy = self._statuses.get((topic, name))
            if copy is None or copy.announced != announced:
                state, at = self._tables.topic_cache.with_stamp(topic)
                if at == announced:
                    status = NEW if state is None else state.status(name)
                    self._statuses[topic, name] = _Copy(status, announced, now)
                else:
                    stale.append(name)
            elif copy.status.is_stale(copy.read_at, now):
                stale.append(name)

        if stale:
            found = self._tables.circuits.read(topic, stale)
            for name in stale:
                self._statuses[topic, name] = _Copy(found.get(name, NEW), announced, now)

    def _pass(self, name: Name, line: list[Job]) -> list[Job]:
        """Return the jobs that a circuit admits: all, or one as a probe that nobody has tried."""
        status = self._copy(*name)
        if status.ready:
            return line

        now = milliseconds(self._clock)
        admission = status.admits(now)
        if admission == "one" and name not in self._probes:
            claim = status.probing(now, self._rng)
            # only one process may send the probe: the row says whose it is
            if self._write(name, claim, status, announce=False):
                self._probes[name] = claim
                return [_probe(line)]
            # another was faster: its copy says what is left to do
            admission = self._copy(*name).admits(now)
        return line if admission == "all" else []

    def _write(
        self, name: Name, after: SubscriptionStatus, before: SubscriptionStatus, *, announce: bool
    ) -> bool:
        """Write its status; return whether the row has it now: others may have been faster."""
        there = self._tables.circuits.write(*name, after, before, announce=announce)
        now = milliseconds(self._clock)
        self._statuses[name] = _Copy(there or NEW, self._tables.topic_cache.stamp(name[0]), now)
        return there == after

    def _count(self, name: Name, outcome: Outcome, ref: MessageRef) -> None:
        status = self._copy(*name)
        if not status.ready:
            return  # a call that was on its way when the circuit opened

        run = self._runs[name] = self._runs.get(name, 0) + 1
        asked = outcome.retry_after if outcome.verdict == "throttled" else None
        shared = asked is not None and asked >= SHARED_WAIT_SECONDS
        if run < FAILURES_TO_OPEN and not shared:
            return

        now = milliseconds(self._clock)
        opened = status.opened(now, outcome.error, self._rng, asked=asked if shared else None)
        # announced: others do not read the status of a closed circuit again without news
        if self._write(name, opened, status, announce=True):
            self._events.append(
                CircuitEvent(*name, "opened", outcome.error, ref, opened.until, opened.since)
            )
        self._runs.pop(name, None)

    def _conclude(
        self,
        name: Name,
        probe: SubscriptionStatus,
        verdict: CallVerdict,
        outcome: Outcome,
        ref: MessageRef,
    ) -> None:
        """Write the result of a probe."""
        now = milliseconds(self._clock)
        if verdict == "gone":
            self._leave(name, probe, outcome, ref)
        elif verdict == "taken":
            self._runs.pop(name, None)
            if self._write(name, probe.closed(), probe, announce=False):
                self._events.append(
                    CircuitEvent(*name, "closed", outcome.error, ref, since=probe.since)
                )
        else:
            # if the message alone was at fault, another probe has to tell
            after = probe.undecided(now)
            if verdict == "failure":
                asked = outcome.retry_after if outcome.verdict == "throttled" else None
                after = probe.opened(now, outcome.error, self._rng, asked=asked)
            if self._write(name, after, probe, announce=False):
                self._events.append(
                    CircuitEvent(*name, "probed", outcome.error, ref, after.until, after.since)
                )

    def _leave(
        self, name: Name, before: SubscriptionStatus, outcome: Outcome, ref: MessageRef
    ) -> None:
        """Pause a subscription whose receiver no longer wants messages."""
        after = before.paused_by(milliseconds(self._clock), outcome.error)
        if not before.paused and self._write(name, after, before, announce=True):
            self._events.append(CircuitEvent(*name, "gone", outcome.error, ref))


def _probe(line: Sequence[Job]) -> Job:
    """Return the job to probe with: the first of those tried least, of each key only its first."""
    firsts: dict[tuple[str, str] | int, Job] = {}
    for job in line:
        firsts.setdefault(job.order_key if job.in_order else id(job), job)
    return min(firsts.values(), key=lambda j: j.stored.state(j.subscription.name).attempts)


def _judge(
    name: str, answers: Sequence[tuple[StoredMessage, Outcome]]
) -> tuple[CallVerdict, Outcome]:
    """Return the verdict of a call on its destination, and the outcome that decides it.

    One message taken means that the destination is well. A refusal that may be the message's own
    fault counts only if that message had never been tried; one that surely is does not count.
    """
    for _, outcome in answers:
        if outcome.verdict == "taken":
            return "taken", outcome

    for _, outcome in answers:
        if outcome.verdict == "gone":
            return "gone", outcome

    for stored, outcome in answers:
        fresh = stored.state(name).attempts == 0
        if outcome.blames == "destination" or (outcome.blames == "unknown" and fresh):
            return "failure", outcome
    return "nothing", answers[0][1]
