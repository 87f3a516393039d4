"""The dispatcher: sends messages to their subscriptions, then deletes, retries or buries them.

Relay and visit run this one code. Delivery is at least once: send, then delete. On the happy path
a message costs one delete and no other write.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fairbox.clock import milliseconds
from fairbox.dispatch.packing import Job, calls
from fairbox.dispatch.ports import Doorbell, Limits, Outcome
from fairbox.errors import FairboxError, InvalidInput
from fairbox.ids import time_of
from fairbox.stored import Failure, StoredMessage, SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from random import Random

    from fairbox.clock import Clock
    from fairbox.dispatch.ports import Destination, Destinations, Doorbells, Store
    from fairbox.messages import MessageRef
    from fairbox.topics import Subscription, TopicState

MAX_HISTORY: Final = 10
_ERROR_CHARACTERS: Final = 200
_NOT_READY_SECONDS: Final = 5.0
_YOUNG_MS: Final = 120_000
_CAS_TRIES: Final = 8
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


@dataclass(slots=True)
class Report:
    """What came of a delivery.

    Attributes:
        sent: (topic, subscription) -> messages taken.
        failed: (topic, subscription) -> attempts counted.
        dead: (topic, subscription) -> messages that died.
        delivered: messages that left the outbox.
        errors: what went wrong with the tables; the sweep takes these messages up.
        again: of ordered topics, when to visit the shard next (ms), for the visit to ring; None:
            nothing that was tried here has to wait.
    """

    sent: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    failed: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    dead: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    delivered: int = 0
    errors: list[str] = field(default_factory=list)
    again: int | None = None

    @property
    def progress(self) -> int:
        """How much moved: what was taken and what died."""
        return sum(self.sent.values()) + sum(self.dead.values())


class Dispatcher:
    """Delivers messages that somebody read or was handed.

    Args:
        store: the tables.
        destinations: opens destinations.
        doorbells: rings for what has to wait.
        clock, rng: time and jitter.
        fan_out: runs the calls to several destinations; `at_once` or `in_turn`.
    """

    def __init__(
        self,
        store: Store,
        destinations: Destinations,
        doorbells: Doorbells,
        *,
        clock: Clock,
        rng: Random,
        fan_out: Callable[[Sequence[Callable[[], Outcomes]]], list[Outcomes]] = at_once,
    ) -> None:
        self.store = store
        self.doorbells = doorbells
        self.clock = clock
        self._destinations = destinations
        self._rng = rng
        self._fan_out = fan_out

    def quick(self, topic: TopicState) -> bool:
        """Whether every subscription of the topic may be called from the stream."""
        return all(self._open(s).quick for s in topic.subscriptions)

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
        jobs: dict[str, list[Job]] = defaultdict(list)
        topics: dict[str, TopicState] = {}
        for stored in messages:
            topic = self.store.topic(stored.ref.topic)
            if topic is not None and topic.pushed:
                topics[stored.ref.topic] = topic
                for job in self._jobs(stored, topic, held):
                    jobs[_line(job.subscription)].append(job)
        outcomes: Outcomes = {}
        works = [_work(self._send, group, deadline, timeout) for group in jobs.values()]
        for part in self._fan_out(works):
            outcomes |= part
        for job in (job for group in jobs.values() for job in group if job.in_order):
            outcome = outcomes.get((job.stored.ref, job.subscription.name))
            if outcome is None or not outcome.taken:
                held.add(job.hold)
        self._conclude([s for s in messages if s.ref.topic in topics], topics, outcomes, report)
        return report

    def _jobs(
        self, stored: StoredMessage, topic: TopicState, held: set[tuple[str, str]]
    ) -> Iterator[Job]:
        now = milliseconds(self.clock)
        in_order = topic.topic.ordering == "key"
        lacking = stored.lacking(topic.subscription_names)
        for subscription in topic.subscriptions:
            job = Job(subscription, stored, in_order)
            if subscription.name not in lacking or (in_order and job.hold in held):
                continue
            if stored.due(subscription.name) <= now:
                yield job
            elif in_order:
                held.add(job.hold)

    def _open(self, subscription: Subscription) -> Destination:
        try:
            return self._destinations.open(subscription)
        except InvalidInput as error:
            return _Closed(str(error))

    def _send(self, jobs: list[Job], deadline: float, timeout: float) -> Outcomes:
        """Send one destination's jobs in calls; stop when it is not ready or time is up."""
        outcomes: Outcomes = {}
        destination = self._open(jobs[0].subscription)
        limit = min(timeout, *(job.subscription.timeout for job in jobs))
        blocked: set[tuple[str, str]] = set()  # keys of which a message was not taken
        for call in calls(jobs, destination.limits, destination.size):
            ready = [j for j in call if not (j.in_order and j.hold in blocked)]
            if self.clock.now() >= deadline:
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
            if any(o.verdict in ("throttled", "unreachable") for o in results):
                break
        return outcomes

    def _with_body(self, stored: StoredMessage, destination: Destination) -> StoredMessage | None:
        """Fetch an offloaded body that the destination takes; else it gets the address."""
        if stored.offloaded is None or stored.size > destination.limits.bytes:
            return stored
        try:
            return self.store.fetch_body(stored)
        except FairboxError:
            return None  # stays, unattempted; the sweep takes it up again

    def _conclude(
        self,
        messages: Sequence[StoredMessage],
        topics: Mapping[str, TopicState],
        outcomes: Outcomes,
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
            for name, outcome in mine.items():
                report.sent[stored.ref.topic, name] += outcome.taken
            died = sum(report.dead.values())
            try:
                due = self._settle(stored, topic, mine, gone, report)
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

    def _settle(
        self,
        stored: StoredMessage,
        topic: TopicState,
        outcomes: Mapping[str, Outcome],
        gone: list[StoredMessage],
        report: Report,
    ) -> int | None:
        """Write one message's outcome; return when to ring for it, None when not to."""
        before = stored
        for _ in range(_CAS_TRIES):
            after, died, left = self._after(before, topic, outcomes)
            if not left and not died and not after.gone:
                gone.append(before)
                return None
            if after != before:
                if died and left:
                    saved = self.store.bury_partly(after, before, died)
                else:
                    saved = self.store.save_state(after, before)
                if isinstance(saved, StoredMessage):
                    if saved.gone:
                        return None  # whoever marked it finishes it
                    before = saved
                    continue
                if saved == "absent":
                    return None
            _count(stored, outcomes, died, report)
            if after.gone:
                if died:
                    self.store.bury(after, died)
                gone.append(after)
                return None
            return self._next(after, outcomes, left)
        return milliseconds(self.clock) + 1000

    def _after(
        self, before: StoredMessage, topic: TopicState, outcomes: Mapping[str, Outcome]
    ) -> tuple[StoredMessage, frozenset[str], frozenset[str]]:
        """Return the message after these outcomes, for whom it died, and who still lacks it."""
        now = milliseconds(self.clock)
        lacking = before.lacking(topic.subscription_names)
        if not lacking:
            reason = "its subscriptions were removed"
            return replace(before, gone="purged", reason=reason), frozenset(), frozenset()
        taken = frozenset(name for name, outcome in outcomes.items() if outcome.taken) & lacking
        states = dict(before.states)
        died: set[str] = set()
        for subscription in topic.subscriptions:
            name, outcome = subscription.name, outcomes.get(subscription.name)
            if outcome is None or outcome.verdict != "refused" or name not in lacking:
                continue
            state = before.state(name)
            attempt = state.attempts + 1
            dead = attempt >= (subscription.max_attempts or topic.topic.retry.max_attempts)
            wait = outcome.retry_after or topic.topic.retry.delay(attempt, self._rng)
            failure = Failure(attempt, now, outcome.error[:_ERROR_CHARACTERS])
            history = (*state.history, failure)[-MAX_HISTORY:]
            states[name] = SubscriptionState(attempt, now + round(wait * 1000), history, dead)
            if dead:
                died.add(name)
        left = lacking - taken - died
        pending = before.pending
        if taken or died:
            pending = left or frozenset(died)
        after = replace(before, pending=pending, states=states)
        if died and not left:
            after = replace(after, gone="dead")
        return after, frozenset(died), left

    def _next(
        self, after: StoredMessage, outcomes: Mapping[str, Outcome], left: frozenset[str]
    ) -> int | None:
        """Return when to ring for what is left of a message, in milliseconds since 1970.

        What waits for its destination to be ready is rung for while it is young; then the sweep
        has it, whose visits come ever less often while nothing can be sent.
        """
        now = milliseconds(self.clock)
        young = now - time_of(after.ref.id) <= _YOUNG_MS
        times = []
        for name in left:
            outcome = outcomes.get(name)
            if (outcome is not None and outcome.verdict == "refused") or after.due(name) > now:
                times.append(after.due(name))
            elif young:
                asked = outcome.retry_after if outcome else None
                wait = asked or _NOT_READY_SECONDS * (1 + self._rng.random())
                times.append(now + round(wait * 1000))
        return min(times, default=None)


def _line(subscription: Subscription) -> str:
    """Return what shares calls: subscriptions of one address; one message a call shares nothing."""
    if subscription.scheme in ("http", "https", "lambda"):
        return f"{subscription.topic}#{subscription.name}#{subscription.destination}"
    return subscription.destination


def _count(
    stored: StoredMessage, outcomes: Mapping[str, Outcome], died: frozenset[str], report: Report
) -> None:
    for name, outcome in outcomes.items():
        report.failed[stored.ref.topic, name] += outcome.verdict == "refused"
    for name in died:
        report.dead[stored.ref.topic, name] += 1


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
        return [Outcome("refused", self._reason) for _ in messages]


def _work(
    send: Callable[[list[Job], float, float], Outcomes],
    jobs: list[Job],
    deadline: float,
    timeout: float,
) -> Callable[[], Outcomes]:
    return lambda: send(jobs, deadline, timeout)
