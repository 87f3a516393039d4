"""Lines: the jobs of one address, their order, its calls in flight, and whether it is slow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from fairbox.dispatch.fair import Cycles, Work
from fairbox.dispatch.ports import Destination, Limits, Outcome, Outcomes
from fairbox.model.topics import IN_FLIGHT, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from fairbox.dispatch.delivery import Job
    from fairbox.model.clock import Clock
    from fairbox.tables.stored_messages import StoredMessage

NOTICES: Final = "fairbox."
"""The prefix of topics of Fairbox's own notices, such as completions: these are direct."""
GRACE_SECONDS: Final = 0.5
"""Seconds for which lines of a shared visit go on once another one has no more work."""
SLOW_SECONDS: Final = 1.0
"""A call that takes so long holds up the stream's other messages."""
SLOW_VISIT_SECONDS: Final = 0.2
"""A call that takes so long holds up a visit's other subscriptions."""
FIRST_REST_SECONDS: Final = 60.0
LONGEST_REST_SECONDS: Final = 960.0
_TRIAL_SHARE: Final = 0.1  # of the time, for which a process waits for lines that it does not know


def line_of(subscription: Subscription) -> str:
    """Return the line of a subscription: subscriptions on one line share calls.

    Those of one address do, but not where a call carries one message.
    """
    if subscription.destination.startswith(("http:", "https:", "lambda:")):
        return f"{subscription.topic}#{subscription.name}#{subscription.destination}"
    return subscription.destination


