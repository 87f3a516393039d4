"""Rates: visits, doorbells, units and calls of a backlog that a subscription's rate holds up.

A simulated clock and the model of SQS drive the shipped relay, doorbells and visits. A doorbell
takes a tick to be passed on, and another until its visit: as on AWS, a visit comes late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Subscription, Topic
from fairbox.aws.doorbell_records import answer_doorbells
from fairbox.aws.sqs_doorbells import decode
from fairbox.dispatch.dispatcher import Dispatcher, run_sequentially
from fairbox.dispatch.visits import Visits
from fairbox.testing import CostMeter, ManualClock
from fairbox.testing.application import MemoryApplication
from fairbox.testing.sqs import SqsFaults

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairbox.aws.doorbell_records import Answer
    from fairbox.aws.sqs_doorbells import SqsDoorbells
    from fairbox.model.clock import Clock
    from fairbox.model.topics import Ordering

TOPIC: Final = "orders"
TICK: Final = 0.1
_BODY_BYTES: Final = 700  # with keys and attributes under 1,024: S = 1
_START: Final = 1_760_000_000.37  # between two seconds
_PROCESSES: Final = 4
_DEADLINE: Final = 18.0
BEFORE: Final = "before doorbells merged"
OLD: Final[Mapping[str, float]] = {
    "rate.1_a_second.8_shards.visits_per_second": 14.91,
    "rate.1_a_second.8_shards.rru_per_message": 20.04,
    "rate.1_a_second.64_shards.visits_per_second": 94.78,
    "rate.1_a_second.64_shards.rru_per_message": 102.66,
    "rate.10_a_second.8_shards.visits_per_second": 93.18,
    "rate.10_a_second.8_shards.rru_per_message": 26.68,
}
"""Figures of the old code over the model of SQS, after a minute; it could not be run at more."""


@dataclass
class Backlog:
    """A backlog of one topic, delivered at its subscription's rate.

    Args:
        rate: messages a second.
        shards: of the topic.
        messages: of the backlog.
        others: subscriptions beside the limited one.
        ordering: of the topic.
        arrivals: messages a second that are published while the backlog is delivered.
        skew: seconds by which the processes' clocks differ from the true time at most.
        tick: seconds from one step to the next.

    Attributes:
        visits: of doorbells that name no messages, by shard and the second that they were for.
        named: visits of doorbells that name messages.
        sent: messages delivered, by second.
        published, taken: times of the messages by id, in seconds since the beginning.
    """

    rate: float
    shards: int
    messages: int
    others: Sequence[Subscription] = ()
    ordering: Ordering = "none"
    arrivals: float = 0.0
    skew: float = 0.0
    tick: float = TICK
    visits: Counter[tuple[int, int]] = field(default_factory=Counter)
    named: int = 0
    sent: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.app = MemoryApplication(clock=ManualClock(_START), wrap=CostMeter)
        self.meter: CostMeter = self.app.client
        # pollers take messages of a standard queue in no order, so no shard is always the first
        self.app.doorbells.sqs.faults = SqsFaults(disorder=1.0)
        self.app.outbox.create_topic(Topic(TOPIC, shards=self.shards, ordering=self.ordering))
        limited = Subscription(TOPIC, "limited", "sqs:limited", rate=self.rate)
        self.app.outbox.add_subscriptions([limited, *self.others])
        self._processes = [self._process(n) for n in range(_PROCESSES)]
        self._turn = 0
        self._arrived = 0
        self.began = self.app.clock.now()
        self.published: dict[str, float] = {}
        self.taken: dict[str, float] = {}
        published, self.messages = self.messages, 0
        self.add(published)
        self.meter.reset()
        self.app.doorbells.sqs.calls.clear()

    def _process(self, number: int) -> tuple[Visits, SqsDoorbells, Clock]:
        clock = _Skewed(self.app.clock, self.skew * (2 * number / (_PROCESSES - 1) - 1))
        doorbells = self.app.doorbells.of(clock)
        dispatcher = Dispatcher(
            self.app.store_of(clock),
            self.app.destinations,
            doorbells,
            clock=clock,
            rng=self.app.rng,
            fan_out=run_sequentially,
        )
        return Visits(dispatcher), doorbells, clock

    def add(self, messages: int) -> None:
        """Publish messages, and relay them."""
        made = [
            Message(
                topic=TOPIC,
                body=self.app.rng.randbytes(_BODY_BYTES),
                partition_key=str(self.messages + n),
                id=self.app.ids.next(),
            )
            for n in range(messages)
        ]
        self.app.outbox.add_many(made)
        self.messages += messages
        self.published |= {m.id: self.seconds for m in made}
        self.app.relay()

    def run(self, seconds: float) -> None:
        """Let time pass, until all is delivered at the most."""
        end = self.app.clock.now() + seconds
        while self.app.clock.now() < end and self.sent.total() < self.messages:
            self.step()

    def run_through(self, seconds: float) -> None:
        """Let time pass, whatever is delivered."""
        end = self.app.clock.now() + seconds
        while self.app.clock.now() < end:
            self.step()

    def step(self) -> None:
        """Let a tick pass."""
        queues, received = self.app.doorbells, self.app.destinations["sqs:limited"].received
        self.app.clock.advance(self.tick)
        before = len(received)
        if self.arrivals and (many := int(self.seconds * self.arrivals) - self._arrived):
            self._arrived += many
            self.add(many)
        while queues.visits.invoke(self._visit):
            pass
        while queues.forwards.invoke(self._answer):
            pass
        self.taken |= {m.ref.id: self.seconds for m in received[before:]}
        self.sent[int(self.seconds)] += len(received) - before

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return self.app.clock.now() - self.began

    def _visit(self, records: list[dict[str, Any]]) -> Answer:
        for record in records:
            doorbell = decode(record["body"])
            if doorbell.refs:
                self.named += 1
            else:
                self.visits[doorbell.shard, doorbell.before // 1000] += 1
        return self._answer(records)

    def _answer(self, records: list[dict[str, Any]]) -> Answer:
        self._turn += 1
        visits, doorbells, clock = self._processes[self._turn % _PROCESSES]
        return answer_doorbells(
            records, visits=visits, doorbells=doorbells, deadline=clock.now() + _DEADLINE
        )


class _Skewed:
    """A clock that is wrong by so many seconds."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self.sleep = clock.sleep

    def now(self) -> float:
        """Return the time that it shows, in seconds since 1970 UTC."""
        return self._clock.now() + self._seconds


