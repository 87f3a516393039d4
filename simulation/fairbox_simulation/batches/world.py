"""One simulation: a batch, sometimes nested ones, many actors and faults, from one seed."""

from __future__ import annotations

import gc
import random
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairbox.client.batches import Batches
from fairbox.model.ids import IdGenerator

from fairbox_simulation.batches.actors import Add, Cast, Plan
from fairbox_simulation.batches.oracle import Oracle
from fairbox_simulation.batches.scheduling import Stage
from fairbox_simulation.batches.tables import BATCHES, DELIVERIES, OUTBOX, LeanDatabase, Tables
from fairbox_simulation.batches.trees import small_trees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fairbox.batches.models import Metadata, Record
    from fairbox.testing import ManualClock

    from fairbox_simulation.batches.tables import Database

_CALM_ROUNDS = 12
_COLLECTED_EVERY = 1000


@dataclass(frozen=True)
class FaultProfile:
    """A fault profile of batches; each field is a probability.

    Attributes:
        faults: that a call meets a fault.
        kills: that an actor dies instead of making its next call.
        nested: that a batch has a part of its own.
        cancels, cleanups, guesses, watchers: that somebody of that kind acts.
    """

    faults: float = 0.03
    kills: float = 0.015
    nested: float = 0.12
    cancels: float = 0.04
    cleanups: float = 0.08
    guesses: float = 0.08
    watchers: float = 0.05


USUAL = FaultProfile()
STORMY = FaultProfile(faults=0.15, kills=0.06)


