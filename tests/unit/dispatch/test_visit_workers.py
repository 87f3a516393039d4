"""Workers of visits: thirty slow webhooks take none that an ordered topic needs.

The shipped doorbells and visits, on a clock of their own, over queues with groups and a number of
workers each. A worker is a process: it has its own memory of slow lines.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Subscription, Topic
from fairbox.aws.sqs_doorbells import SqsDoorbells, decode
from fairbox.dispatch.dispatcher import Dispatcher
from fairbox.dispatch.ports import TAKEN, Doorbell, Limits, Outcome
from fairbox.dispatch.sending.sender import Sender
from fairbox.dispatch.sending.slow_destinations import SlowDestinations
from fairbox.dispatch.visits import Visits
from fairbox.testing.application import MemoryApplication, MemoryDestination

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from fairbox.dispatch.sending.sender import Begin, Finish
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.testing.clock import ManualClock

WORKERS: Final = 10  # of each queue
SLOW: Final = 30  # topics with a webhook of two seconds
SLOW_RATE: Final = 0.3  # messages a second of each of them: 18 workers' work in all
ORDERED_RATE: Final = 5
SECONDS: Final = 30
LEARNT: Final = 5.0  # seconds until each process has met a slow line
_OVERHEAD: Final = 0.03  # s of an invocation


def run_at_once(clock: ManualClock) -> Callable[[Begin], None]:
    """Return a fan-out whose calls run at once, in the time of a clock that they advance."""

    def run(begin: Begin) -> None:
        running: list[tuple[float, int, Finish]] = []
        numbers = count()

        def start() -> None:
            for call in begin():
                began = clock.now()
                finish = call()
                heappush(running, (clock.now(), next(numbers), finish))
                clock.set(began)

        start()
        while running:
            at, _, finish = heappop(running)
            clock.set(at)
            finish()
            start()

    return run


class Queues:
    """FIFO queues as far as they matter here: a group's next message waits for its last visit."""

    def __init__(self) -> None:
        self.waiting: dict[str, dict[str, deque[str]]] = defaultdict(dict)
        self.sent: list[tuple[str, str, str]] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - the SDK's
        self.sent += [(QueueUrl, e.get("MessageGroupId", ""), e["MessageBody"]) for e in Entries]
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    def release(self, sent: list[tuple[str, str, str]]) -> None:
        for url, group, body in sent:
            self.waiting[url].setdefault(group, deque()).append(body)

    def take(self, url: str, busy: set[str]) -> tuple[str, str] | None:
        groups = self.waiting[url]
        for group in groups:
            if (url + group) not in busy:
                body = groups[group].popleft()
                left = groups.pop(group)
                if left:
                    groups[group] = left  # behind the others
                return group, body
        return None


