"""Workers of visits on a clock of their own: the shipped doorbells over the model of their queues.

A worker is a process: it has its own memory of slow lines. Calls of a visit run at once, in the
time that their destinations advance the clock by.
"""

from __future__ import annotations

import random
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from fairbox.aws.sqs_queues import answer_doorbells
from fairbox.dispatch.dispatcher import Dispatcher
from fairbox.dispatch.visits import Visits
from fairbox.testing.application import MemoryApplication
from fairbox.testing.doorbell_queues import APART, NOW
from fairbox.testing.memory_sqs import SqsTrigger

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.aws.sqs_queues import SqsDoorbells
    from fairbox.dispatch.sending.sender import Begin, Finish
    from fairbox.testing.manual_clock import ManualClock
    from fairbox.testing.memory import MemoryDynamoDB
    from fairbox.testing.memory_sqs import Record

WORKERS: Final = 10  # of each queue
SENDING_SECONDS: Final = 18.0  # of a visit, in which calls begin
_OVERHEAD: Final = 0.03  # s of an invocation
_POLL: Final = 0.1  # s until a trigger sees a doorbell that has waited


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
            clock.set(max(at, clock.now()))
            finish()
            start()

    return run


class VisitWorkers:
    """An application whose visits take time, each in one of some workers.

    Args:
        wrap: puts something around the tables.

    Attributes:
        app: the application; its clock is that of the simulation.
        bells: the doorbells of its functions.
        began: when the simulation begins.
    """

    def __init__(self, *, wrap: Callable[[MemoryDynamoDB], Any] = lambda engine: engine) -> None:
        self.app = MemoryApplication(wrap=wrap)
        self.clock = self.app.clock
        queues = self.app.doorbells
        self.bells: SqsDoorbells = queues
        self.began = self.clock.now()
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._idle = {
            SqsTrigger(queues.sqs, name, batch=1): [self._visits(n) for n in range(WORKERS)]
            for name in (NOW, APART)
        }

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Let something happen at a time, in seconds since 1970 UTC."""
        heappush(self._events, (when, next(self._numbers), event))

    def run(self, seconds: float) -> None:
        """Run for so long from the beginning."""
        for n in range(int(seconds / _POLL)):
            self.at(self.began + n * _POLL, lambda: None)
        while self._events and self._events[0][0] < self.began + seconds:
            now, _, event = heappop(self._events)
            self.clock.set(now)
            event()
            self._work()

    def _visits(self, seed: int) -> Visits:
        dispatcher = Dispatcher(
            self.app.tables,
            self.app.destinations,
            self.bells,
            clock=self.clock,
            rng=random.Random(seed),
            fan_out=run_at_once(self.clock),
        )
        return Visits(dispatcher)

    def _work(self) -> None:
        """Let idle workers take doorbells that are due."""
        for trigger, idle in self._idle.items():
            while idle and self.app.doorbells.forwards.invoke(partial(self._answer, idle[0])):
                pass
            while idle and (records := trigger.receive()):
                visits, now = idle.pop(0), self.clock.now()
                answer = self._answer(visits, records)
                ended = self.clock.now() + _OVERHEAD
                self.clock.set(now)
                self.at(ended, partial(self._end, trigger, records, answer, visits))

    def _answer(self, visits: Visits, records: list[Record]) -> dict[str, list[dict[str, str]]]:
        deadline = self.clock.now() + SENDING_SECONDS
        return answer_doorbells(records, visits=visits, doorbells=self.bells, deadline=deadline)

    def _end(
        self,
        trigger: SqsTrigger,
        records: list[Record],
        answer: dict[str, list[dict[str, str]]],
        visits: Visits,
    ) -> None:
        trigger.settle(records, answer)
        self._idle[trigger].append(visits)
