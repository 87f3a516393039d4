"""Faults injected into a chaos run: processes killed, frozen and restarted, chosen by a seed."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from local.engines.servers import DynamoDbLocal
from local.workspace import LocalError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from local.chaos.harness import Harness
    from local.chaos.load_processes import LoadProcess
    from local.functions.pool import FunctionPool

FUNCTIONS: Final = {
    "Relay": 4,
    "MarkDelivered": 4,
    "DeliverShard": 4,
    "Api": 3,
    "AckBatches": 2,
    "CascadeBatches": 2,
    "Sweep": 2,
    "CountOutstanding": 1,
    "Repair": 1,
    "CleanOrphans": 1,
}
"""Functions by the beginning of their names, with the weight of each."""
SCHEDULED: Final = frozenset({"Repair", "CleanOrphans"})
"""Functions that run so rarely that the killer invokes them before it kills them."""
FAULTS: Final = {
    "kill function": 10,
    "freeze function": 3,
    "kill producer": 2,
    "kill consumer": 3,
    "kill receiver": 1,
    "freeze producer": 1,
    "freeze consumer": 2,
    "freeze engine": 1,
    "freeze services": 1,
}
_STARTS: Final = 4
_BUSY_SECONDS: Final = 3.0  # to wait for a function to be in an invocation
_FREEZES: Final = {
    "function": 8.0,
    "producer": 8.0,
    "consumer": 12.0,
    "engine": 6.0,
    "services": 3.0,
}
_AWAY_SECONDS: Final = {"producer": 2.0, "consumer": 3.0, "receiver": 10.0, "engine": 2.0}


@dataclass
class Killer:
    """Injects faults at random moments and undoes those that can be undone.

    Args:
        harness: the target of the faults.
        rng: chooses faults and times.
        say: prints a line for each fault.
        pause: seconds between two faults, on average.
        restarts: number of restarts of the database, at even distances.
    """

    harness: Harness
    rng: random.Random
    say: Callable[[str], None]
    pause: float = 3.0
    restarts: int = 1
    done: Counter[str] = field(default_factory=Counter)
    _undo: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: itertools.count[int] = field(default_factory=itertools.count)

    def rage(self, seconds: float) -> None:
        """Inject faults for so long, restarts of the database excluded; undo them at the end."""
        begun = time.monotonic()
        kills = [seconds * (n + 1) / (self.restarts + 1) for n in range(self.restarts)]
        next_fault = self.rng.expovariate(1 / self.pause)
        try:
            while (raged := time.monotonic() - begun) < seconds:
                self._undo_due(time.monotonic())
                if kills and raged >= kills[0]:
                    kills.pop(0)
                    begun += self.restart_engine()
                elif raged >= next_fault:
                    self._fault()
                    next_fault = raged + self.rng.expovariate(1 / self.pause)
                time.sleep(0.05)
        finally:
            self._undo_due(float("inf"))

    def _undo_due(self, now: float) -> None:
        while self._undo and self._undo[0][0] <= now:
            heapq.heappop(self._undo)[2]()

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._undo, (time.monotonic() + seconds, next(self._count), call))

    def _tell(self, fault: str, words: str) -> None:
        self.done[fault] += 1
        self.say(words)

    def _fault(self) -> None:
        (fault,) = self.rng.choices(list(FAULTS), list(FAULTS.values()))
        verb, what = fault.split()
        if what == "function":
            self.strike_function(freeze=verb == "freeze")
        elif what == "engine":
            self._freeze_engine()
        elif what == "services":
            self._freeze_services()
        else:
            self._strike_process(verb, what)

    def strike_function(self, start: str | None = None, *, freeze: bool = False) -> bool:
        """Kill or freeze a function's process during an invocation; return whether it happened."""
        chosen = start or self.rng.choices(list(FUNCTIONS), list(FUNCTIONS.values()))[0]
        name = next(n for n in self.harness.app.invoker.functions() if n.startswith(chosen))
        pool = self.harness.app.invoker.pool(name)
        if chosen in SCHEDULED:
            call = threading.Thread(target=pool.invoke, args=(b"{}",), daemon=True)
            call.start()
            time.sleep(self.rng.random())
        return self._strike_busy(pool, chosen, freeze=freeze)

    def _strike_busy(self, pool: FunctionPool, name: str, *, freeze: bool) -> bool:
        end = time.monotonic() + _BUSY_SECONDS
        while not (busy := pool.busy()):
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        time.sleep(self.rng.random() * 0.05)
        instance = self.rng.choice(busy)
        if freeze:
            seconds = self._long("function")
            instance.suspend()
            self._later(seconds, instance.resume)
            self._tell("functions frozen", f"froze a process of {name} for {seconds:.0f} s")
        else:
            instance.kill()
            self._tell("functions killed", f"killed a process of {name} in its invocation")
        return True

    def restart_engine(self) -> float:
        """Stop the database and start it again with its files; return the seconds of downtime.

        It is stopped, not killed, because a kill loses transactions that it has acknowledged.
        """
        engine = self.harness.app.dynamodb
        if not isinstance(engine, DynamoDbLocal):
            return 0.0
        self._undo_due(float("inf"))  # it may be frozen
        engine.stop()
        self._tell("engine restarted", "ended DynamoDB Local")
        begun = time.monotonic()
        time.sleep(self.rng.random() * _AWAY_SECONDS["engine"])
        _start(engine)
        away = time.monotonic() - begun
        self.say(f"DynamoDB Local is back after {away:.0f} s, same files")
        return away

    def _freeze_engine(self) -> None:
        engine = self.harness.app.dynamodb
        if isinstance(engine, DynamoDbLocal):
            seconds = self._long("engine")
            engine.suspend()
            self._later(seconds, engine.resume)
            self._tell("engine frozen", f"froze DynamoDB Local for {seconds:.0f} s")

    def _freeze_services(self) -> None:
        services, seconds = self.harness.app.services, self._long("services")
        services.suspend()
        self._later(seconds, services.resume)
        self._tell("services frozen", f"froze SQS, EventBridge and S3 for {seconds:.0f} s")

    def _strike_process(self, verb: str, kind: str) -> None:
        process: LoadProcess = self.rng.choice(self.harness.of_kind(kind))
        if verb == "freeze":
            seconds = self._long(kind)
            process.signal(signal.SIGSTOP)
            self._later(seconds, lambda: process.signal(signal.SIGCONT))
            self._tell(f"{kind}s frozen", f"froze {process.name} for {seconds:.0f} s")
        elif process.kill():
            away = self.rng.uniform(0.2, _AWAY_SECONDS[kind])
            self._later(away, process.start)
            self._tell(f"{kind}s killed", f"killed {process.name}; back in {away:.0f} s")

    def _long(self, what: str) -> float:
        return self.rng.uniform(1.0, _FREEZES[what])


def _start(engine: DynamoDbLocal) -> None:
    """Start it with its files; retry if a busy machine gave it too little time."""
    for _ in range(_STARTS - 1):
        with contextlib.suppress(LocalError):
            engine.restart()
            return
    engine.restart()
