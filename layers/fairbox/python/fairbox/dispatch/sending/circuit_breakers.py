"""Circuits: what may be sent to whom, by how its destination has answered; shared by the rows.

An invocation pays for nothing while all is well: whether a circuit opened or a pause began stands
in the row that it reads anyway. While a circuit is open nothing is sent, written or read for its
subscription but probes, one at a time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

from fairbox.dispatch.ports import Store
from fairbox.dispatch.sending.rate_limits import Rates, RateStore
from fairbox.errors import FairboxError
from fairbox.model.clock import milliseconds
from fairbox.model.subscription_status import FAILURES_TO_OPEN, NEW
from fairbox.model.topics import GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from fairbox.dispatch.ports import Outcome
    from fairbox.dispatch.sending.jobs import Job
    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.subscription_status import Admission, Standing
    from fairbox.model.topics import Subscription, TopicState

Name = tuple[str, str]
Saying = Literal["taken", "failure", "gone", "nothing"]

SHARED_WAIT_SECONDS: Final = 1.0
"""A wait that a destination asks for is everybody's from here on; a shorter one is not shared."""


class StandingStore(RateStore, Protocol):
    """How subscriptions stand, in the tables."""

    @property
    def announced(self) -> int:
        """How many circuits had opened, and pauses changed, at the last refresh."""
        ...

    def standings(self, topic: str) -> tuple[Mapping[str, Standing], int]:
        """Return how a topic's subscriptions stood when it was read, and `announced` of then."""
        ...

    def read_standings(self, topic: str, subscriptions: Iterable[str]) -> dict[str, Standing]:
        """Return how these subscriptions stand now (1 RRU each)."""
        ...

    def write_standing(
        self, topic: str, name: str, after: Standing, before: Standing, *, announce: bool
    ) -> Standing | None:
        """Write how a subscription stands where it stands as in `before`.

        Returns:
            How it stands now: `after`, or what somebody else wrote. None: it was removed.
        """
        ...


class DispatchStore(Store, StandingStore, Protocol):
    """The tables, as a dispatcher uses them."""


@dataclass(frozen=True, slots=True)
class Event:
    """What became of a circuit: `opened`, `probed` in vain, `closed`; or the receiver is `gone`.

    Attributes:
        topic, subscription: whose.
        kind: what happened.
        reason: what the destination said.
        ref: a message of the call that it came of.
        until: opened or probed: when the next probe may go (ms).
    """

    topic: str
    subscription: str
    kind: Literal["opened", "probed", "closed", "gone"]
    reason: str
    ref: MessageRef
    until: int = 0


@dataclass(slots=True)
class Admitted:
    """What may be sent of some jobs.

    Attributes:
        jobs: in the order given.
        waiting: the others, as (ref, subscription): who closes their circuit rings, or whoever
            goes on at `resume`.
        resume: when what has no token of its rate may go on (ms); None: all had one.
    """

    jobs: list[Job] = field(default_factory=list)
    waiting: set[tuple[MessageRef, str]] = field(default_factory=set)
    resume: int | None = None


@dataclass(slots=True)
class _Copy:
    standing: Standing
    announced: int
    read_at: int