class World:
    """Runs simulations one after the other over the same tables.

    Args:
        profile: of all of them.
        mutant: breaks the `Batches` of the actors; None: the code as it is shipped.
        database: makes what they work on.

    Attributes:
        trace: the turns of the last run, as actor and operation.
        batches: simulated so far.
    """

    def __init__(
        self,
        profile: FaultProfile = USUAL,
        mutant: Callable[[Batches], None] | None = None,
        database: Callable[[ManualClock], Database] = LeanDatabase,
    ) -> None:
        self._profile = profile
        self._mutant = mutant
        self._tables = Tables(database)
        self.trace: list[tuple[str, str]] = []
        self.batches = 0

    def run(self, seed: int) -> list[str]:
        """Simulate one seed; return what was broken."""
        self._tables.reset()
        rng = random.Random(seed)
        stage = Stage(
            self._tables.client, rng, faults=self._profile.faults, kills=self._profile.kills
        )
        self.trace = stage.trace
        oracle = Oracle(self._tables)
        plans = self._plans(rng, oracle)
        self.batches += len(plans)
        try:
            self._play(stage, oracle, rng, plans)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this seed's
            oracle.breaches.append(f"raised {type(error).__name__}: {error}")
        return oracle.breaches

    def _play(self, stage: Stage, oracle: Oracle, rng: random.Random, plans: list[Plan]) -> None:
        batches = self._over(stage.calls, rng)
        if self._mutant is not None:
            self._mutant(batches)
        cast = Cast(
            batches,
            oracle=oracle,
            rng=rng,
            plans=plans,
            stream=self._tables.stream,
            turn=stage.turn,
        )
        self._enter(stage, cast, oracle, rng, plans)
        stage.run()
        oracle.after_the_storm()
        self._calm(cast, self._over(self._tables.client, rng), oracle, plans)

    def records(self) -> list[Record | Metadata]:
        """Return what the batches table holds after a run, in no order."""
        return self._tables.records()

    def _over(self, client: Any, rng: random.Random) -> Batches:
        clock = self._tables.clock
        return Batches(
            client,
            table=BATCHES,
            outbox_table=OUTBOX,
            deliveries_table=DELIVERIES,
            clock=clock,
            rng=rng,
            ids=IdGenerator(clock, rng.getrandbits),
        )

    def _plans(self, rng: random.Random, oracle: Oracle) -> list[Plan]:
        plans = [Plan(_batch_id(rng), _adds(rng))]
        if rng.random() < self._profile.nested:
            group = rng.randrange(-(-plans[0].adds[0].count // plans[0].adds[0].size))
            plans.append(Plan(_batch_id(rng), _adds(rng)[:1], parent=group))
            # how the part ends is how the item ends
            oracle.begins("fail", [f"{plans[0].batch}:{group}:0"])
        return plans

    def _enter(
        self, stage: Stage, cast: Cast, oracle: Oracle, rng: random.Random, plans: list[Plan]
    ) -> None:
        for plan in plans:
            self._enter_producer(stage, cast, plan, rng)
            if rng.random() < 0.08:  # another process, with the same work
                self._enter_producer(stage, cast, plan, rng)
        workers = rng.choice((1, 2, 2, 3))

        def hire() -> None:
            for number in range(workers):
                stage.enter(f"worker {number}", cast.work)

        oracle.on_issue = hire
        for share, name, act in (
            (self._profile.cancels, "cancel", cast.cancel),
            (self._profile.cleanups, "cleanup", cast.clean),
            (self._profile.guesses, "guess", cast.guess),
            (self._profile.watchers, "watch", cast.watch),
        ):
            if rng.random() < share:
                stage.enter(name, act)
        self._enter_stream(stage, cast)

    def _enter_producer(self, stage: Stage, cast: Cast, plan: Plan, rng: random.Random) -> None:
        def again() -> None:
            if rng.random() < 0.6:
                self._enter_producer(stage, cast, plan, rng)

        stage.enter(f"producer {plan.batch[:4]}", lambda: cast.produce(plan), died=again)

    def _enter_stream(self, stage: Stage, cast: Cast) -> None:
        stage.enter(
            "stream", cast.follow, died=lambda: self._enter_stream(stage, cast), daemon=True
        )

    def _calm(self, cast: Cast, batches: Batches, oracle: Oracle, plans: list[Plan]) -> None:
        """Without faults: all work is finished, all is cascaded, all items are settled."""
        calm = Cast(
            batches,
            oracle=oracle,
            rng=random.Random(0),
            plans=plans,
            stream=self._tables.stream,
            turn=lambda: None,
        )
        calm.read = cast.read
        for plan in plans:
            if plan.batch not in cast.produced:
                calm.produce(plan)
        for _ in range(_CALM_ROUNDS):
            while calm.read < len(self._tables.stream):
                end = len(self._tables.stream)
                if not calm.cascade(self._tables.stream[calm.read : end]):
                    raise AssertionError("a cascade alone leaves something")
                calm.read = end
            left = oracle.left()
            if not left:
                break
            calm.settle("ack", left)
        oracle.at_the_end({plan.batch: plan.total for plan in plans})


def simulate(world: World, seeds: Iterable[int]) -> Iterator[tuple[int, list[str]]]:
    """Run seeds with small trees; yield each with what was broken.

    The collector of cyclic garbage is held back meanwhile: it would take a quarter of the time.
    """
    gc.collect()
    gc.disable()
    try:
        with small_trees():
            for number, seed in enumerate(seeds, 1):
                yield seed, world.run(seed)
                if number % _COLLECTED_EVERY == 0:
                    gc.collect()
    finally:
        gc.enable()


def _batch_id(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128)))


def _adds(rng: random.Random) -> tuple[Add, ...]:
    """Some adds: mostly one of a group or two, some over nodes, some large."""
    adds = []
    small = rng.random() < 0.7
    for number in range(1 if small else rng.choice((1, 2, 2, 3))):
        groups = rng.choice((1, 2) if small else (1, 2, 3, 4))
        size = rng.choice((1, 1, 2) if small else (1, 2, 3))
        adds.append(Add(f"r{number}", max(1, groups * size - rng.randrange(size)), size))
    return tuple(adds)
