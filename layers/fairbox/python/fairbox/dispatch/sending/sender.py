"""Sending: calls to destinations in the order of the fair core, and the threads that run them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from fairbox.dispatch.fair import Cycles
from fairbox.dispatch.ports import Limits, Outcome
from fairbox.dispatch.sending.bodies_in_hand import SMALL_BODY, BodiesInHand
from fairbox.dispatch.sending.jobs import rounds, work
from fairbox.dispatch.sending.slow_destinations import SLOW_VISIT_SECONDS, SlowDestinations
from fairbox.errors import InvalidInput
from fairbox.model.topics import GROUPS, IN_FLIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future
    from random import Random

    from fairbox.dispatch.ports import Destination, Destinations, Outcomes
    from fairbox.dispatch.sending.jobs import Job
    from fairbox.model.bodies import BodyStore
    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef
    from fairbox.model.topics import Subscription
    from fairbox.tables.stored_messages import StoredMessage

SLOTS: Final = 16
"""Calls that begin while none of them has been running for long."""
PATIENCE: Final = 0.1
"""Seconds after which a call gives its slot to another, and goes on without one."""
MOST: Final = 128
"""Calls that run at once, slow ones among them: a visit's part of the largest limit in flight."""
GRACE_SECONDS: Final = 0.5
"""Seconds for which lines of a shared visit go on once another one has no more work."""

Finish = Callable[[], None]
"""Handles the answer of a call."""
Call = Callable[[], Finish]
Begin = Callable[[], Sequence[Call]]
FanOut = Callable[[Begin], None]


class More(Protocol):
    """Gives further jobs of a delivery."""

    def __call__(self, outcomes: Outcomes, *, wanted: bool) -> Sequence[Job]:
        """Return jobs, if they are wanted; outcomes that were seen to may be taken out."""
        ...


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


class Sender:
    """Makes the calls to destinations.

    Args:
        bodies: where offloaded bodies lie; None: nowhere.
        destinations: opens destinations.
        clock: the time.
        fan_out: runs the calls to several destinations; `run_concurrently` or `run_sequentially`.
        readiness: says which subscriptions are ready, and how much they take at once.
        rng: spreads the trials of lines that may be slow.
    """

    def __init__(
        self,
        bodies: BodyStore | None,
        destinations: Destinations,
        clock: Clock,
        fan_out: FanOut,
        readiness: Readiness,
        *,
        rng: Random | None = None,
    ) -> None:
        self._destinations = destinations
        self._clock = clock
        self._fan_out = fan_out
        self._readiness = readiness
        self._slow = SlowDestinations()
        self._slow_visits = SlowDestinations(SLOW_VISIT_SECONDS, rng)
        self._bodies = BodiesInHand(bodies, clock)

    def allowed_in_stream(self, subscription: Subscription) -> bool:
        """Whether the relay may call the subscription: fast by kind, and recently fast.

        A subscription with a limit in flight or a rate is not allowed: only visits, which take
        turns, can keep to it.
        """
        limited = subscription.max_in_flight is not None or subscription.rate is not None
        return (
            not limited
            and not self._slow.slow(_line(subscription), self._clock.now())
            and self._open(subscription).quick
        )

    def apart(self, subscription: Subscription) -> bool:
        """Whether a shared visit leaves the subscription to visits apart.

        It does if the line was recently slow, or may be slow while this process has no time to find
        out. It also does if it has a limit in flight: only visits apart have groups to keep to it.
        """
        if subscription.max_in_flight is not None:
            return True
        return self._slow_visits.avoided(_line(subscription), self._clock.now())

    def send(
        self,
        jobs: Iterable[Job],
        deadline: float,
        timeout: float,
        *,
        from_stream: bool = False,
        shared: bool = False,
        apart: bool = False,
        more: More | None = None,
    ) -> Sent:
        """Send these, those of one address together; return the answers.

        A line of an unordered topic has several calls in flight: as many messages as its limit
        allows, or without one its part of 64, if a call takes one message.

        Args:
            jobs: in the order to send them, of each topic and tenant.
            deadline: no call begins after this time (seconds since 1970).
            timeout: seconds that one call may take, where the subscription does not say less.
            from_stream: a line that turns out to be slow gets no further call.
            shared: so it is here, at a fifth of the duration. And once a line has no work left, the
                others go on for half a second. The jobs of these lines are handed over.
            apart: the delivery is a visit apart, one of its subscription's groups.
            more: gives further jobs of the same line, as soon as it has room for them.
        """
        groups = None if apart else GROUPS
        sending = _Sending(self._open, self._clock, self._readiness, jobs, groups)
        slow = self._slow if from_stream else self._slow_visits if shared else None
        make_call = partial(self._call, sending, (deadline, timeout), slow)

        def begin() -> list[Call]:
            if self._clock.now() >= deadline:
                return []
            if shared:
                sending.end_grace()
            if more is not None:
                sending.add(more(sending.outcomes, wanted=sending.wants_more))

            calls: list[Call] = []
            while cycle := list(sending.cycles.cycle()):
                calls += [partial(make_call, line, call) for line, call in cycle]
                if not sending.in_flight:
                    break  # each line has its one call
            return calls

        try:
            self._fan_out(begin)
        finally:
            if self._bodies.bodies:
                self._bodies.forget()
        return Sent(sending.outcomes, sending.handed_over() if shared else [])

    def _call(
        self,
        sending: _Sending,
        times: tuple[float, float],
        slow: SlowDestinations | None,
        line: str,
        call: list[Job],
    ) -> Finish:
        """Make a call; return the function that handles its outcomes."""
        if line in sending.in_flight and sending.stopped(
            line, call
        ):  # while it waited for a thread
            return partial(sending.answered, line, call, {})
        timed = _Timed(sending.destinations[line], self._clock)
        outcomes = self.send_call(timed, call, *times)
        ended = self._clock.now()

        def finish() -> None:
            for pace in (self._slow, self._slow_visits) if slow is not self._slow else (slow,):
                if timed.seconds is not None:
                    pace.took(line, timed.seconds, ended, waited=pace is slow)
            sending.answered(line, call, outcomes)
            if slow is not None and slow.slow(line, ended):
                sending.drop(line)

        return finish

    def send_call(
        self, destination: Destination, call: list[Job], deadline: float, timeout: float
    ) -> Outcomes:
        """Make one call; a message without an outcome in the answer was not sent."""
        if self._clock.now() >= deadline:
            return {}

        limit = min(timeout, *(job.subscription.timeout for job in call))
        messages = [job.stored for job in call]
        if [m for m in messages if m.offloaded is not None or m.size > SMALL_BODY]:
            bodies: AbstractContextManager[Mapping[MessageRef, StoredMessage]] = self._bodies.hold(
                messages, destination.limits, deadline
            )
        else:
            bodies = nullcontext({m.ref: m for m in messages})

        with bodies as in_place:
            sendable = [job for job in call if job.stored.ref in in_place]
            if not sendable:
                return {}
            results = destination.send([in_place[job.stored.ref] for job in sendable], limit)

        return {
            (job.stored.ref, job.subscription.name): outcome
            for job, outcome in zip(sendable, results, strict=True)
        }

    def _open(self, subscription: Subscription) -> Destination:
        try:
            return self._destinations.open(subscription)
        except InvalidInput as error:
            return _Closed(str(error))


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of sending.

    Attributes:
        outcomes: the destinations' answers, by message and subscription.
        handed_over: the jobs of a shared visit that were not sent because their line is slow.
    """

    outcomes: Outcomes
    handed_over: Sequence[Job]


class _Sending:
    """The turns of one delivery, and its outcomes.

    Args:
        open_: opens destinations.
        clock: the time.
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
            subscription, line = job.subscription, _line(job.subscription)
            if line not in self.destinations:
                self.destinations[line] = self._open(subscription)
                self._limits[line] = self.destinations[line].limits
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
            if _line(job.subscription) in self.dropped
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


