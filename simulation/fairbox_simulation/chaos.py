"""Faults of a simulated world: of tables, of invocations, of destinations."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.testing.faults import OPERATIONS, Fault, FaultyDynamoDB

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from fairbox.model.clock import Clock
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.testing.acks import MemoryAcks
    from fairbox.testing.application import MemoryArchive, MemoryDestination


@dataclass(frozen=True)
class Chaos:
    """A fault profile; each field is a probability per occasion.

    Attributes:
        tables: of each call to DynamoDB, one of its faults.
        kills: of each invocation, that it ends somewhere in its middle.
        repeats: of each stream batch, that it comes again although it was handled.
        interleaved: of each send, that other invocations run before it is answered.
        refused, throttled, away, lost_answers: of each message, what the destination does.
        given_up: whether stream batches are given up after some tries.
        abandoned: of each stream batch, that it is given up before anybody has handled it.
        lost_doorbells: of each doorbell, that it never comes.
        outages: of each pause between users' acts, that a destination begins or ends an outage.
        frozen: of each invocation, that it stops at some call for a second to a quarter of an hour,
            past its lease where that is shorter, while others run, and then goes on as if nothing
            had been.
        late: of each stream batch, that its shard stands still before it, from half a minute to a
            day, while the other shards go on.
        stale: of each query of an index, that the index has heard nothing new, for ten minutes at
            most.
        skew: seconds by which each clock, a producer's or a function's, may be wrong at most.
        twice: of each message of a queue that was handled, that the queue gives it again, later and
            out of its order.
    """

    tables: float = 0.04
    kills: float = 0.03
    repeats: float = 0.05
    interleaved: float = 0.02
    refused: float = 0.05
    throttled: float = 0.03
    away: float = 0.02
    lost_answers: float = 0.02
    given_up: bool = True
    abandoned: float = 0.02
    lost_doorbells: float = 0.02
    outages: float = 0.02
    frozen: float = 0.05
    late: float = 0.01
    stale: float = 0.2
    skew: float = 0.5
    twice: float = 0.05


CALM = Chaos(
    tables=0,
    kills=0,
    repeats=0,
    interleaved=0,
    lost_answers=0,
    given_up=False,
    abandoned=0,
    lost_doorbells=0,
    frozen=0,
)
"""Only faults of which no guarantee allows a duplicate."""
FREEZES: Final = (1.0, 20.0, 40.0, 130.0, 900.0)
LATENESS: Final = (30.0, 90.0, 600.0, 7_200.0, 86_000.0)
STALE_SECONDS: Final = 600.0
LEASE_SECONDS: Final = 30.0
"""A longer freeze loses the invocation's stream batch or doorbell to another one."""


class Killed(BaseException):
    """Ends an invocation as SIGKILL would: nothing in it may catch this."""


class Skewed:
    """A clock that is wrong by so many seconds.

    Args:
        clock: the true one.
        seconds: how far this one is ahead of it.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self.seconds = seconds
        self.sleep = clock.sleep

    def now(self) -> float:
        """Return what this clock shows, in seconds since 1970 UTC."""
        return self._clock.now() + self.seconds


class Fuse:
    """Burns with every call of an invocation to the world outside, and stops it at some call.

    Attributes:
        left: calls until the invocation is killed; None: it is not.
        frost: calls until it freezes; None: it does not.
        freeze: lets the world go on meanwhile.
    """

    def __init__(self) -> None:
        self.left: int | None = None
        self.frost: int | None = None
        self.freeze: Callable[[], None] = lambda: None

    def burn(self) -> None:
        """Count one call."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Killed
        if self.frost is not None:
            self.frost -= 1
            if self.frost < 0:
                self.frost = None
                self.freeze()

    @contextmanager
    def spared(self) -> Iterator[None]:
        """Let others act, for whom this invocation's fuse does not burn."""
        outer = self.left, self.frost
        self.left = self.frost = None
        try:
            yield
        finally:
            self.left, self.frost = outer


