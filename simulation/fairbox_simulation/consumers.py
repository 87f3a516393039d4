"""Consumers of pulled topics in a simulated world: processes that crash, and use old receipts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from fairbox import FairboxError
from fairbox.client.queue import Queue
from fairbox.errors import StaleReceipt

from fairbox_simulation.consumer_checker import ConsumerChecker, Holding

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fairbox import Outbox

    from fairbox_simulation.chaos import Skewed
    from fairbox_simulation.world import World

VISIBILITY = (0.5, 5.0, 30.0, 120.0)
DELAYS = (0.0, 2.0, 60.0, None)
_KEPT_RECEIPTS = 60


@dataclass(eq=False, slots=True)
class Process:
    """A consumer's process.

    Attributes:
        queue, clock: its own.
        holdings: what it believes to hold.
    """

    queue: Queue
    clock: Skewed
    holdings: list[Holding] = field(default_factory=list)

    @property
    def now(self) -> int:
        """Milliseconds since 1970 UTC, as this process sees them."""
        return int(self.clock.now() * 1000)


class Consumers:
    """Processes that receive, settle, crash and come back with receipts that are old.

    Args:
        world: where they run; each call is an invocation of the world, and may end or freeze.
        topics: what they receive from.
        another: makes the outbox of another process, with its clock.
        checker: is told of all that they are given and are answered.

    Attributes:
        done: how often they did what.
    """

    def __init__(
        self,
        world: World,
        topics: tuple[str, ...],
        another: Callable[[], tuple[Outbox, Skewed]],
        checker: ConsumerChecker,
        count: int = 3,
    ) -> None:
        self._world = world
        self._topics = topics
        self._checker = checker
        self._rng: random.Random = world.rng
        self._processes: list[Process] = []
        for _ in range(count):
            outbox, clock = another()
            self._processes.append(Process(Queue.over(outbox), clock))
        self._old: list[tuple[Process, Holding]] = []
        self.done: dict[str, int] = dict.fromkeys(
            ("received", "acked", "nacked", "buried", "extended", "released", "crashed", "late"), 0
        )

    def act(self) -> None:
        """Let one process do one thing, while others may stand still."""
        if not self._processes:
            return
        process = self._processes.pop(self._rng.randrange(len(self._processes)))
        try:
            self._act(process)
        finally:
            self._processes.append(process)

    def _act(self, process: Process) -> None:
        drawn = self._rng.random()
        if drawn < 0.4 or not process.holdings:
            if self._old and drawn < 0.06:
                self._late()
            else:
                self.receive(process, self._rng.choice(self._topics))
        elif drawn < 0.75:
            self.ack(process, self._rng.randint(1, len(process.holdings)))
        elif drawn < 0.95:
            self._one(process, drawn)
        else:
            self._crash(process)

    def receive(self, process: Process, topic: str, wanted: int | None = None) -> int:
        """Receive; return how many messages that gave."""
        got: list[Any] = []
        visibility = self._rng.choice(VISIBILITY) if wanted is None else 600.0
        count = wanted or self._rng.choice([1, 3, 10])

        def work() -> None:
            got.extend(process.queue.receive(topic, count, visibility))

        self._world.invoke(work)
        for received in got:
            holding = Holding(topic, received.message, received.receipt, received.visible_at)
            process.holdings.append(holding)
            self._checker.received(holding, process.now)
        self.done["received"] += len(got)
        return len(got)

    def ack(self, process: Process, count: int) -> None:
        """Acknowledge some of what a process believes to hold, in one call."""
        some = [
            process.holdings.pop(self._rng.randrange(len(process.holdings))) for _ in range(count)
        ]
        there = {h.receipt: self._checker.lies(h) for h in some}
        good = [h for h in some if self._checker.holds(h, process.now)]
        for holding in some:
            self._checker.trying(holding)
        stale: list[str] = []

        def work() -> None:
            try:
                process.queue.ack([h.receipt for h in some])
            except StaleReceipt as error:
                stale.extend(error.receipts)

        if self._world.invoke(work):
            self.done["acked"] += len(some) - len(stale)
            for holding in some:
                if holding.receipt in stale:
                    self._checker.refused(holding, process.now, good=holding in good)
                elif there[holding.receipt]:
                    self._checker.acked(holding, process.now)
        self._keep(process, some)

    def _one(self, process: Process, drawn: float) -> None:
        """Do with one receipt what consumers do, but acknowledge it."""
        place = self._rng.randrange(len(process.holdings))
        holding = process.holdings[place]
        queue, receipt = process.queue, holding.receipt
        if drawn < 0.81:
            until = process.now + 60_000
            if self._world.invoke(partial(queue.extend, receipt, 60.0)):
                self._checker.extended(holding, until)
                self.done["extended"] += 1
            return
        del process.holdings[place]
        self._checker.giving_back(holding)
        if drawn < 0.89:
            work = partial(queue.nack, receipt, self._rng.choice(DELAYS), "not now")
            self.done["nacked"] += self._world.invoke(work)
        elif drawn < 0.91:
            self.done["buried"] += self._world.invoke(partial(queue.bury, receipt, "no good"))
        else:
            self.done["released"] += self._world.invoke(partial(queue.release, receipt))
        self._keep(process, [holding])

    def _crash(self, process: Process) -> None:
        self.done["crashed"] += 1
        self._keep(process, process.holdings)
        process.holdings = []

    def _keep(self, process: Process, holdings: list[Holding]) -> None:
        self._old += [(process, holding) for holding in holdings]
        del self._old[:-_KEPT_RECEIPTS]

    def _late(self) -> None:
        """Use a receipt that somebody else's has followed: it must change nothing."""
        process, holding = self._old[self._rng.randrange(len(self._old))]
        if not self._checker.followed(holding):
            return
        self.done["late"] += 1
        before = self._checker.state(holding)
        calls: list[Callable[[], object]] = [
            partial(process.queue.ack, holding.receipt),
            partial(process.queue.extend, holding.receipt, 60.0),
            partial(process.queue.nack, holding.receipt, 0.0, "late"),
            partial(process.queue.bury, holding.receipt, "late"),
        ]
        try:
            self._rng.choice(calls)()
        except FairboxError:
            answered = False
        else:
            answered = True
        self._checker.used_late(holding, before, process.now, answered=answered)

    def hold(self, topic: str, wanted: int) -> list[Holding]:
        """Let a process receive messages for ten minutes; return what it holds of the topic."""
        process = self._processes[0]
        self.receive(process, topic, wanted)
        return [
            h for h in process.holdings if h.topic == topic and self._checker.holds(h, process.now)
        ]

    def drain(self, topic: str) -> int:
        """Receive and acknowledge all that is there, in a calm world; return how much it was."""
        total = 0
        for process in self._processes:
            process.holdings = []
            while self.receive(process, topic, wanted=100):
                total += len(process.holdings)
                self.ack(process, len(process.holdings))
        return total
