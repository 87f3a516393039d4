"""Reads a message by number of topics, quiet and while topics and circuits change.

Request units of real code over the metered in-memory engine, exact, on a manual clock. Every
message goes to a topic chosen at random, which is the dearest case: no process can profit from a
busy topic. Four stream shards have a relay and a marking process each, and there are four
producers and four processes of visits. All of them have read their topics, and are two minutes old,
before the count begins; what reading the topics costs a process is a figure of its own.
"""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Final

from fairbox import Message, Outbox, Subscription, Topic
from fairbox.dispatch.visits import Visits
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryDestination

from benchmarks.deployment import BODY_BYTES, Deployment, Load
from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIZES: Final = (1, 50, 400, 1000)
RATE: Final = 100
SECONDS: Final = 60
PRODUCERS: Final = 4
VISITORS: Final = 4
EVERY: Final = 10.0
"""Seconds between two new topics, and between two circuits that open."""
MOST: Final = 0.1
"""RRU a message that relay and producers may read together; marking reads each shard's row."""
_CLOSES_AFTER: Final = 5.0
_SUBSCRIPTION: Final = "billing"
_FUNCTIONS: Final = ("producer", "relay", "mark", "visit")


class TopicsDeployment(Deployment):
    """A deployment of many topics with one subscription each.

    Args:
        topics: how many.
        slow: whether only visits may call the destinations, as they call webhooks.
        administration: whether topics are created and circuits open and close meanwhile.
    """

    def __init__(self, topics: int, *, slow: bool = False, administration: bool = False) -> None:
        super().__init__(rng=random.Random(1))
        self.names = [f"topic-{n:04d}" for n in range(topics)]
        self.slow = slow
        self._busy = administration
        self._next_change = self.app.clock.now() + EVERY
        self._closing: deque[tuple[float, str]] = deque()
        self.created = 0
        tables = partial(Outbox, self.app.client, table=OUTBOX, deliveries_table=DELIVERIES)
        self._outboxes = [tables(clock=self.app.clock, rng=self.app.rng) for _ in range(PRODUCERS)]
        self._producer = cycle(self._outboxes)
        self._visitors = [Visits(self._dispatcher()) for _ in range(VISITORS)]
        self._visitor = cycle(self._visitors)
        self._operator = self._tables()

    def _create(self, name: str) -> None:
        self.app.outbox.tables.topics.create(Topic(name, shards=8))
        address = f"sqs:{name}"
        self.app.outbox.tables.topics.add_subscription(Subscription(name, _SUBSCRIPTION, address))
        if self.slow:
            self.app.destinations.put(address, MemoryDestination(quick=False))

    def open_topics(self) -> None:
        """Create the topics; every process reads what it will use."""
        for name in self.names:
            self.accounts.charge("administration", partial(self._create, name))
        for outbox in self._outboxes:
            for name in self.names:
                self.accounts.charge("start", partial(self._prepare, outbox, name))
        self.read_topics(self.names)

    def _prepare(self, outbox: Outbox, topic: str) -> None:
        """Let a producer read a topic, as for a message that it would write."""
        outbox.transact_items(Message(topic=topic, body=b"", id=self.app.ids.next()))

    @property
    def processes(self) -> int:
        """The number of processes that keep copies of topics, the operator's among them."""
        return len(self._processes) + PRODUCERS

    def run(self, load: Load) -> int:
        """Run the load until everything is delivered and marked; return the number of messages."""
        self.open_topics()
        total = load.rate * load.seconds
        start = self.app.clock.now()
        self._next_change = start + EVERY / 2
        times = deque(sorted(start + self.app.rng.random() * load.seconds for _ in range(total)))
        while times:
            while times and times[0] <= self.app.clock.now():
                times.popleft()
                self.add(load)
            self._step()
        self._busy = False
        while any(s.to_relay or s.to_mark for s in self._shards):
            self._step()
        return total

    def add(self, load: Load) -> None:
        """Publish one message by the next producer, to a topic chosen at random."""
        message = Message(
            topic=self.app.rng.choice(self.names),
            body=self.app.rng.randbytes(BODY_BYTES),
            partition_key=f"customer-{self.app.rng.randrange(load.keys)}",
            id=self.app.ids.next(),
        )
        self.accounts.charge("producer", partial(next(self._producer).add, message))

    def _step(self) -> None:
        self._visits = next(self._visitor)
        super()._step()
        if self._busy:
            self._administer()

    def _administer(self) -> None:
        """Create a topic and open a circuit every ten seconds, and close the circuit after five."""
        now = self.app.clock.now()
        if now >= self._next_change:
            self._next_change += EVERY
            self.created += 1
            self.accounts.charge("administration", partial(self._create, f"new-{self.created}"))
            name = self.names[self.created % len(self.names)]
            self.accounts.charge("administration", partial(self._set_circuit, name, opened=True))
            self._closing.append((now + _CLOSES_AFTER, name))
        while self._closing and now >= self._closing[0][0]:
            _, name = self._closing.popleft()
            self.accounts.charge("administration", partial(self._set_circuit, name, opened=False))

    def _set_circuit(self, topic: str, *, opened: bool) -> None:
        before = self._operator.circuits.read(topic, [_SUBSCRIPTION])[_SUBSCRIPTION]
        now = int(self.app.clock.now() * 1000)
        after = before.opened(now, "HTTP 503", self.app.rng) if opened else before.closed()
        self._operator.circuits.write(topic, _SUBSCRIPTION, after, before, announce=opened)


def figures(
    sizes: Sequence[int] = SIZES,
    *,
    seconds: int = SECONDS,
    destinations: Sequence[bool] = (False, True),
) -> tuple[list[Figure], list[str]]:
    """Return the figures by number of topics, and those that are over the most.

    Args:
        sizes: numbers of topics.
        seconds: duration of each load.
        destinations: whether only visits may call them, one after the other.
    """
    found: list[Figure] = []
    wrong: list[str] = []
    for slow in destinations:
        for administration in (False, True):
            for topics in sizes:
                deployment = TopicsDeployment(topics, slow=slow, administration=administration)
                count = deployment.run(Load(rate=RATE, seconds=seconds))
                found += _of(deployment, count)
                accounts = deployment.accounts
                total = accounts.rru("producer", "relay") / count
                if not slow and total > MOST:
                    wrong.append(f"{topics} topics: {total:.3f} RRU a message, over {MOST}")
    return found, wrong


def _of(deployment: TopicsDeployment, count: int) -> Iterator[Figure]:
    accounts = deployment.accounts
    kind = "webhooks" if deployment.slow else "queues"
    mood = "changing" if deployment.created else "quiet"
    place = f"topics.{kind}.{mood}.at_{len(deployment.names)}"
    if not deployment.slow and mood == "quiet":
        start = accounts.rru("start") / deployment.processes
        yield Figure(f"{place}.rru_of_a_start", "RRU", start)
    yield Figure(f"{place}.wru_per_message", "WRU", accounts.wru(*_FUNCTIONS) / count)
    for actor in _FUNCTIONS:
        yield Figure(f"{place}.rru_per_message.{actor}", "RRU", accounts.rru(actor) / count)
    yield Figure(f"{place}.rru_per_message", "RRU", accounts.rru(*_FUNCTIONS) / count)
