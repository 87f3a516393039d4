"""Sending: one destination's messages in calls, several destinations at once."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.packing import calls
from fairbox.dispatch.ports import Limits, Outcome
from fairbox.errors import FairboxError, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairbox.clock import Clock
    from fairbox.dispatch.packing import Job
    from fairbox.dispatch.ports import Destination, Destinations, Store
    from fairbox.dispatch.readiness import Readiness
    from fairbox.messages import MessageRef
    from fairbox.stored import StoredMessage
    from fairbox.topics import Subscription, TopicState

_AT_A_TIME: Final = 8

Outcomes = dict[tuple["MessageRef", str], Outcome]


def in_turn(works: Sequence[Callable[[], Outcomes]]) -> list[Outcomes]:
    """Do one work after the other: for simulations and tests."""
    return [work() for work in works]


def at_once(works: Sequence[Callable[[], Outcomes]]) -> list[Outcomes]:
    """Do the works in threads, so that a slow destination does not delay a fast one."""
    if len(works) <= 1:
        return in_turn(works)
    with ThreadPoolExecutor(min(_AT_A_TIME, len(works))) as pool:
        return list(pool.map(lambda work: work(), works))


class Sender:
    """Makes the calls to destinations.

    Args:
        store: brings offloaded bodies.
        destinations: opens destinations.
        clock: the time.
        fan_out: runs the calls to several destinations; `at_once` or `in_turn`.
        readiness: says before each call who is ready, and hears what came of it.
    """

    def __init__(
        self,
        store: Store,
        destinations: Destinations,
        clock: Clock,
        fan_out: Callable[[Sequence[Callable[[], Outcomes]]], list[Outcomes]],
        readiness: Readiness,
    ) -> None:
        self._store = store
        self._destinations = destinations
        self._clock = clock
        self._fan_out = fan_out
        self._readiness = readiness

    def quick(self, topic: TopicState) -> bool:
        """Whether every subscription of the topic may be called from the stream.

        One with a limit in flight may not: only visits, which take turns, can keep it.
        """
        return all(s.max_in_flight is None and self._open(s).quick for s in topic.subscriptions)

    def send(self, jobs: Iterable[Job], deadline: float, timeout: float) -> Outcomes:
        """Send these, those of one address together; return what was answered.

        Args:
            jobs: in the order to send them.
            deadline: no call begins after this time (seconds since 1970).
            timeout: seconds that one call may take, where the subscription does not say less.
        """
        lines: dict[str, list[Job]] = defaultdict(list)
        for job in jobs:
            lines[_line(job.subscription)].append(job)
        outcomes: Outcomes = {}
        works = [_work(self.send_line, line, deadline, timeout) for line in lines.values()]
        for part in self._fan_out(works):
            outcomes |= part
        return outcomes

    def _open(self, subscription: Subscription) -> Destination:
        try:
            return self._destinations.open(subscription)
        except InvalidInput as error:
            return _Closed(str(error))

    def send_line(self, jobs: list[Job], deadline: float, timeout: float) -> Outcomes:
        """Send one destination's jobs in calls; stop when it is not ready or time is up."""
        outcomes: Outcomes = {}
        destination = self._open(jobs[0].subscription)
        limit = min(timeout, *(job.subscription.timeout for job in jobs))
        blocked: set[tuple[str, str]] = set()  # keys of which a message was not taken
        for call in calls(jobs, self._limits(jobs, destination), destination.size):
            ready = [
                j
                for j in call
                if not (j.in_order and j.hold in blocked) and self._readiness.ready(j.subscription)
            ]
            if self._clock.now() >= deadline:
                break
            fetched = [(job, self._with_body(job.stored, destination)) for job in ready]
            sendable = [(job, stored) for job, stored in fetched if stored is not None]
            blocked.update(job.hold for job, stored in fetched if stored is None)
            if not sendable:
                continue
            results = destination.send([stored for _, stored in sendable], limit)
            for (job, _), outcome in zip(sendable, results, strict=True):
                outcomes[job.stored.ref, job.subscription.name] = outcome
                if not outcome.taken:
                    blocked.add(job.hold)
            self._tell(sendable, results)
            if any(o.verdict in ("throttled", "unreachable", "gone") for o in results):
                break
        return outcomes

    def _limits(self, jobs: Sequence[Job], destination: Destination) -> Limits:
        """Return what one call takes: no more than any of its subscriptions may have in flight."""
        limits = destination.limits
        given = (self._readiness.in_flight_limit(job.subscription) for job in jobs)
        messages = min([limits.messages, *(n for n in given if n is not None)])
        return Limits(messages, limits.bytes)

    def _tell(self, sent: Sequence[tuple[Job, StoredMessage]], results: Sequence[Outcome]) -> None:
        """Tell what a call came to, by subscription."""
        answers: dict[Subscription, list[tuple[StoredMessage, Outcome]]] = defaultdict(list)
        for (job, _), outcome in zip(sent, results, strict=True):
            answers[job.subscription].append((job.stored, outcome))
        for subscription, its in answers.items():
            self._readiness.answered(subscription, its)

    def _with_body(self, stored: StoredMessage, destination: Destination) -> StoredMessage | None:
        """Fetch an offloaded body that the destination takes; else it gets the address."""
        if stored.offloaded is None or stored.size > destination.limits.bytes:
            return stored
        try:
            return self._store.fetch_body(stored)
        except FairboxError:
            return None  # stays, unattempted; the sweep takes it up again


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


def _work(
    send: Callable[[list[Job], float, float], Outcomes],
    jobs: list[Job],
    deadline: float,
    timeout: float,
) -> Callable[[], Outcomes]:
    return lambda: send(jobs, deadline, timeout)
