"""Runs many worlds of a scenario in processes, and counts what they broke."""

from __future__ import annotations

import multiprocessing
import signal
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput

from fairbox_simulation.scenarios import SCENARIOS, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox_simulation.chaos import Chaos
    from fairbox_simulation.scenarios import Scenario

CHUNK: Final = 500
"""Messages or batches that a process is given at a time, at least."""


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one world: its seed, and its number of messages or batches."""

    seed: int
    count: int


@dataclass(frozen=True)
class Failure:
    """A world that broke guarantees."""

    share: Share
    breaches: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A plan of a run.

    Attributes:
        scenario: the worlds.
        chaos: how much goes wrong.
        seed: of the first world; the others have the next ones.
        count: how many messages or batches: in all, or of each world where `seeds` is given.
        seeds: how many worlds; None: as many of the natural size as it takes.
    """

    scenario: Scenario
    chaos: Chaos
    seed: int
    count: int
    seeds: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("--messages", self.count), ("--seeds", self.seeds)):
            if value is not None and value < 1:
                raise InvalidInput(name, f"a whole number from 1; got {value}")

    @property
    def worlds(self) -> int:
        """The number of worlds."""
        return self.seeds or -(-self.count // self.scenario.per_world)

    @property
    def total(self) -> int:
        """The number of messages or batches in all worlds."""
        return self.count * (self.seeds or 1)

    def shares(self) -> Iterator[Share]:
        """Yield what each world has; the last has what is left."""
        size = self.count if self.seeds else self.scenario.per_world
        for number in range(self.worlds):
            yield Share(self.seed + number, min(size, self.total - number * size))


@dataclass
class Tally:
    """The result of a run so far.

    Attributes:
        worlds: that were run.
        count: messages or batches of them.
        broken: worlds that broke a guarantee.
        first: kind of breach -> the failure of the lowest seed that has it.
    """

    worlds: int = 0
    count: int = 0
    broken: int = 0
    first: dict[str, Failure] = field(default_factory=dict)

    def add(self, part: Part) -> None:
        """Add what a part came to."""
        self.worlds += part.worlds
        self.count += part.count
        self.broken += len(part.failures)
        for failure in part.failures:
            for kind in dict.fromkeys(map(kind_of, failure.breaches)):
                known = self.first.get(kind)
                if known is None or failure.share.seed < known.share.seed:
                    self.first[kind] = failure


@dataclass(frozen=True, slots=True)
class Part:
    """The result of some worlds."""

    worlds: int
    count: int
    failures: list[Failure]


def run_part(name: str, chaos: Chaos, shares: list[Share]) -> Part:
    """Run some worlds of a scenario, one after the other."""
    scenario = SCENARIOS[name]
    failures = []
    with scenario.around():
        for share in shares:
            breaches = scenario.breaches(share.seed, chaos, share.count)
            if breaches:
                failures.append(Failure(share, tuple(breaches)))
    return Part(len(shares), sum(share.count for share in shares), failures)


def run_all(
    plan: Plan, *, workers: int, late: Callable[[], bool], told: Callable[[Tally, Part], None]
) -> Tally:
    """Run the worlds of a plan; what is counted does not depend on how many do it.

    Args:
        plan: what to run.
        workers: processes; 1: this one, and no other. So it is with a few worlds too.
        late: whether it is too late to begin with more worlds.
        told: is called after each part, with all so far and the part.
    """
    tally = Tally()
    for part in _parts(plan, workers, late):
        tally.add(part)
        told(tally, part)
    return tally


def _parts(plan: Plan, workers: int, late: Callable[[], bool]) -> Iterator[Part]:
    name, chaos = plan.scenario.name, plan.chaos
    size = max(1, CHUNK // plan.scenario.per_world)
    chunks = _chunks(plan, size)
    if workers == 1 or plan.worlds <= size:
        for chunk in chunks:
            if late():
                return
            yield run_part(name, chaos, chunk)
        return
    # children that share nothing: a fork would copy whatever threads hold at the moment
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupts) as pool:
        try:
            yield from _pooled(pool, chunks, partial(run_part, name, chaos), 2 * workers, late)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # who interrupts waits for what runs
            raise


def _pooled(
    pool: ProcessPoolExecutor,
    chunks: Iterator[list[Share]],
    work: Callable[[list[Share]], Part],
    at_once: int,
    late: Callable[[], bool],
) -> Iterator[Part]:
    """Yield parts as they are done, while so many are given out."""
    running: set[Future[Part]] = set()
    while True:
        wanted = 0 if late() else at_once - len(running)
        running |= {pool.submit(work, chunk) for chunk in islice(chunks, wanted)}
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def _chunks(plan: Plan, size: int) -> Iterator[list[Share]]:
    shares = plan.shares()
    while chunk := list(islice(shares, size)):
        yield chunk


def _ignore_interrupts() -> None:
    """Leave an interrupt to the process that waits: it ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
