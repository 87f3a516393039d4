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

from fairbox.dispatch.ports import Destination, Destinations, Limits, Outcome, Outcomes
from fairbox.dispatch.sending.bodies_in_hand import SMALL_BODY, BodiesInHand
from fairbox.dispatch.sending.lines import (
    SLOW_VISIT_SECONDS,
    Lines,
    Readiness,
    SlowDestinations,
    line_of,
)
from fairbox.errors import InvalidInput
from fairbox.model.topics import GROUPS, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future
    from random import Random

    from fairbox.dispatch.delivery import How, Job
    from fairbox.model.bodies import BodyStore
    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef
    from fairbox.tables.stored_messages import StoredMessage

SLOTS: Final = 16
"""Calls that begin while none of them has been running for long."""
PATIENCE: Final = 0.1
"""Seconds after which a call gives its slot to another, and goes on without one."""
MOST: Final = 128
"""Calls that run at once, slow ones among them: a visit's part of the largest limit in flight."""

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


class Sender:
    """Makes the calls to destinations.

    Args:
        bodies: where offloaded bodies lie; None: nowhere.
        destinations: opens destinations.
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
            and not self._slow.slow(line_of(subscription), self._clock.now())
            and self._open(subscription).quick
        )

    def apart(self, subscription: Subscription) -> bool:
        """Whether a shared visit leaves the subscription to visits apart.

        It does if the line was recently slow, or may be slow while this process has no time to find
        out. It also does if it has a limit in flight: only visits apart have groups to keep to it.
        """
        if subscription.max_in_flight is not None:
            return True
        return self._slow_visits.avoided(line_of(subscription), self._clock.now())

    def send(
        self,
        jobs: Iterable[Job],
        deadline: float,
        timeout: float,
        how: How,
        more: More | None = None,
    ) -> Sent:
        """Send these, those of one address together; return the answers.

        A line of an unordered topic has several calls in flight: as many messages as its limit
        allows, or without one its part of 64, if a call takes one message.

        Args:
            jobs: in the order to send them, of each topic and tenant.
            deadline: no call begins after this time (seconds since 1970).
            timeout: seconds that one call may take, where the subscription does not say less.
            how: of the delivery.
            more: gives further jobs of the same line, as soon as it has room for them.
        """
        groups = None if how.subscription else GROUPS
        sending = Lines(self._open, self._clock, self._readiness, jobs, groups)
        slow = self._slow if how.from_stream else self._slow_visits if how.shared else None
        make_call = partial(self._call, sending, (deadline, timeout), slow)

        def begin() -> list[Call]:
            if self._clock.now() >= deadline:
                return []
            if how.shared:
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
        return Sent(sending.outcomes, sending.handed_over() if how.shared else [])

    def _call(
        self,
        sending: Lines,
        times: tuple[float, float],
        slow: SlowDestinations | None,
        line: str,
        call: list[Job],
    ) -> Finish:
        """Make a call; return the function that handles its outcomes."""
        # stopped while it waited for a thread
        if line in sending.in_flight and sending.stopped(line, call):
            return partial(sending.answered, line, call, {})
        outcomes, seconds = self._send(sending.destinations[line], call, *times)
        # taken here: `finish` runs in the caller's thread, and may wait for it
        ended = self._clock.now()

        def finish() -> None:
            for pace in (self._slow, self._slow_visits) if slow is not self._slow else (slow,):
                if seconds is not None:
                    pace.took(line, seconds, ended, waited=pace is slow)
            sending.answered(line, call, outcomes)
            if slow is not None and slow.slow(line, ended):
                sending.drop(line)

        return finish

    def _send(
        self, destination: Destination, call: list[Job], deadline: float, timeout: float
    ) -> tuple[Outcomes, float | None]:
        """Make one call; return its outcomes and seconds (None: there was no call).

        A message without an outcome was not sent. The time that a call waits for its bodies does
        not count.
        """
        if self._clock.now() >= deadline:
            return {}, None

        # a call may carry messages of several subscriptions: the least patient one decides
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
                return {}, None
            began = self._clock.now()
            results = destination.send([in_place[job.stored.ref] for job in sendable], limit)
            seconds = self._clock.now() - began

        outcomes = {
            (job.stored.ref, job.subscription.name): outcome
            for job, outcome in zip(sendable, results, strict=True)
        }
        return outcomes, seconds

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


class _Closed:
    """A destination whose address cannot be used: it refuses everything."""

    def __init__(self, reason: str) -> None:
        self.limits = Limits(100, 1 << 30)
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
