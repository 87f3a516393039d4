"""Deliveries: their jobs, the way they are made, their results, and pages sent together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from fairbox.errors import FairboxError
from fairbox.observability.delivery_metrics import DeliveryMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairbox.dispatch.ports import Outcomes
    from fairbox.model.messages import MessageRef
    from fairbox.model.topic_states import TopicState
    from fairbox.model.topics import Subscription, Topic
    from fairbox.tables.stored_messages import StoredMessage

    Done = Callable[["DeliveryResult"], None]
    Page = tuple[Sequence[StoredMessage], Done]

PAGES: Final = 8
"""Pages in hand at most: of 100 messages and 1 MB each."""


@dataclass(frozen=True, slots=True)
class Job:
    """One message for one subscription.

    Attributes:
        subscription: the receiver.
        stored: the message.
        in_order: it holds back others of its key in its call.
        topic: the message's topic, whose weights count; None: all count the same.
    """

    subscription: Subscription
    stored: StoredMessage
    in_order: bool = False
    topic: Topic | None = None

    @property
    def key(self) -> tuple[MessageRef, str]:
        """Its message and subscription, by which outcomes are kept."""
        return self.stored.ref, self.subscription.name

    @property
    def order_key(self) -> tuple[str, str]:
        """The subscription and partition key within which jobs stay in order."""
        subscription = f"{self.stored.ref.topic}#{self.subscription.name}"
        return subscription, self.stored.message.shard_key


@dataclass(slots=True)
class Admitted:
    """The jobs of a delivery that may be sent now.

    Attributes:
        jobs: in the order given.
        waiting: the others, as (ref, subscription): the process that closes their circuit, or waits
            for tokens, enqueues visits for them.
        elsewhere: the part of `waiting` that other visits handle.
        paced: subscriptions with jobs without a token of their rate.
    """

    jobs: list[Job] = field(default_factory=list)
    waiting: set[tuple[MessageRef, str]] = field(default_factory=set)
    elsewhere: set[tuple[MessageRef, str]] = field(default_factory=set)
    paced: set[str] = field(default_factory=set)


class SendOrder(Protocol):
    """The order of messages on an ordered shard."""

    def admits(self, stored: StoredMessage, name: str, now: int) -> bool:
        """Return whether a message that a subscription lacks may be sent to it at `now` (ms)."""
        ...

    def may_die(self, stored: StoredMessage, died: frozenset[str]) -> bool:
        """Return whether a message may die for these, after writing down the keys that it blocks.

        Raises:
            FairboxError: that could not be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class How:
    """The way in which a delivery is made.

    Attributes:
        order: of an ordered shard, its order; the caller then enqueues visits of messages that
            wait.
        from_stream: leave out subscriptions that may not be called from the stream; the result
            has the messages `left`, for which no visit is enqueued. A line that turns out to be
            slow gets no further call.
        shared: leave out subscriptions that need visits apart; the result has their messages
            `apart`, for which no visit is enqueued. A line is slow at a fifth of the duration; and
            once a line has no work left, the others go on for half a second. The jobs of these
            lines are handed over. Not on ordered topics.
        subscription: send to this one only, in one of its groups; empty: to all.
        kept: no walk looks for these messages: they keep doorbells of their own.
        walk: skip messages under retry, which have their own doorbells, until they are a minute
            overdue.
    """

    order: SendOrder | None = None
    from_stream: bool = False
    shared: bool = False
    subscription: str = ""
    kept: bool = False
    walk: bool = False


PLAIN: Final = How()


@dataclass(slots=True)
class Delivery:
    """One delivery.

    Attributes:
        how: its kind.
        topics: of its messages, by name.
        pushed: its messages, with their topics.
        jobs: of the subscriptions that it serves.
        apart: the jobs of others.
        admitted: those of `jobs` that are sent.
        result: is filled.
        probes: by topic and subscription that is not ready, when it may be probed (ms).
    """

    how: How
    topics: dict[str, TopicState | None]
    pushed: list[tuple[StoredMessage, TopicState]]
    jobs: list[Job]
    apart: list[Job]
    admitted: Admitted
    result: DeliveryResult
    probes: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class DeliveryResult:
    """The result of a delivery, for its caller.

    Attributes:
        metrics: the figures for CloudWatch.
        removed: messages that left the outbox: delivered, dead or purged.
        outcomes: the destinations' answers, by message and subscription.
        after: messages that stay or have just died, as they were written.
        unsettled: messages whose outcome could not be written.
        left: messages still owed to subscriptions that may not be called from the stream; set only
            when `from_stream` is true.
        paced: subscriptions whose rate put jobs off; the visit enqueues visits for their next
            turn.
        waits: by subscription that does not take all messages now: when to come back (ms).
        quiet: subscriptions of `waits` that are not ready: a probe or a resume enqueues visits
            before.
        apart: of a shared visit, the messages not sent to subscriptions that are slow, or have a
            limit in flight, by (topic, subscription): the visit enqueues visits apart.
    """

    metrics: DeliveryMetrics = field(default_factory=DeliveryMetrics)
    removed: int = 0
    outcomes: Outcomes = field(default_factory=dict)
    after: dict[MessageRef, StoredMessage] = field(default_factory=dict)
    unsettled: set[MessageRef] = field(default_factory=set)
    left: list[MessageRef] = field(default_factory=list)
    paced: set[str] = field(default_factory=set)
    waits: dict[str, int] = field(default_factory=dict)
    quiet: set[str] = field(default_factory=set)
    apart: dict[tuple[str, str], list[MessageRef]] = field(default_factory=dict)

    @property
    def served(self) -> set[str]:
        """The names of the subscriptions that were called."""
        return {name for _, name in self.outcomes}

    @property
    def progress(self) -> int:
        """The number of steps forward: messages taken, died and removed."""
        return self.metrics.sent.total() + self.metrics.dead.total() + self.removed


