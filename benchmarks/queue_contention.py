"""Cost of competition: consumers of one topic whose calls interleave, in virtual time.

The queue's real code runs against the engine in memory. Each consumer is a greenlet; each of its
calls takes a random time, in which others act. So the figures depend on a seed alone, not on the
load of the machine.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Outbox, Queue, Topic
from fairbox.model.receipts import Receipt
from fairbox.testing import CostMeter, ManualClock, MemoryDynamoDB
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication
from greenlet import getcurrent, greenlet

from benchmarks.baseline_001 import LostRaceError, SeedQueue, definition

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC: Final = "jobs"
_BODY: Final = random.Random(7).randbytes(700)
_AT_A_CALL: Final = 10
_LONG: Final = 3600.0
_CALL_SECONDS: Final = (0.0025, 0.0075)
_BETWEEN_SENDS_SECONDS: Final = 0.02
_SETTLED_SECONDS: Final = 3.0
_REFUSED: Final = "ConditionalCheckFailed"


@dataclass(frozen=True, slots=True)
class Contended:
    """The result of competing consumers.

    Attributes:
        messages: acknowledged.
        tried, lost: claims, and those that another consumer won.
        wru, rru, calls: of sending 25 a call, receiving and acknowledging, of all messages.
        passed_over: number of younger messages of the shard received before the most
            delayed one.
        seconds: of virtual time.
    """

    messages: int
    tried: int
    lost: int
    wru: float
    rru: float
    calls: float
    passed_over: int
    seconds: float

    @property
    def lost_share(self) -> float:
        """Share of lost claims."""
        return self.lost / max(1, self.tried)

    @property
    def rate(self) -> float:
        """Messages a second of virtual time."""
        return self.messages / self.seconds


class Stage:
    """A scheduler of greenlets in virtual time, in which each call takes a while.

    Args:
        clock: set to the time of the running greenlet.
        rng: chooses the duration of calls.
    """

    def __init__(self, clock: ManualClock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._main = getcurrent()
        self._order = itertools.count()
        self._queue: list[tuple[float, int, greenlet]] = []

    def enter(self, act: Callable[[], None]) -> None:
        """Add an actor."""
        self._wait(greenlet(act, self._main))

    def pause(self) -> None:
        """Let others act for the duration of a call; outside `run`, do nothing."""
        current = getcurrent()
        if current is not self._main:
            self._wait(current)
            self._main.switch()

    def run(self) -> None:
        """Run until all actors have finished."""
        while self._queue:
            at, _, actor = heapq.heappop(self._queue)
            self._clock.set(at)
            actor.switch()

    def _wait(self, actor: greenlet) -> None:
        at = self._clock.now() + self._rng.uniform(*_CALL_SECONDS)
        heapq.heappush(self._queue, (at, next(self._order), actor))


class _Client:
    """A client that delays calls in virtual time and counts claims."""

    def __init__(self, client: Any, stage: Stage) -> None:
        self._client = client
        self._stage = stage
        self.tried = 0
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(**request: Any) -> Any:
            self._stage.pause()
            return method(**request)

        return call

    def batch_execute_statement(self, **request: Any) -> Any:
        """Make the call, and count the claims in it."""
        self._stage.pause()
        answer = self._client.batch_execute_statement(**request)
        for entry, part in zip(request["Statements"], answer["Responses"], strict=True):
            if entry["Statement"].startswith("UPDATE") and not _of_hint(entry["Parameters"]):
                self.tried += 1
                self.lost += part.get("Error", {}).get("Code") == _REFUSED
        return answer


class Contention:
    """Consumers that receive and acknowledge a topic's messages, with a backlog to the end.

    Args:
        consumers: their number.
        messages: number of messages that they acknowledge.
        backlog: messages at the beginning, at least as many as are acknowledged.
        shards: of the topic.
        seed: of all random numbers.
    """

    def __init__(
        self, consumers: int, *, messages: int, backlog: int, shards: int = 8, seed: int = 1
    ) -> None:
        self._rng = random.Random(seed)
        self._app = MemoryApplication(wrap=CostMeter, rng=self._rng)
        self._meter: CostMeter = self._app.client
        self._stage = Stage(self._app.clock, self._rng)
        self._client = _Client(self._meter, self._stage)
        self._consumers = consumers
        self._messages = messages
        self._done = 0
        self._taken: dict[tuple[int, int], list[str]] = {}
        self._app.outbox.create_topic(Topic(TOPIC, shards=shards))
        for _ in range(backlog // 25):
            ids = [self._app.ids.next() for _ in range(25)]
            self._app.queue.send_many(Message(topic=TOPIC, body=_BODY, id=i) for i in ids)
            self._app.clock.advance(_BETWEEN_SENDS_SECONDS)
        self._app.clock.advance(_SETTLED_SECONDS)

    def run(self) -> Contended:
        """Run the consumers; return the result."""
        self._meter.reset()
        began = self._app.clock.now()
        for _ in range(self._consumers):
            self._stage.enter(self._consume)
        self._stage.run()
        reading = self._meter.reading()
        return Contended(
            messages=self._done,
            tried=self._client.tried,
            lost=self._client.lost,
            wru=self._done + reading.wru,
            rru=reading.rru,
            calls=self._done / 25 + sum(reading.calls.values()),
            passed_over=max(map(_passed_over, self._taken.values())),
            seconds=self._app.clock.now() - began,
        )

    def _consume(self) -> None:
        chance = random.Random(self._rng.getrandbits(64))
        outbox = Outbox(
            self._client,
            table=OUTBOX,
            deliveries_table=DELIVERIES,
            clock=self._app.clock,
            rng=chance,
        )
        queue = Queue.over(outbox)
        while self._done < self._messages:
            received = queue.receive(TOPIC, _AT_A_CALL, _LONG)
            refs = [Receipt.parse(r.receipt).ref for r in received]
            for ref in refs:
                self._taken.setdefault((ref.epoch, ref.shard), []).append(ref.id)
            queue.ack(r.receipt for r in received)
            self._done += len(received)


class SeedContention:
    """The same consumers with source 001's pattern: one message a call, and no shards.

    Args:
        consumers: their number.
        messages: number of messages that they delete.
        backlog: messages at the beginning.
        seed: of all random numbers.
    """

    def __init__(self, consumers: int, *, messages: int, backlog: int, seed: int = 1) -> None:
        self._clock = ManualClock()
        self._meter = CostMeter(MemoryDynamoDB(self._clock))
        self._meter.create_table(**definition())
        self._stage = Stage(self._clock, random.Random(seed))
        self._consumers = consumers
        self._messages = messages
        self._done = self._lost = 0
        queue = SeedQueue(self._meter, clock=self._clock)
        for number in range(backlog):
            queue.send(f"{number:08d}-0000-4000-8000-000000000000", _BODY)
            self._clock.advance(_BETWEEN_SENDS_SECONDS / 25)

    def run(self) -> Contended:
        """Run the consumers; return the result, with two write units for each message sent."""
        self._meter.reset()
        began = self._clock.now()
        for _ in range(self._consumers):
            self._stage.enter(self._consume)
        self._stage.run()
        reading = self._meter.reading()
        return Contended(
            messages=self._done,
            tried=self._done + self._lost,
            lost=self._lost,
            wru=2 * self._done + reading.wru,
            rru=reading.rru,
            calls=self._done + sum(reading.calls.values()),
            passed_over=0,
            seconds=self._clock.now() - began,
        )

    def _consume(self) -> None:
        queue = SeedQueue(_Client(self._meter, self._stage), clock=self._clock)
        while self._done < self._messages:
            try:
                received = queue.receive()
            except LostRaceError:
                self._lost += 1
                continue
            if received is not None:
                queue.delete(received.id)
                self._done += 1


def _passed_over(ids: list[str]) -> int:
    """Return the greatest number of younger messages of a shard received before an older one."""
    places = {one: place for place, one in enumerate(sorted(ids))}
    return max(place - places[one] for place, one in enumerate(ids))


def _of_hint(parameters: list[dict[str, Any]]) -> bool:
    return any(value.get("S", "").startswith("hint#") for value in parameters)