def measure(rate: float, shards: int, messages: int, seconds: float) -> Backlog:
    """Deliver a backlog for so many seconds."""
    backlog = Backlog(rate, shards, messages)
    backlog.run(seconds)
    return backlog


def figures() -> tuple[list[Figure], list[str]]:
    """Return the figures, and what is wrong with them."""
    found: list[Figure] = []
    faults: list[str] = []
    for rate, messages, seconds in (
        (1, 400, 300),
        (10, 2_500, 200),
        (100, 8_000, 60),
        (1000, 20_000, 15),
    ):
        for shards in (8, 64):
            backlog = measure(rate, shards, messages, seconds)
            name = f"rate.{rate}_a_second.{shards}_shards"
            found += list(_figures(name, backlog))
            sent = sum(backlog.sent.values())
            if sent < 0.95 * rate * backlog.seconds:
                faults.append(f"{name}: {sent} messages in {backlog.seconds:.0f} s")
    return found, faults


def _figures(name: str, backlog: Backlog) -> Iterator[Figure]:
    sent = sum(backlog.sent.values())
    reading = backlog.meter.reading()
    visits = backlog.visits.total() + backlog.named
    calls = backlog.app.doorbells.sqs.calls["SendMessageBatch"]
    values = {
        "messages_per_second": ("messages/s", sent / backlog.seconds),
        "visits_per_second": ("visits/s", visits / backlog.seconds),
        "visits_per_shard_and_second": ("visits", max(backlog.visits.values(), default=0)),
        "visits_per_message": ("visits", visits / sent),
        "rru_per_message": ("RRU", reading.rru / sent),
        "wru_per_message": ("WRU", reading.wru / sent),
        "doorbell_calls_per_message": ("calls", calls / sent),
    }
    for what, (unit, value) in values.items():
        old = OLD.get(f"{name}.{what}")
        yield Figure(f"{name}.{what}", unit, value, old, None if old is None else BEFORE)


__all__ = ["Backlog", "figures", "measure"]
