"""One run: messages of each kind, a batch, a delayed one, one that dies; then they are removed."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal

from fairbox.errors import (
    BatchEnded,
    FairboxError,
    MessagesNotFound,
    Unavailable,
    UnknownSubscription,
)
from fairbox.model.messages import Message, MessageRef
from fairbox.model.topics import RetryPolicy, Subscription, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fairbox.client.batches import Batches
    from fairbox.client.outbox import Outbox
    from fairbox.client.queue import Queue
    from fairbox.model.clock import Clock
    from fairbox.smoke.resources import SmokeResources

Status = Literal["ok", "failed", "not tried"]

DESTINATIONS: Final = ("sqs", "sns", "events", "kinesis", "lambda", "https", "topic")
"""Kinds of destinations, by the schemes of their addresses."""
OTHERS: Final = ("delayed", "dead letter", "batch", "clean-up")
"""The steps beside them."""
DELAY_SECONDS: Final = 5
ITEMS: Final = 10
_POLL_SECONDS: Final = 0.5
_SUBSCRIPTION: Final = "smoke"
_ONCE: Final = RetryPolicy(max_attempts=1)


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step.

    Attributes:
        name: a kind of destination, or one of `OTHERS`.
        status: `not tried`: it lacks something that only the caller can give.
        seconds: from the call that began it until its effect was seen; None where there is none.
        detail: the state seen instead, or the missing option.
    """

    name: str
    status: Status
    seconds: float | None = None
    detail: str = ""

    def fields(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return asdict(self)


@dataclass(slots=True)
class Expectation:
    """Something that a step waits for.

    Attributes:
        since: when it began, in seconds since 1970.
        seen: whether the effect is there; raises `FairboxError` where it can never be.
        why_not: says where the message is instead.
    """

    name: str
    since: float
    seen: Callable[[], bool]
    why_not: Callable[[], str]


class Smoke:
    """One run of the smoke test.

    Args:
        outbox, queue, batches: of the deployment.
        resources: makes queues and the like.
        new_id: makes ids of messages, of the clock's time.
        run: names this run: the topics are `smoke-{run}-...`. Two runs at once need two names.
        kinds: the kinds of destinations to try.
        function: ARN of a function for kind `lambda`; None: it is not tried.
        webhook: URL of a receiver for kind `https`; None: it is not tried.
        seconds: time after which a missing effect counts as failed.
        keep: leave topics and queues for the next run of the same name, which is a schedule's.
    """

    def __init__(
        self,
        outbox: Outbox,
        queue: Queue,
        batches: Batches,
        resources: SmokeResources,
        clock: Clock,
        *,
        new_id: Callable[[], str],
        run: str,
        kinds: Sequence[str] = DESTINATIONS,
        function: str | None = None,
        webhook: str | None = None,
        seconds: float = 180,
        keep: bool = False,
    ) -> None:
        self._outbox, self._queue, self._batches = outbox, queue, batches
        self._resources, self._clock = resources, clock
        self._new_id = new_id
        self._run, self._kinds, self._keep = run, kinds, keep
        self._function, self._webhook, self._seconds = function, webhook, seconds
        self._topics: list[str] = []
        self._refs: list[MessageRef] = []
        self._bodies: list[str] = []
        self._url = ""
        self._batch: str | None = None
        self._redriven = False

    def steps(self) -> Iterator[Step]:
        """Run; yield each step when its effect is seen, the failed ones at the end.

        In any case, the run's resources are removed before the last step, `clean-up`.

        Raises:
            FairboxError: there is not even a queue, or the tables refuse; all is removed.
        """
        try:
            self._url = self._resources.queue(f"{self._run}-arrived")
            yield from self._tried()
        finally:
            left = self._removed()
        yield Step("clean-up", "failed" if left else "ok", None, "; ".join(left))

    def _tried(self) -> Iterator[Step]:
        destinations: dict[str, str] = {}
        for kind in self._kinds:
            try:
                address = self._destination(kind)
            except FairboxError as error:
                # the other kinds are tried all the same
                yield Step(kind, "failed", None, str(error))
                continue
            if address is None:
                option = {"https": "--webhook", "lambda": "FAIRBOX_SWEEP_FUNCTION_ARN"}[kind]
                yield Step(kind, "not tried", None, f"{option} is not given")
            else:
                destinations[kind] = address

        sqs = f"sqs:{self._url}"
        # a queue that is made later: until then, messages for it fail
        late = self._url.replace(f"{self._run}-arrived", f"{self._run}-late")
        self._subscribe({**destinations, "batch": sqs, "delayed": sqs, "dead": f"sqs:{late}"})

        waiting = [
            *(self._sent(kind) for kind in destinations),
            self._delayed(),
            self._dead(),
            self._acked(),
        ]
        yield from self._await(waiting)

    def _await(self, waiting: list[Expectation]) -> Iterator[Step]:
        end = self._clock.now() + self._seconds
        errors: dict[str, str] = {}
        while waiting and self._clock.now() < end:
            # all expectations share a queue: each finds its own by the id in the body
            self._bodies += self._resources.received(self._url)
            for one in list(waiting):
                try:
                    seen = one.seen()
                except FairboxError as error:  # it may pass: the last one is told
                    errors[one.name] = str(error)
                    continue
                if seen:
                    waiting.remove(one)
                    yield Step(one.name, "ok", round(self._clock.now() - one.since, 1))
            self._clock.sleep(_POLL_SECONDS)

        for one in waiting:
            detail = errors.get(one.name) or one.why_not()
            yield Step(one.name, "failed", None, f"not seen after {self._seconds:g} s: {detail}")

    def _destination(self, kind: str) -> str | None:
        """Return an address of this kind; None where only the caller can give one."""
        resources, run = self._resources, self._run
        arn = resources.queue_arn(self._url)
        make: dict[str, Callable[[], str | None]] = {
            "sqs": lambda: f"sqs:{self._url}",
            "sns": lambda: f"sns:{resources.sns_topic(run, arn)}",
            "events": lambda: f"events:{resources.bus(run, arn)}",
            "kinesis": lambda: f"kinesis:{resources.stream(run)}",
            "lambda": lambda: self._function and f"lambda:{self._function}",
            "https": lambda: self._webhook,
            "topic": self._pulled_topic,
        }
        return make[kind]()

    def _pulled_topic(self) -> str:
        self._create(Topic(self._topic("pulled"), shards=1))
        return f"topic:{self._topic('pulled')}"

    def _topic(self, kind: str) -> str:
        return f"smoke-{self._run}-{kind}"

    def _create(self, topic: Topic) -> None:
        self._outbox.create_topic(topic)
        self._topics.append(topic.name)

    def _subscribe(self, destinations: dict[str, str]) -> None:
        for kind in destinations:
            # it is to die at its first failure, not after ten
            retry = _ONCE if kind == "dead" else RetryPolicy()
            self._create(Topic(self._topic(kind), shards=1, retry=retry))
        # all in one call, which waits for 2 s once
        self._outbox.add_subscriptions(
            Subscription(self._topic(kind), _SUBSCRIPTION, address)
            for kind, address in destinations.items()
        )

    def _add(self, kind: str, **fields: object) -> MessageRef:
        body = json.dumps({"smoke": self._run, "kind": kind}).encode()
        fields |= {"topic": self._topic(kind), "body": body, "id": self._new_id()}
        message = Message(**fields)  # type: ignore[arg-type]
        ref = self._outbox.add(message)
        self._refs.append(ref)
        return ref

    def _sent(self, kind: str) -> Expectation:
        since = self._clock.now()
        ref = self._add(kind)
        seen: dict[str, Callable[[], bool]] = {
            "kinesis": lambda: any(ref.id in text for text in self._records()),
            "topic": lambda: self._pulled(ref),
            "lambda": lambda: self._recorded(ref),
            "https": lambda: self._recorded(ref),
        }
        arrived = seen.get(kind, lambda: self._arrived(ref))
        return Expectation(kind, since, arrived, lambda: self._where(ref))

    def _arrived(self, ref: MessageRef) -> bool:
        return any(ref.id in body for body in self._bodies)

    def _records(self) -> list[str]:
        (address,) = (
            s.destination for s in self._outbox.topic(self._topic("kinesis")).subscriptions
        )
        return self._resources.records(address.removeprefix("kinesis:"))

    def _pulled(self, ref: MessageRef) -> bool:
        received = self._queue.receive(self._topic("pulled"), max_messages=10)
        # others too: messages of an earlier run of this name would fill the next receives
        self._queue.ack([one.receipt for one in received])
        return any(one.message.id == ref.id for one in received)

    def _recorded(self, ref: MessageRef) -> bool:
        """Whether the ledger has the delivery: its receiver keeps nothing that could be read."""
        return any(delivery.id == ref.id for delivery in self._outbox.delivered(ref.topic))

    def _delayed(self) -> Expectation:
        since = self._clock.now()
        ref = self._add("delayed", delay=DELAY_SECONDS)

        def seen() -> bool:
            if self._arrived(ref) and self._clock.now() < since + DELAY_SECONDS:
                raise Unavailable("delay", f"it came before its {DELAY_SECONDS} s had passed")
            return self._arrived(ref)

        return Expectation("delayed", since, seen, lambda: self._where(ref))

    def _dead(self) -> Expectation:
        """A message for a queue that does not exist dies; then the queue is made, and it comes."""
        since = self._clock.now()
        ref = self._add("dead")
        late: list[str] = []

        def seen() -> bool:
            if not late:
                if not any(self._outbox.dead(ref.topic)):
                    return False
                late.append(self._resources.queue(f"{self._run}-late"))
            if not self._redriven:
                self._redriven = self._outbox.redrive(ref.topic).count > 0
            self._bodies += self._resources.received(late[0])
            return self._arrived(ref)

        return Expectation("dead letter", since, seen, lambda: self._where(ref))

    def _acked(self) -> Expectation:
        """Ten messages, each with an item of a batch, which completes when they are delivered."""
        since = self._clock.now()
        batch = self._batches.open(user_key=f"smoke-{self._run}").id
        self._batch = batch
        groups = self._batches.add(batch, ITEMS, request_id="smoke")
        for item in (item for group in groups for item in group.item_ids()):
            self._add("batch", batch_item=item)
        # behind the adds: a sealed batch takes no items, and completes when none is pending
        self._batches.seal(batch)

        def seen() -> bool:
            return self._batches.progress(batch).complete

        def why_not() -> str:
            progress = self._batches.progress(batch)
            return f"{progress.acked} of {ITEMS} items are acked"

        return Expectation("batch", since, seen, why_not)

    def _where(self, ref: MessageRef) -> str:
        """Return where a message is that did not come."""
        stored = self._outbox.find(ref)
        if stored is None:
            dead = any(letter.ref == ref for letter in self._outbox.dead(ref.topic))
            return "it is a dead letter" if dead else "it has left the outbox"
        failures = [f.error for state in stored.states.values() for f in state.history]
        return f"it is outstanding; {failures[-1]}" if failures else "it is outstanding, not tried"

    def _removed(self) -> list[str]:
        """Remove the resources of this run; return the failures, with reasons."""
        if self._batch is not None:
            # it completed, as it should
            with suppress(BatchEnded):
                self._batches.cancel(self._batch)
        # messages first: topics that hold any are not deleted
        left = empty_topics(self._outbox, self._topics, self._refs)
        if not self._keep:
            left += delete_topics(self._outbox, self._topics)
        return [*left, *self._resources.remove(keep={self._url} if self._keep else ())]


def empty_topics(outbox: Outbox, topics: Iterable[str], refs: Sequence[MessageRef]) -> list[str]:
    """Cancel these messages and purge the dead letters; return the failures, with reasons."""

    def empty(name: str) -> None:
        # delivered ones are gone, as they should be
        with suppress(MessagesNotFound):
            outbox.cancel([ref for ref in refs if ref.topic == name], reason="smoke test")
        outbox.purge_dead(name, reason="smoke test")

    return _each(topics, empty)


def delete_topics(outbox: Outbox, topics: Sequence[str]) -> list[str]:
    """Delete empty topics with their subscriptions, in one wait of a minute for all of them.

    Returns:
        The topics that are still there, and why.
    """
    waits = [0.0]

    def unsubscribe(name: str) -> None:
        for subscription in outbox.topic(name).subscription_names:
            # somebody removed it meanwhile
            with suppress(UnknownSubscription):
                outbox.tables.topics.remove_subscription(name, subscription)

    left = _each(topics, unsubscribe)
    # one wait for all topics, where `Outbox.remove_subscription` waits for each
    outbox.wait_until_in_force(*topics)
    # the first call marks a topic and says how long producers' copies live
    left += _each(topics, lambda name: waits.append(outbox.delete_topic(name, wait=False)))
    outbox.tables.calls.clock.sleep(max(waits))
    # the second call, after the wait, deletes
    return left or _each(topics, lambda name: waits.append(outbox.delete_topic(name, wait=False)))


def _each(topics: Iterable[str], call: Callable[[str], None]) -> list[str]:
    left = []
    for name in topics:
        try:
            call(name)
        except FairboxError as error:
            left.append(f"topic {name}: {error}")
    return left
