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
from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from fairbox.dispatch.ports import Destination, Destinations, Outcomes, Store
    from fairbox.dispatch.sending.jobs import Job
    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import Subscription

SLOTS: Final = 8
"""Calls that begin while none of them has been running for long."""
PATIENCE: Final = 0.1
"""Seconds after which a call gives its slot to another, and goes on without one."""
MOST: Final = 64
"""Calls that run at once, slow ones among them."""
SLOW_SECONDS: Final = 1.0
"""A call that takes so long holds up the stream's other messages."""
FIRST_REST_SECONDS: Final = 60.0
LONGEST_REST_SECONDS: Final = 960.0

Finish = Callable[[], None]
"""Handles the answer of a call."""
Call = Callable[[], Finish]
Begin = Callable[[], Sequence[Call]]
FanOut = Callable[[Begin], None]


class Readiness(Protocol):
    """The subscriptions that are ready, by their answers.

    The sender asks before every call, and tells the outcomes of a call before it asks again: an
    answer must come from memory.
    """

    def ready(self, subscription: Subscription) -> bool:
        """Whether messages may go there now; a message that is not sent counts no attempt."""
        ...

    def in_flight_limit(self, subscription: Subscription) -> int | None:
        """Return how many messages may be unanswered at once, from 1; None: all that a call takes.

        A call in which several subscriptions share an address keeps to the least of them. The
        limit holds for a whole delivery.
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
        store: fetches offloaded bodies.
        destinations: opens destinations.
        clock: the time.
        fan_out: runs the calls to several destinations; `run_concurrently` or `run_sequentially`.
        readiness: says which subscriptions are ready, and how much they take at once.
    """

    def __init__(
        self,
        store: Store,
        destinations: Destinations,
        clock: Clock,
        fan_out: FanOut,
        readiness: Readiness,
    ) -> None:
        self._destinations = destinations
        self._clock = clock
        self._fan_out = fan_out
        self._readiness = readiness
        self._slow = SlowDestinations()
        self._bodies = BodiesInHand(store, clock)

    def allowed_in_stream(self, subscription: Subscription) -> bool:
        """Whether the relay may call the subscription: fast by kind, and fast of late.

        A subscription with a limit in flight or a rate is not allowed: only visits, which take
        turns, can keep to it.
        """
        limited = subscription.max_in_flight is not None or subscription.rate is not None
        return (
            not limited
            and not self._slow.slow(_line(subscription), self._clock.now())
            and self._open(subscription).quick
        )

    def send(
        self,
        jobs: Iterable[Job],
        deadline: float,
        timeout: float,
        *,
        from_stream: bool = False,
    ) -> Outcomes:
        """Send these, those of one address together; return the answers.

        Args:
            jobs: in the order to send them, of each topic and tenant.
            deadline: no call begins after this time (seconds since 1970).
            timeout: seconds that one call may take, where the subscription does not say less.
            from_stream: a line that turns out to be slow gets no further call.
        """
        turns = _Sending(self._open, self._clock, self._readiness, jobs)
        make_call = partial(self._call, turns, deadline, timeout, from_stream=from_stream)

        def begin() -> list[Call]:
            if self._clock.now() >= deadline:
                return []
            return [partial(make_call, line, call) for line, call in turns.cycles.cycle()]

        try:
            self._fan_out(begin)
        finally:
            if self._bodies.bodies:
                self._bodies.forget()
        return turns.outcomes

    def _call(
        self,
        turns: _Sending,
        deadline: float,
        timeout: float,
        line: str,
        call: list[Job],
        *,
        from_stream: bool,
    ) -> Finish:
        """Make a call; return the function that handles its outcomes."""
        began = self._clock.now()
        outcomes = self.send_call(turns.destinations[line], call, deadline, timeout)
        ended = self._clock.now()

        def finish() -> None:
            self._slow.took(line, ended - began, ended)
            turns.answered(line, call, outcomes)
            if from_stream and self._slow.slow(line, ended):
                turns.cycles.drop(line)

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


class _Sending:
    """The turns of one delivery, and its outcomes.

    Attributes:
        cycles: the next calls, by line; destinations on one line share calls.
        destinations: by line.
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
        self.destinations: dict[str, Destination] = {}
        self._readiness = readiness
        self._blocked: set[tuple[str, str]] = set()  # keys of which a message was not taken
        limits: dict[str, Limits] = {}
        subscriptions: set[Subscription] = set()
        self.cycles: Cycles[str, Job] = Cycles(
            clock, limits=limits.__getitem__, size=self._size, skip=self._skips
        )
        for job in rounds(list(jobs)):
            subscription, line = job.subscription, _line(job.subscription)
            if line not in self.destinations:
                self.destinations[line] = open_(subscription)
                limits[line] = self.destinations[line].limits
            if subscription not in subscriptions:
                subscriptions.add(subscription)
                most, limit = readiness.in_flight_limit(subscription), limits[line]
                if most is not None and most < limit.messages:
                    limits[line] = Limits(most, limit.bytes)
            self.cycles.add(line, work(job))

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
        if any(o.verdict not in ("taken", "refused") for o in outcomes.values()):
            self.cycles.drop(line)
        self.cycles.answered(line)

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


@dataclass(frozen=True, slots=True)
class _Rest:
    until: float
    seconds: float


class SlowDestinations:
    """The lines that this process has seen to be slow.

    The relay waits for its calls, and a part of the stream waits for the relay. So a slow
    destination gets one call from it in a number of minutes: one minute after the first, doubling
    to 16. After one fast call the line counts as fast again.
    """

    def __init__(self) -> None:
        self._rests: dict[str, _Rest] = {}

    def took(self, line: str, seconds: float, now: float) -> None:
        """Note the duration of a call that ended at `now` (seconds since 1970)."""
        if seconds < SLOW_SECONDS:
            self._rests.pop(line, None)
            return
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


def run_sequentially(begin: Begin) -> None:
    """Make one call after the other: for simulations and tests. As `run_concurrently`."""
    while calls := begin():
        for call in calls:
            call()()


def run_concurrently(begin: Begin) -> None:
    """Make calls in threads until there are no more.

    Eight begin together. A call that takes over 0.1 s gives its slot to another, up to 64 calls, so
    that slow destinations do not delay fast ones.

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
