"""An application in virtual time: each call takes 5 ms, and events happen when their time comes."""

from __future__ import annotations

import heapq
import itertools
import random
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fairbox import Outbox, Queue
from fairbox.testing import CostMeter, ManualClock
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication

if TYPE_CHECKING:
    from collections.abc import Callable

CALL_SECONDS: Final = 0.005
_STREAM_SECONDS: Final = 0.05
_RELAY_SECONDS: Final = (0.2, 1.0)


class Timeline(ManualClock):
    """A clock that lets events happen when it passes their times."""

    def __init__(self) -> None:
        super().__init__()
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], object]]] = []

    def at(self, time: float, event: Callable[[], object]) -> None:
        """Let an event happen at a time; events take no time."""
        heapq.heappush(self._events, (time, next(self._order), event))

    def advance(self, seconds: float) -> float:
        """Move forward, through the events."""
        end = self.now() + seconds
        while self._events and self._events[0][0] <= end:
            time, _, event = heapq.heappop(self._events)
            self.set(time)
            event()
        self.set(end)
        return end


class SlowClient:
    """A client whose calls take virtual time."""

    def __init__(self, client: Any, clock: ManualClock) -> None:
        self._client = client
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(**request: Any) -> Any:
            self._clock.advance(CALL_SECONDS)
            return method(**request)

        return call


class Stage:
    """A sender whose calls are free and take no time, and a metered consumer whose calls do.

    Attributes:
        clock: the time.
        application: the sender's.
        queue: the consumer's.
    """

    def __init__(self, seed: int = 1) -> None:
        self.clock = Timeline()
        self.rng = random.Random(seed)
        self.application = MemoryApplication(clock=self.clock, rng=self.rng)
        self._relayed: str | None = None
        self._meter = CostMeter(self.application.client)
        self.queue = Queue.over(
            Outbox(
                SlowClient(self._meter, self.clock),
                table=OUTBOX,
                deliveries_table=DELIVERIES,
                clock=self.clock,
                rng=random.Random(seed + 1),
            )
        )

    def relay(self) -> None:
        """Let the relay run from now on, each record 0.2 to 1 s after its change, as on AWS."""
        records = self.application.records(self._relayed)
        if records:
            self._relayed = records[-1]["dynamodb"]["SequenceNumber"]
            at = self.clock.now() + self.rng.uniform(*_RELAY_SECONDS)
            self.clock.at(at, partial(self.application.relay, through=self._relayed))
        self.clock.at(self.clock.now() + _STREAM_SECONDS, self.relay)

    def reset(self) -> None:
        """Begin to meter the consumer anew."""
        self._meter.reset()

    @property
    def rru(self) -> float:
        """Read units of the consumer."""
        return self._meter.reading().rru