def _line(subscription: Subscription) -> str:
    """Return the line of a subscription: subscriptions on one line share calls.

    Those of one address do, but not where a call carries one message.
    """
    if subscription.destination.startswith(("http:", "https:", "lambda:")):
        return f"{subscription.topic}#{subscription.name}#{subscription.destination}"
    return subscription.destination


class _Timed:
    """A destination whose calls are timed: without the time that a call waits for its bodies.

    Attributes:
        seconds: of the last call; None: there was none.
    """

    def __init__(self, destination: Destination, clock: Clock) -> None:
        self.limits = destination.limits
        self.keeps_order = destination.keeps_order
        self.quick = destination.quick
        self.size = destination.size
        self.seconds: float | None = None
        self._destination = destination
        self._clock = clock

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:
        began = self._clock.now()
        outcomes = self._destination.send(messages, timeout)
        self.seconds = self._clock.now() - began
        return outcomes


class _Closed:
    """A destination whose address cannot be used: it refuses everything."""

    def __init__(self, reason: str) -> None:
        self.limits = Limits(100, 1 << 30)
        self.keeps_order = True
        self.quick = False  # another function's settings may open it: the relay leaves it to visits
        self._reason = reason

    def size(self, message: StoredMessage) -> int:
        return message.size

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:  # noqa: ARG002 - the port's
        return [Outcome("refused", self._reason, fault="destination") for _ in messages]


def run_sequentially(begin: Begin) -> None:
    """Make one call after the other: for simulations and tests. As `run_concurrently`."""
    while calls := begin():
        for call in calls:
            call()()


def run_concurrently(begin: Begin) -> None:
    """Make calls in threads until there are none left.

    Sixteen begin together. A call that takes over 0.1 s gives its slot to another, up to 128 calls,
    so that slow destinations do not delay fast ones.

    Args:
        begin: gives the calls that may begin now; asked again each time that one has ended. A call
            returns the function that handles its answer, which runs in the caller's thread.
    """
    waiting = deque(begin())
    if not waiting:
        return

    running: dict[Future[Finish], float] = {}
    with ThreadPoolExecutor(MOST) as pool:
        while waiting or running:
            now = time.monotonic()
            fresh = [began for began in running.values() if now - began < PATIENCE]
            while waiting and len(fresh) < SLOTS and len(running) < MOST:
                # the time limit of the invocation holds in these threads too
                running[pool.submit(copy_context().run, waiting.popleft())] = now
                fresh.append(now)

            give_way = min(fresh) + PATIENCE - now if waiting and fresh else None
            done, _ = wait(running, timeout=give_way, return_when=FIRST_COMPLETED)
            for future in done:
                del running[future]
                future.result()()
            if done:
                waiting.extend(begin())
