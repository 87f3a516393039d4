"""Cost of each operation behind a backlog of 100, 10,000 and a million: it should not grow.

Request units and calls of real code over the metered in-memory engine, exact, on a manual clock.
"""

from __future__ import annotations

import gc
import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Subscription, Topic
from fairbox.api.message_list_routes import list_messages
from fairbox.api.models import ListQuery
from fairbox.api.stats_routes import stats
from fairbox.dispatch.ports import TAKEN
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

from benchmarks.backlog import BODY, fill
from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairbox.dispatch.ports import Outcome
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import Ordering
    from fairbox.testing import Reading

SIZES: Final = (100, 10_000, 1_000_000)
MOST: Final = 1.05
TOPIC: Final = "jobs"
DESTINATION: Final = "sqs:jobs"
SHARDS: Final = 8
MESSAGES: Final = 100
_AT_A_CALL: Final = 10
_PAGE: Final = 3  # of a shard there are as many behind the smallest backlog too
_SEND_SECONDS: Final = {"none": 0.3, "key": 1.3}  # a visit has time for what it reads first
_SETTLED_SECONDS: Final = 3.0
_FULL: Final = 7168
_ACKS: Final = 50


@dataclass(frozen=True, slots=True)
class Measured:
    """Cost of an operation, per call (or per message)."""

    operation: str
    wru: float
    rru: float
    calls: float

    @classmethod
    def of(cls, operation: str, reading: Reading, times: int) -> Measured:
        """Divide a reading by the number of calls."""
        calls = sum(reading.calls.values())
        return cls(operation, reading.wru / times, reading.rru / times, calls / times)


@dataclass(slots=True)
class _World:
    """An application whose calls are metered, with a backlog in its one topic."""

    meters: list[CostMeter] = field(default_factory=list)
    app: MemoryApplication = field(init=False)

    def __post_init__(self) -> None:
        self.app = MemoryApplication(rng=random.Random(1), wrap=self._wrap)

    def _wrap(self, client: Any) -> CostMeter:
        self.meters.append(CostMeter(client))
        return self.meters[-1]

    def open(
        self,
        backlog: int,
        *,
        ordering: Ordering = "none",
        shards: int = SHARDS,
        pushed: bool = False,
        later: bool = False,
    ) -> None:
        """Create the topic with its backlog; every process has read it."""
        app = self.app
        topic = Topic(TOPIC, shards=shards, ordering=ordering)
        app.outbox.create_topic(topic)
        if pushed:
            app.outbox.add_subscription(Subscription(TOPIC, "worker", DESTINATION))
        fill(app.engine, topic, backlog, now=app.clock.now(), later=later)
        app.outbox.topic(TOPIC)
        app.store.refresh()

    def measure(self, operation: str, times: int, work: Callable[[], object]) -> Measured:
        """Do the work; return its cost divided by `times`."""
        self.meters[0].reset()
        work()
        return Measured.of(operation, self.meters[0].reading(), times)

    def send(self, count: int) -> list[Message]:
        """Send messages, 25 a call."""
        made = [
            Message(topic=TOPIC, body=BODY, id=self.app.ids.next(), partition_key=f"k{n}")
            for n in range(count)
        ]
        self.app.outbox.add_many(made)
        return made

    def spend_time(self, seconds: float) -> None:
        """Set the time that a message takes at its destination."""

        def answer(_: StoredMessage) -> Outcome:
            self.app.clock.advance(seconds)
            return TAKEN

        self.app.destinations[DESTINATION].answer = answer


def figures(sizes: Sequence[int] = SIZES) -> tuple[list[Figure], list[str]]:
    """Return every operation's cost at each size, beside the smallest, and the costs that grow."""
    costs = {size: measure(size) for size in sizes}
    found: list[Figure] = []
    grown: list[str] = []
    for operation in costs[sizes[0]]:
        for unit in ("wru", "rru", "calls"):
            base = getattr(costs[sizes[0]][operation], unit)
            values = {size: getattr(costs[size][operation], unit) for size in sizes}
            if not any(values.values()):
                continue
            for size, value in values.items():
                name = f"growth.{operation}.{unit}.backlog_{size}"
                shown = unit if unit == "calls" else unit.upper()
                figure = Figure(name, shown, value, base, f"a backlog of {sizes[0]}")
                found.append(figure)
                if value > MOST * base:
                    grown.append(f"{name} is {value:.4g}, against {base:.4g}")
    return found, grown