@dataclass(slots=True)
class VisitReport:
    """The result of a visit.

    Attributes:
        deliveries: one for each page.
        finished: marked messages whose removal somebody else had begun.
        unreadable: items buried as they are.
        unfinished: the time limit came first; another visit of the shard was enqueued.
    """

    deliveries: list[DeliveryResult] = field(default_factory=list)
    finished: int = 0
    unreadable: int = 0
    unfinished: bool = False

    @property
    def progress(self) -> int:
        """The number of steps forward."""
        moved = sum(delivery.progress for delivery in self.deliveries)
        return moved + self.finished + self.unreadable

    @property
    def paced(self) -> set[str]:
        """The subscriptions with messages that have no token of their rate."""
        return {name for delivery in self.deliveries for name in delivery.paced}


class PageStream:
    """The pages of one subscription that are sent together, so that no room in flight is empty.

    Args:
        first: the first page.
        following: the others, which are read when they are taken.
        begin: admits a page's messages.
        finish: writes a page's outcomes.
        flows: whether the next page may be sent beside one.
    """

    def __init__(
        self,
        first: Page,
        following: Iterator[Page],
        begin: Callable[[Sequence[StoredMessage]], Delivery],
        finish: Callable[[Delivery], None],
        flows: Callable[[Delivery], bool],
    ) -> None:
        self._following = following
        self._begin = begin
        self._finish = finish
        self._flows = flows
        self._open: list[_OpenPage] = []
        self._error: FairboxError | None = None
        self.jobs = self._add(first)

    def more(self, outcomes: Outcomes, *, wanted: bool) -> Sequence[Job]:
        """Finish the pages that are answered, take their outcomes out, and return more jobs."""
        jobs: Sequence[Job] = ()
        while wanted and not jobs and len(self._open) < PAGES:
            if not self._flows(self._open[-1].delivery):
                break
            try:
                page = next(self._following, None)
            except FairboxError as error:  # after the outcomes of what is in flight
                self._error = error
                break
            if page is None:
                break
            jobs = self._add(page)

        # the last page stays: it says whether another may follow
        for open_ in [page for page in self._open[:-1] if page.answered(outcomes)]:
            self._close(open_, outcomes)
        return jobs

    def end(self, outcomes: Outcomes) -> None:
        """Finish the open pages: no call is in flight any longer.

        Raises:
            FairboxError: a page could not be read.
        """
        # a copy: each page leaves the list when it is closed
        for page in list(self._open):
            self._close(page, outcomes)
        # behind the outcomes: what was sent is written in any case
        if self._error is not None:
            raise self._error

    def _add(self, page: Page) -> Sequence[Job]:
        messages, done = page
        opened = _OpenPage(self._begin(messages), done)
        self._open.append(opened)
        return opened.delivery.admitted.jobs

    def _close(self, page: _OpenPage, outcomes: Outcomes) -> None:
        self._open.remove(page)
        delivery = page.delivery
        keys = [job.key for job in delivery.admitted.jobs]
        delivery.result.outcomes = {key: outcomes.pop(key) for key in keys if key in outcomes}
        self._finish(delivery)
        page.done(delivery.result)


class _OpenPage:
    """A page whose outcomes are not written."""

    def __init__(self, delivery: Delivery, done: Done) -> None:
        self.delivery = delivery
        self.done = done
        self._unanswered = [job.key for job in reversed(delivery.admitted.jobs)]

    def answered(self, outcomes: Outcomes) -> bool:
        """Whether all calls have an outcome; asked again and again, it looks once at each."""
        while self._unanswered and self._unanswered[-1] in outcomes:
            self._unanswered.pop()
        return not self._unanswered
