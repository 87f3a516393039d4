"""Sending: the fair core says what goes next to which destination, and here it goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from fairbox.dispatch.fair import Cycles
from fairbox.dispatch.ports import Limits, Outcome
from fairbox.dispatch.sending.executor import Begin, Call, Finish, at_once, in_turn
from fairbox.dispatch.sending.jobs import rounds, work
from fairbox.dispatch.sending.readiness import AlwaysReady
from fairbox.dispatch.sending.slow_destinations import Pace
from fairbox.errors import FairboxError, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairbox.dispatch.ports import Destination, Destinations, Store
    from fairbox.dispatch.sending.jobs import Job
    from fairbox.dispatch.sending.readiness import Readiness
    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import Subscription

Outcomes = dict[tuple["MessageRef", str], Outcome]
FanOut = Callable[[Begin], None]


class Sender:
    """Makes the calls to destinations.

    Args:
        store: brings offloaded bodies.
        destinations: opens destinations.
        clock: the time.
        fan_out: runs the calls to several destinations; `at_once` or `in_turn`.
        readiness: says which subscriptions are ready, and how much they take at once.
    """

    def __init__(
        self,
        store: Store,
        destinations: Destinations,
        clock: Clock,
        fan_out: FanOut,
        readiness: Readiness | None = None,
    ) -> None:
        self._store = store
        self._destinations = destinations
        self._clock = clock
        self._fan_out = fan_out
        self._readiness = readiness or AlwaysReady()
        self._pace = Pace()

    def quick(self, subscription: Subscription) -> bool:
        """Whether the subscription may be called from the stream: fast by kind, and of late.

        One with a limit in flight or a rate may not: only visits, which take turns, can keep it.
        """
        slow = self._pace.slow(_line(subscription), self._clock.now())
        limited = subscription.max_in_flight is not None or subscription.rate is not None
        return not slow and not limited and self._open(subscription).quick

    def send(
        self,
        jobs: Iterable[Job],
        deadline: float,
        timeout: float,
        *,
        quick_only: bool = False,
    ) -> Outcomes:
        """Send these, those of one address together; return what was answered.

        Args:
            jobs: in the order to send them, of each topic and tenant.
            deadline: no call begins after this time (seconds since 1970).
            timeout: seconds that one call may take, where the subscription does not say less.
            quick_only: a line that turns out to be slow gets no further call.
        """
        turns = _Sending(self._open, self._clock, self._readiness, jobs)
        call_one = partial(self._call, turns, deadline, timeout, quick_only=quick_only)

        def begin() -> list[Call]:
            if self._clock.now() >= deadline:
                return []
            return [partial(call_one, line, call) for line, call in turns.cycles.cycle()]

        self._fan_out(begin)
        return turns.outcomes

    def _call(
        self,
        turns: _Sending,
        deadline: float,
        timeout: float,
        line: str,
        call: list[Job],
        *,
        quick_only: bool,
    ) -> Finish:
        """Make a call, and return what is to be done with what it came to."""
        began = self._clock.now()
        outcomes = self.send_call(turns.destination(line), call, deadline, timeout)
        ended = self._clock.now()

        def finish() -> None:
            self._pace.took(line, ended - began, ended)
            turns.answered(line, call, outcomes)
            if quick_only and self._pace.slow(line, ended):
                turns.cycles.drop(line)

        return finish

    def send_call(
        self, destination: Destination, call: list[Job], deadline: float, timeout: float
    ) -> Outcomes:
        """Make one call; what is missing in the answer was not sent."""
        if self._clock.now() >= deadline:
            return {}
        limit = min(timeout, *(job.subscription.timeout for job in call))
        fetched = [(job, self._with_body(job.stored, destination)) for job in call]
        sendable = [(job, stored) for job, stored in fetched if stored is not None]
        if not sendable:
            return {}
        results = destination.send([stored for _, stored in sendable], limit)
        return {
            (job.stored.ref, job.subscription.name): outcome
            for (job, _), outcome in zip(sendable, results, strict=True)
        }

    def _open(self, subscription: Subscription) -> Destination:
        try:
            return self._destinations.open(subscription)
        except InvalidInput as error:
            return _Closed(str(error))

    def _with_body(self, stored: StoredMessage, destination: Destination) -> StoredMessage | None:
        """Fetch an offloaded body that the destination takes; else it gets the address."""
        if stored.offloaded is None or stored.size > destination.limits.bytes:
            return stored
        try:
            return self._store.fetch_body(stored)
        except FairboxError:
            return None  # stays, unattempted; the sweep takes it up again


class _Sending:
    """The turns of one delivery, and what came of them.

    Attributes:
        cycles: what goes next, by line: what shares calls.
        outcomes: by message and subscription.
    """

    def __init__(
        self,
        open_: Callable[[Subscription], Destination],
        clock: Clock,
        readiness: Readiness,
        jobs: Iterable[Job],
    ) -> None:
        self.outcomes: Outcomes = {}
        self._readiness = readiness
        self._blocked: set[tuple[str, str]] = set()  # keys of which a message was not taken
        self._destinations: dict[str, Destination] = {}
        self._subscriptions: dict[str, dict[Subscription, None]] = {}
        self.cycles: Cycles[str, Job] = Cycles(
            clock,
            limits=self._limits,
            size=lambda line, job: self._destinations[line].size(job.stored),
            skip=self._skips,
        )
        for job in rounds(list(jobs)):
            line = _line(job.subscription)
            if line not in self._destinations:
                self._destinations[line] = open_(job.subscription)
                self._subscriptions[line] = {}
            self._subscriptions[line].setdefault(job.subscription)
            self.cycles.add(line, work(job))

    def destination(self, line: str) -> Destination:
        """Return the destination of a line."""
        return self._destinations[line]

    def answered(self, line: str, call: Sequence[Job], outcomes: Outcomes) -> None:
        """Take what a call came to; a destination that is not ready is left alone."""
        answers: dict[Subscription, list[tuple[StoredMessage, Outcome]]] = {}
        for job in call:
            outcome = outcomes.get((job.stored.ref, job.subscription.name))
            if outcome is not None:
                answers.setdefault(job.subscription, []).append((job.stored, outcome))
            if job.in_order and (outcome is None or not outcome.taken):
                self._blocked.add(job.hold)
        for subscription, its in answers.items():
            self._readiness.answered(subscription, its)
        self.outcomes |= outcomes
        if any(o.verdict not in ("taken", "refused") for o in outcomes.values()):
            self.cycles.drop(line)
        self.cycles.answered(line)

    def _skips(self, job: Job) -> bool:
        blocked = job.in_order and job.hold in self._blocked
        return blocked or not self._readiness.ready(job.subscription)

    def _limits(self, line: str) -> Limits:
        limits = self._destinations[line].limits
        most = [self._readiness.in_flight_limit(s) for s in self._subscriptions[line]]
        return Limits(min([limits.messages, *(m for m in most if m is not None)]), limits.bytes)


def _line(subscription: Subscription) -> str:
    """Return what shares calls: subscriptions of one address; one message a call shares nothing."""
    if subscription.scheme in ("http", "https", "lambda"):
        return f"{subscription.topic}#{subscription.name}#{subscription.destination}"
    return subscription.destination


class _Closed:
    """Stands for a destination whose address cannot be used: it refuses everything."""

    def __init__(self, reason: str) -> None:
        self.limits = Limits(100, 1 << 30)
        self.keeps_order = True
        self.quick = False  # another function's settings may open it: the relay leaves it to visits
        self._reason = reason

    def size(self, message: StoredMessage) -> int:
        return message.size

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:  # noqa: ARG002 - the port's
        return [Outcome("refused", self._reason, fault="destination") for _ in messages]


__all__ = ["FanOut", "Outcomes", "Sender", "at_once", "in_turn"]