def measure(backlog: int) -> dict[str, Measured]:
    """Return the cost of each operation behind such a backlog, by name."""
    parts = (_pushed, _visits, _ordered_visits, _pulled, _pulled_by_key, _pulled_delayed, _batch)
    found: list[Measured] = []
    for part in parts:
        with _much_memory():
            found += part(backlog)
    return {one.operation: one for one in found}


@contextmanager
def _much_memory() -> Iterator[None]:
    """Exclude millions of long-lived items from garbage collection until the end."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def _pushed(backlog: int) -> list[Measured]:
    world = _World()
    world.open(backlog, pushed=True)
    app = world.app
    world.send(1)
    app.relay()
    app.mark()  # what a process does once is done
    sent: list[Message] = []
    found = [world.measure("send", MESSAGES, lambda: sent.extend(world.send(MESSAGES)))]
    found.append(world.measure("relay", MESSAGES, app.relay))
    found.append(world.measure("mark", MESSAGES, app.mark))
    app.clock.advance(_SETTLED_SECONDS)
    found.append(world.measure("sweep", 1, app.sweep))
    found.append(world.measure("stats", 1, lambda: stats(app.outbox, app.clock)))
    query = ListQuery(limit=_PAGE)
    page = lambda: list_messages(app.outbox, TOPIC, query, app.clock)  # noqa: E731 - a step
    found.append(world.measure("list_page", 1, page))
    refs = app.outbox.add_many([Message(topic=TOPIC, body=BODY, id=app.ids.next())])
    found.append(world.measure("get", 1, lambda: app.outbox.get(refs[0])))
    found.append(world.measure("cancel", 1, lambda: app.outbox.cancel(refs)))
    return found


def _visits(backlog: int) -> list[Measured]:
    return _visited(backlog, "none", "visit")


def _ordered_visits(backlog: int) -> list[Measured]:
    return _visited(backlog, "key", "visit_ordered")


def _visited(backlog: int, ordering: Ordering, name: str) -> list[Measured]:
    """Measure a visit of one shard that the sweep enqueued, until its time limit."""
    world = _World()
    world.open(backlog, ordering=ordering, shards=1, pushed=True)
    app = world.app
    world.spend_time(_SEND_SECONDS[ordering])
    app.sweep()
    world.meters[0].reset()
    app.visit(limit=1)
    done = len(app.destinations[DESTINATION].received)
    return [Measured.of(name, world.meters[0].reading(), done)]


def _pulled(backlog: int) -> list[Measured]:
    return _consumed(backlog, "none", "")


def _pulled_by_key(backlog: int) -> list[Measured]:
    return _consumed(backlog, "key", "_ordered")


def _pulled_delayed(backlog: int) -> list[Measured]:
    return _consumed(backlog, "none", "_behind_delayed", later=True)


def _consumed(
    backlog: int, ordering: Ordering, tail: str, *, later: bool = False
) -> list[Measured]:
    """Measure messages sent, received and acknowledged, ten a call."""
    world = _World()
    world.open(backlog, ordering=ordering, later=later)
    app, queue = world.app, world.app.queue
    world.send(MESSAGES)
    app.clock.advance(_SETTLED_SECONDS)
    queue.ack([one.receipt for one in queue.receive(TOPIC, _AT_A_CALL)])

    def cycle() -> None:
        done = 0
        while done < MESSAGES:
            world.send(_AT_A_CALL)
            app.clock.advance(_SETTLED_SECONDS)
            received = queue.receive(TOPIC, _AT_A_CALL)
            queue.ack([one.receipt for one in received])
            done += len(received)

    found = [world.measure(f"send_receive_ack{tail}", MESSAGES, cycle)]
    if not tail:
        found.append(world.measure("queue_stats", 1, lambda: queue.stats(TOPIC)))
    return found


def _batch(pending: int) -> list[Measured]:
    """Measure acks of a batch with so many pending items: single ones, and ten of a group."""
    world = _World()
    batches = world.app.batches
    batch = batches.open().id
    groups = batches.add(batch, pending, request_id="all", group_size=min(_FULL, pending))
    batches.seal(batch)
    batches.ack(f"{group.id}:0" for group in groups)  # drops the add's name from each leaf
    rng = random.Random(3)
    singles = [f"{rng.choice(groups[:-1] or groups).id}:{n}" for n in range(1, _ACKS + 1)]

    def one_by_one() -> None:
        for item in singles:
            batches.ack([item])

    ten = [f"{groups[0].id}:{n}" for n in range(60, 70)]
    return [
        world.measure("batch_ack", _ACKS, one_by_one),
        world.measure("batch_ack_of_ten", len(ten), lambda: batches.ack(ten)),
    ]