class Client:
    """The tables as one world sees them: with faults while `stormy`, with kills by the fuse."""

    def __init__(self, engine: Any, rng: random.Random, chaos: Chaos, fuse: Fuse) -> None:
        rates = {fault: chaos.tables / len(Fault) for fault in Fault}
        self._faulty = FaultyDynamoDB(engine, rng, rates)
        self._engine = engine
        self._fuse = fuse
        self._rng = rng
        self._stale = chaos.stale
        self.stormy = True
        self.stale_reads = 0

    def _look_up(self, request: dict[str, Any]) -> None:
        """Decide how old the answer of an index is."""
        if self.stormy and self._rng.random() < self._stale:
            self.stale_reads += 1
        else:
            self._engine.catch_up(request["TableName"])

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._faulty if self.stormy else self._engine, name)
        if name not in OPERATIONS:
            return method

        def call(**request: Any) -> Any:
            if "IndexName" in request:
                self._look_up(request)
            before = self._rng.random() < 0.5
            if before:
                self._fuse.burn()
            answer = method(**request)
            if not before:
                self._fuse.burn()
            return answer

        return call


OUTAGES: Final[Sequence[Outcome]] = (
    Outcome("unreachable", "nobody there"),
    Outcome("refused", "HTTP 500", fault="destination"),
    Outcome("refused", "no answer in time", fault="destination"),
    Outcome("throttled", "slow down"),
    Outcome("throttled", "HTTP 429", retry_after=40.0),
    Outcome("gone", "HTTP 410"),
)
"""Outages of a destination; the third hangs until the time limit of a call."""
_HANGS: Final = 2
_LIMIT_SECONDS: Final = 10.0


class FailureMode:
    """The failure mode of one destination: chance refusals, and outages in which it takes nothing.

    Attributes:
        outage: which; None: there is none.
    """

    def __init__(
        self,
        destination: MemoryDestination,
        rng: random.Random,
        chaos: Chaos,
        fuse: Fuse,
        meanwhile: Callable[[], None],
        *,
        wait: Callable[[float], object],
    ) -> None:
        self._destination = destination
        self._rng = rng
        self._chaos = chaos
        self._fuse = fuse
        self._meanwhile = meanwhile
        self.stormy = True
        self.outage: int | None = None
        self._wait = wait
        self._hung = 0  # the last call that did
        self.lost_answers: set[str] = set()
        destination.answer = self.answer

    def answer(self, message: StoredMessage) -> Outcome:
        """Answer for one message."""
        self._fuse.burn()
        if message.message.body == b"poison":
            return Outcome("refused", "it cannot be digested")
        if not self.stormy:
            return TAKEN
        if self._rng.random() < self._chaos.interleaved:
            self._meanwhile()
        if self.outage is not None:
            if self.outage == _HANGS and self._hung != self._destination.calls:
                self._hung = self._destination.calls
                self._wait(_LIMIT_SECONDS)
            return OUTAGES[self.outage]
        drawn = self._rng.random()
        for share, outcome in (
            (self._chaos.refused, Outcome("refused", "not now")),
            (self._chaos.throttled, Outcome("throttled", "slower")),
            (self._chaos.away, Outcome("unreachable", "no connection")),
        ):
            if drawn < share:
                return outcome
            drawn -= share
        if drawn < self._chaos.lost_answers:
            self._destination.received.append(message)
            self.lost_answers.add(message.ref.id)
            return Outcome("refused", "no answer in time")
        return TAKEN


class FusedArchive:
    """The archive, at which an invocation may end."""

    def __init__(self, archive: MemoryArchive, fuse: Fuse) -> None:
        self._archive = archive
        self._fuse = fuse

    def write(self, lines: Sequence[bytes]) -> None:
        """Keep the lines."""
        self._archive.write(lines)
        self._fuse.burn()


class FusedAcks:
    """The ack queue, at which an invocation may end, before it or after."""

    def __init__(self, acks: MemoryAcks, fuse: Fuse) -> None:
        self._acks = acks
        self._fuse = fuse

    def put(self, bodies: Sequence[str]) -> None:
        """Put messages into the queue."""
        self._fuse.burn()
        self._acks.put(bodies)
        self._fuse.burn()