class Simulation:
    """An ordered topic beside so many topics with a slow webhook."""

    def __init__(self, slow: int, *, apart: bool) -> None:
        self.app = MemoryApplication()
        self.clock = self.app.clock
        self._seeds = count()
        self.waits: list[float] = []
        self.taken = 0
        self.queues = Queues()
        self.bells = SqsDoorbells(
            self.queues, "now", "later", clock=self.clock, groups=self._groups,
            apart_url="apart" if apart else None, groups_apart=self._groups_apart,
        )  # fmt: skip
        self.topics = ["ordered", *(f"slow{n}" for n in range(slow))]
        for name in self.topics:
            ordering = "key" if name == "ordered" else "none"
            self.app.outbox.create_topic(Topic(name, ordering=ordering))  # type: ignore[arg-type]  # one of both
            take = self._ordered if name == "ordered" else self._slowly
            address = f"https://{name}.example"
            self.app.destinations.put(
                address, MemoryDestination(Limits(1, 1 << 20), answer=take, quick=False)
            )
            self.app.outbox.add_subscription(Subscription(name, "hook", address))
        self.states = {name: self.app.outbox.topic(name) for name in self.topics}
        self.idle = {url: [self._visits() for _ in range(WORKERS)] for url in ("now", "apart")}
        self.busy: set[str] = set()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count()
        self.began = self.clock.now()

    def _visits(self) -> Visits:
        dispatcher = Dispatcher(
            self.app.store,
            self.app.destinations,
            self.bells,
            clock=self.clock,
            rng=random.Random(next(self._seeds)),
            fan_out=run_at_once(self.clock),
        )
        return Visits(dispatcher)

    def _groups(self, topic: str) -> int:
        return self.states[topic].groups

    def _groups_apart(self, topic: str, _: str) -> int:
        return self.states[topic].subscriptions[0].groups

    def _ordered(self, stored: StoredMessage) -> Outcome:
        self.clock.advance(0.02)
        added = float(stored.message.body)
        if added > self.began + LEARNT:
            self.waits.append(self.clock.now() - added)
        return TAKEN

    def _slowly(self, _: StoredMessage) -> Outcome:
        self.clock.advance(2)
        self.taken += 1
        return TAKEN

    def run(self) -> list[float]:
        """Return how long each ordered message took (s), sorted."""
        for name in self.topics:
            rate = ORDERED_RATE if name == "ordered" else SLOW_RATE
            first = random.Random(name).random() / rate
            for n in range(int(SECONDS * rate)):
                self._at(self.began + first + n / rate, lambda name=name: self._publish(name))  # type: ignore[misc]  # bound here
        while self.events and self.events[0][0] < self.began + SECONDS:
            now, _, event = heappop(self.events)
            self.clock.set(now)
            event()
            self._work()
        return sorted(self.waits)

    def _at(self, when: float, event: Callable[[], None]) -> None:
        heappush(self.events, (when, next(self.numbers), event))

    def _publish(self, topic: str) -> None:
        ids = self.app.ids
        message = Message(
            topic=topic,
            body=str(self.clock.now()).encode(),
            id=ids.next(),
            partition_key=ids.next(),
        )
        ref = self.app.outbox.add(message)
        self.bells.ring([Doorbell(topic, ref.epoch, ref.shard, (ref,))])
        self._release()

    def _release(self) -> None:
        self.queues.release(self.queues.sent)
        self.queues.sent = []

    def _work(self) -> None:
        """Let idle workers take doorbells; what a visit rings comes when it ends."""
        for url, idle in self.idle.items():
            while idle and (taken := self.queues.take(url, self.busy)):
                group, body = taken
                visits, now = idle.pop(0), self.clock.now()
                self.busy.add(url + group)
                visits.handle(decode(body), deadline=now + 18)
                sent, self.queues.sent = self.queues.sent, []
                ended = self.clock.now() + _OVERHEAD
                self.clock.set(now)
                self._at(ended, partial(self._end, url, group, visits, sent))

    def _end(self, url: str, group: str, visits: Visits, sent: list[tuple[str, str, str]]) -> None:
        self.queues.release(sent)
        self.busy.remove(url + group)
        self.idle[url].append(visits)


def p99(waits: list[float]) -> float:
    return waits[int(0.99 * (len(waits) - 1))]


def test_thirty_slow_webhooks_take_no_worker_that_an_ordered_topic_needs() -> None:
    alone, beside = Simulation(0, apart=True), Simulation(SLOW, apart=True)
    quiet, busy = alone.run(), beside.run()
    assert len(busy) == len(quiet) > 100
    assert p99(busy) < 1.5 * p99(quiet)
    assert beside.taken > 0.5 * SLOW * SLOW_RATE * SECONDS


def harm(*, apart: bool = True) -> float:
    return p99(Simulation(SLOW, apart=apart).run()) / p99(Simulation(0, apart=apart).run())


def test_visits_that_all_share_workers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sender, "apart", lambda *_: False)
    monkeypatch.setattr(SlowDestinations, "slow", lambda *_: False)
    assert harm() > 10


def test_one_queue_for_all_visits_is_found() -> None:
    assert harm(apart=False) > 10


def test_processes_that_each_wait_for_each_slow_line_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SlowDestinations, "avoided", SlowDestinations.slow)
    assert harm() > 10