class Gate:
    """Lets jobs through, and hears what came of them; implements `Readiness`.

    Five calls that failed in a row open a circuit. Of a call that a destination refuses without
    speaking of itself, one message may be to blame: it counts only where that message had never
    been tried, so that one poisoned message opens nothing.

    Args:
        store: how subscriptions stand.
        clock, rng: time and jitter.
    """

    def __init__(self, store: StandingStore, clock: Clock, rng: Random) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._rates = Rates(store, clock)
        self._copies: dict[Name, _Copy] = {}
        self._runs: dict[Name, int] = {}  # calls that failed in a row
        self._probes: dict[Name, Standing] = {}  # on their way from here
        self._events: list[Event] = []
        self._errors: list[str] = []
        self._lock = threading.RLock()

    def look(self, topic: TopicState) -> Admission:
        """Return how many messages of a topic may go to anybody: all, one as a probe, or none.

        Raises:
            FairboxError: how its subscriptions stand could not be read.
        """
        now = milliseconds(self._clock)
        with self._lock:
            names = [(topic.topic.name, s.name) for s in topic.subscriptions]
            self._look(topic.topic.name, [name for _, name in names])
            admitted = {self._copy(*name).admits(now) for name in names}
        return "all" if "all" in admitted else "one" if "one" in admitted else "none"

    def quiet_until(self, topic: TopicState) -> int:
        """Return when the first of a topic's circuits may be probed (ms); 0: nobody knows."""
        with self._lock:
            stand = [self._copy(topic.topic.name, s.name) for s in topic.subscriptions]
        return min((s.until for s in stand if not s.ready and not s.paused), default=0)

    def next_probe(self, subscription: Subscription) -> int | None:
        """Return when a subscription that is not ready may be probed (ms).

        0: nobody knows, for it is paused; None: it is ready.
        """
        with self._lock:
            standing = self._copy(subscription.topic, subscription.name)
        if standing.paused:
            return 0
        return None if standing.ready else standing.until

    def ready(self, subscription: Subscription) -> bool:
        """Whether messages may go there now: its circuit is closed, or its probe is on its way."""
        name = (subscription.topic, subscription.name)
        with self._lock:
            return name in self._probes or self._copy(*name).ready

    def in_flight_limit(self, subscription: Subscription) -> int | None:
        """Return how many of the messages in flight are one call's: visits share the limit."""
        limit = subscription.max_in_flight
        return None if limit is None else limit // min(GROUPS, limit)

    def admit(self, jobs: Sequence[Job]) -> Admitted:
        """Return which of these jobs may be sent now; a probe is claimed (1 WRU).

        Raises:
            FairboxError: how their subscriptions stand could not be read.
        """
        lines: dict[Name, list[Job]] = {}
        for job in jobs:
            lines.setdefault((job.subscription.topic, job.subscription.name), []).append(job)
        admitted = Admitted()
        chosen: set[int] = set()
        with self._lock:
            for topic in dict.fromkeys(topic for topic, _ in lines):
                self._look(topic, [name for t, name in lines if t == topic])
            for name, line in lines.items():
                passed = self._pass(name, line)
                if name not in self._probes:
                    passed, resume = self._rates.pass_(passed)
                    times = [at for at in (resume, admitted.resume) if at is not None]
                    admitted.resume = min(times, default=None)
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
        """Hear what one call came to: circuits open, are probed and close by it."""
        name = (subscription.topic, subscription.name)
        saying, spoken = _saying(subscription.name, answers)
        ref = answers[0][0].ref
        with self._lock:
            probe = self._probes.pop(name, None)
            try:
                if probe is not None:
                    self._conclude(name, probe, saying, spoken, ref)
                elif saying == "taken":
                    self._runs.pop(name, None)
                elif saying == "gone":
                    self._leave(name, self._copy(*name), spoken, ref)
                elif saying == "failure":
                    self._count(name, spoken, ref)
            except FairboxError as error:
                self._errors.append(str(error))  # the next failure, or probe, tries again

    def drain(self) -> tuple[list[Event], list[str]]:
        """Return what became of circuits since the last time, and what went wrong; once."""
        with self._lock:
            drained = self._events, self._errors
            self._events, self._errors = [], []
            self._probes.clear()  # one that was not sent: another may go after 20 s
        return drained

    def _copy(self, topic: str, name: str) -> Standing:
        copy = self._copies.get((topic, name))
        return NEW if copy is None else copy.standing

    def _look(self, topic: str, names: Sequence[str]) -> None:
        """Bring the copies up to date: for nothing, unless there is news that only rows tell."""
        now, announced = milliseconds(self._clock), self._store.announced
        stale = []
        for name in names:
            copy = self._copies.get((topic, name))
            if copy is None:
                loaded, at = self._store.standings(topic)
                if at == announced:
                    standing = loaded.get(name, NEW)
                    self._copies[topic, name] = _Copy(standing, announced, now)
                    continue
            fresh = copy is not None and copy.announced == announced
            if copy is None or not fresh or copy.standing.wants_look(copy.read_at, now):
                stale.append(name)
        if stale:
            found = self._store.read_standings(topic, stale)
            for name in stale:
                self._copies[topic, name] = _Copy(found.get(name, NEW), announced, now)

    def _pass(self, name: Name, line: list[Job]) -> list[Job]:
        """Return what a circuit lets through: all, or one that nobody has tried as a probe."""
        now = milliseconds(self._clock)
        standing = self._copy(*name)
        admission = standing.admits(now)
        if admission == "one" and name not in self._probes:
            claim = standing.probing(now, self._rng)
            if self._write(name, claim, standing, announce=False):
                self._probes[name] = claim
                return [_probe(line)]
            admission = self._copy(*name).admits(now)
        return line if admission == "all" else []

    def _write(self, name: Name, after: Standing, before: Standing, *, announce: bool) -> bool:
        """Write how it stands; return whether it does, for somebody else may have been first."""
        there = self._store.write_standing(*name, after, before, announce=announce)
        now = milliseconds(self._clock)
        self._copies[name] = _Copy(there or NEW, self._store.announced, now)
        return there == after

    def _count(self, name: Name, outcome: Outcome, ref: MessageRef) -> None:
        standing = self._copy(*name)
        if not standing.ready:
            return  # a call that was on its way when the circuit opened
        run = self._runs[name] = self._runs.get(name, 0) + 1
        asked = outcome.retry_after if outcome.verdict == "throttled" else None
        told = asked is not None and asked >= SHARED_WAIT_SECONDS
        if run < FAILURES_TO_OPEN and not told:
            return
        now = milliseconds(self._clock)
        opened = standing.opened(now, outcome.error, self._rng, asked=asked if told else None)
        if self._write(name, opened, standing, announce=True):
            self._events.append(Event(*name, "opened", outcome.error, ref, opened.until))
        self._runs.pop(name, None)

    def _conclude(
        self, name: Name, probe: Standing, saying: Saying, outcome: Outcome, ref: MessageRef
    ) -> None:
        """Write what a probe came to."""
        now = milliseconds(self._clock)
        if saying == "gone":
            self._leave(name, probe, outcome, ref)
        elif saying == "taken":
            self._runs.pop(name, None)
            if self._write(name, probe.closed(), probe, announce=False):
                self._events.append(Event(*name, "closed", outcome.error, ref))
        else:
            after = probe.undecided(now)
            if saying == "failure":
                asked = outcome.retry_after if outcome.verdict == "throttled" else None
                after = probe.opened(now, outcome.error, self._rng, asked=asked)
            if self._write(name, after, probe, announce=False):
                self._events.append(Event(*name, "probed", outcome.error, ref, after.until))

    def _leave(self, name: Name, before: Standing, outcome: Outcome, ref: MessageRef) -> None:
        """Pause a subscription whose receiver wants no more."""
        after = before.paused_by(milliseconds(self._clock), outcome.error)
        if not before.paused and self._write(name, after, before, announce=True):
            self._events.append(Event(*name, "gone", outcome.error, ref))


def _probe(line: Sequence[Job]) -> Job:
    """Return the job to probe with: the first of those tried least, of each key only its first."""
    firsts: dict[tuple[str, str] | int, Job] = {}
    for job in line:
        firsts.setdefault(job.hold if job.in_order else id(job), job)
    return min(firsts.values(), key=lambda j: j.stored.state(j.subscription.name).attempts)


def _saying(name: str, answers: Sequence[tuple[StoredMessage, Outcome]]) -> tuple[Saying, Outcome]:
    """Return what a call says of its destination, and the outcome that says it.

    One message taken says that it is well. A refusal that may be the message's own fault says
    something only of a message that had never been tried; one that surely is says nothing.
    """
    for _, outcome in answers:
        if outcome.taken:
            return "taken", outcome
    for _, outcome in answers:
        if outcome.verdict == "gone":
            return "gone", outcome
    for stored, outcome in answers:
        fresh = stored.state(name).attempts == 0
        if outcome.blames == "destination" or (outcome.blames == "unknown" and fresh):
            return "failure", outcome
    return "nothing", answers[0][1]