def rounds(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs with the first of every key before the second of any; unordered ones first.

    The order within a key stays, and a call can carry many keys.
    """
    seen: dict[tuple[str, str], int] = {}
    ranked = []
    for job in jobs:
        rank = 0
        if job.in_order:
            rank = seen[job.order_key] = seen.get(job.order_key, 0) + 1
        ranked.append((rank, job))
    return [job for _, job in sorted(ranked, key=lambda pair: pair[0])]


def work(job: Job) -> Work[Job]:
    """Return the job as pending work of its destination.

    A call carries at most one message of a key of an ordered topic. There neither tenants nor
    direct messages have turns of their own: a key's messages would overtake one another.
    """
    message, topic = job.stored.message, job.topic
    weight = job.subscription.weight or (1.0 if topic is None else topic.weight)
    tenant = None if job.in_order else message.fairness_key
    weights = {} if topic is None else topic.tenant_weights

    return Work(
        job,
        job.stored.ref.topic,
        size=job.stored.size,
        tenant=tenant,
        weight=weight,
        tenant_weight=1.0 if tenant is None else weights.get(tenant, 1.0),
        batch=1 if topic is None else topic.mini_batch,
        key=job.order_key if job.in_order else None,
        direct=(message.direct or message.topic.startswith(NOTICES)) and not job.in_order,
    )


class Readiness(Protocol):
    """The subscriptions that are ready, by their answers.

    The sender asks before every call, and tells the outcomes of a call before it asks again: an
    answer must come from memory.
    """

    def ready(self, subscription: Subscription) -> bool:
        """Whether messages may go there now; a message that is not sent counts no attempt."""
        ...

    def in_flight_limit(self, subscription: Subscription, *, ordered: bool) -> int | None:
        """Return how many messages may be unanswered at once in a visit, from 1; None: no limit.

        Subscriptions that share an address keep to the least of them. On ordered topics it bounds
        a call, because there the next one waits for its answer.
        """
        ...

    def answered(
        self, subscription: Subscription, answers: Sequence[tuple[StoredMessage, Outcome]]
    ) -> None:
        """Take the outcomes of the subscription's messages in one call, in their order."""
        ...


class Lines:
    """The turns of one delivery, and its outcomes.

    Args:
        open_: opens destinations.
        readiness: as of `Sender`.
        jobs: the work.
        groups: deliveries of a subscription at a time; None: as many as it has visits apart.

    Attributes:
        cycles: the next calls, by line; destinations on one line share calls.
        destinations: by line.
        dropped: the lines that get no further call because they are slow.
        in_flight: messages that may be unanswered at once, of lines with several calls at a time.
        outcomes: by message and subscription.
    """

    def __init__(
        self,
        open_: Callable[[Subscription], Destination],
        clock: Clock,
        readiness: Readiness,
        jobs: Iterable[Job],
        groups: int | None,
    ) -> None:
        self.outcomes: Outcomes = {}
        self.destinations: dict[str, Destination] = {}
        self.dropped: set[str] = set()
        self._clock = clock
        self._readiness = readiness
        self._groups = groups
        self._blocked: set[tuple[str, str]] = set()  # keys of which a message was not taken
        self._failing: set[str] = set()
        self._grace_ends: float | None = None
        self._jobs: list[Job] = []
        self._limits: dict[str, Limits] = {}
        self.in_flight: dict[str, int] = {}
        self._subscriptions: set[Subscription] = set()

        self.cycles: Cycles[str, Job] = Cycles(
            limits=self._limits.__getitem__,
            size=self._size,
            skip=self._skips,
            in_flight=self.in_flight.get,
        )

        self._open = open_
        self._jobs = self.add(jobs)

    def add(self, jobs: Iterable[Job]) -> list[Job]:
        """Add work; return it in the order in which it is planned."""
        planned = rounds(list(jobs))
        for job in planned:
            subscription, line = job.subscription, line_of(job.subscription)
            if line not in self.destinations:
                self.destinations[line] = self._open(subscription)
                self._limits[line] = self.destinations[line].limits
            # several subscriptions may share an address: each bounds its line once
            if subscription not in self._subscriptions:
                self._subscriptions.add(subscription)
                self._limit(line, job)
            self.cycles.add(line, work(job))
        return planned

    @property
    def wants_more(self) -> bool:
        """Whether nothing waits, and every line takes another call."""
        stopped = self.dropped or self._failing or len(self.cycles)
        return not stopped and all(map(self.cycles.has_room, self.destinations))

    def _limit(self, line: str, job: Job) -> None:
        """Bound the messages that the job's line may have in flight."""
        limits, subscription = self._limits[line], job.subscription
        most = self._readiness.in_flight_limit(subscription, ordered=job.in_order)
        if job.in_order:
            # the next call waits for the answer: a bound of the call is one of what is in flight
            if most is not None and most < limits.messages:
                self._limits[line] = Limits(most, limits.bytes)
            return
        if most is None and limits.messages == 1:
            most = IN_FLIGHT // (self._groups or subscription.groups)
        if most is not None:
            self.in_flight[line] = min(most, self.in_flight.get(line, most))

    def drop(self, line: str) -> None:
        """Give a slow line no further call."""
        self.dropped.add(line)
        self.cycles.drop(line)

    def stopped(self, line: str, call: Sequence[Job]) -> bool:
        """Whether a call that was to begin should not, by the answers that came meanwhile."""
        if line in self.dropped or line in self._failing:
            return True
        return not any(self._readiness.ready(job.subscription) for job in call)

    def end_grace(self) -> None:
        """Drop the lines that still have work, half a second after the first had none."""
        if self._grace_ends is not None and self._clock.now() >= self._grace_ends:
            for line in self.destinations.keys() - self._failing:
                self.drop(line)

    def handed_over(self) -> list[Job]:
        """Return the jobs of dropped lines that were not sent, of subscriptions that are ready."""
        return [
            job
            for job in self._jobs
            if line_of(job.subscription) in self.dropped
            and (job.stored.ref, job.subscription.name) not in self.outcomes
            and self._readiness.ready(job.subscription)
        ]

    def answered(self, line: str, call: Sequence[Job], outcomes: Outcomes) -> None:
        """Take the outcomes of a call; a destination that is not ready is left alone."""
        answers: dict[Subscription, list[tuple[StoredMessage, Outcome]]] = {}
        for job in call:
            outcome = outcomes.get((job.stored.ref, job.subscription.name))
            if outcome is not None:
                answers.setdefault(job.subscription, []).append((job.stored, outcome))
            if job.in_order and (outcome is None or not outcome.taken):
                # messages behind it would overtake it
                self._blocked.add(job.order_key)

        for subscription, its in answers.items():
            self._readiness.answered(subscription, its)
        self.outcomes |= outcomes
        # throttled, out of reach or gone: the next messages would fare no better
        if any(o.verdict not in ("taken", "refused") for o in outcomes.values()):
            self._failing.add(line)
            self.cycles.drop(line)
        self.cycles.answered(line, len(call))

        if self._grace_ends is not None or len(self.destinations) < 2:
            return
        if line not in self._failing and self.cycles.idle(line):
            self._grace_ends = self._clock.now() + GRACE_SECONDS

    def _size(self, line: str, job: Job) -> int:
        return self.destinations[line].size(job.stored)

    def _skips(self, job: Job) -> bool:
        blocked = job.in_order and job.order_key in self._blocked
        return blocked or not self._readiness.ready(job.subscription)


@dataclass(frozen=True, slots=True)
class _Rest:
    until: float
    seconds: float


class SlowDestinations:
    """The lines that this process has seen to be slow.

    The relay waits for its calls, and a part of the stream waits for the relay; a visit waits for
    its calls, and others for its worker. So a slow destination gets one call from them in a number
    of minutes: one minute after the first, doubling to 16. After one fast call the line counts as
    fast again.

    Args:
        seconds: the duration from which a call is slow.
        rng: spreads trials, so that processes that began together do not wait together.
    """

    def __init__(self, seconds: float = SLOW_SECONDS, rng: Random | None = None) -> None:
        self._seconds = seconds
        self._rng = rng
        self._rests: dict[str, _Rest] = {}
        self._fast: set[str] = set()
        self._no_trial_before = 0.0

    def took(self, line: str, seconds: float, now: float, *, waited: bool = False) -> None:
        """Note the duration of a call that ended at `now` (seconds since 1970).

        Args:
            line: the line that was called.
            seconds: the duration.
            now: when it ended.
            waited: whether somebody waited who must not.
        """
        if seconds < self._seconds:
            self._rests.pop(line, None)
            self._fast.add(line)
            return

        self._fast.discard(line)
        if waited:
            spread = 1.0 if self._rng is None else 0.5 + self._rng.random()
            pause = seconds * spread / _TRIAL_SHARE
            self._no_trial_before = max(self._no_trial_before, now + pause)

        before = self._rests.get(line)
        if before is not None and now < before.until:
            return  # a call that began before the rest
        rest = FIRST_REST_SECONDS if before is None else before.seconds * 2
        rest = min(rest, LONGEST_REST_SECONDS)
        self._rests[line] = _Rest(now + rest, rest)

    def slow(self, line: str, now: float) -> bool:
        """Whether a caller that must not wait should leave the line alone."""
        rest = self._rests.get(line)
        return rest is not None and now < rest.until

    def avoided(self, line: str, now: float) -> bool:
        """As `slow`; also while the caller has waited enough, if the line is not known as fast.

        Each process has to wait for each slow line once, and again after its rests. With many slow
        lines and many processes that would take all workers for a minute. So a process waits a
        tenth of its time for them.
        """
        return self.slow(line, now) or (line not in self._fast and now < self._no_trial_before)
