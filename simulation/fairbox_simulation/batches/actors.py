"""Actors on simulated batches: producers, workers, the stream's function, the cleanup."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fairbox.batches.models import FENCED
from fairbox.client.batch_maintenance import BatchMaintenance
from fairbox.errors import (
    BatchBusy,
    BatchEnded,
    BatchSealed,
    FairboxError,
    Throttled,
    Unavailable,
    UnknownItems,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fairbox.client.batches import Batches

    from fairbox_simulation.batches.invariants import Cause
    from fairbox_simulation.batches.oracle import Oracle

T = TypeVar("T")
BUSY = (BatchBusy, Throttled, Unavailable)
PATIENCE = 6  # calls of one kind, each with its own tries, before an actor gives up


@dataclass(frozen=True)
class Add:
    """One add: its request, items, and items of a group."""

    request: str
    count: int
    size: int


@dataclass(frozen=True)
class Plan:
    """The plan of the producers of one batch.

    Attributes:
        parent: the place of an item of the first batch, of which this one is a part.
    """

    batch: str
    adds: tuple[Add, ...]
    parent: int | None = None

    @property
    def total(self) -> int:
        """Its items."""
        return sum(add.count for add in self.adds)


class GaveUpError(Exception):
    """The database was not there for long."""


class Cast:
    """The actors of one simulation.

    Args:
        batches: the shipped code, over a client that actors take turns at.
        oracle: is told what was asked and answered.
        rng: decides what each does.
        plans: of the batches; the first may be the parent of the others.
        stream: what the batches' stream has brought.
        turn: lets others act.
    """

    def __init__(
        self,
        batches: Batches,
        *,
        oracle: Oracle,
        rng: random.Random,
        plans: list[Plan],
        stream: list[Cause],
        turn: Callable[[], None],
    ) -> None:
        self._batches = batches
        self._oracle = oracle
        self._rng = rng
        self._plans = plans
        self._stream = stream
        self._turn = turn
        self.read = 0  # records of the stream that need not be read again
        self.produced: set[str] = set()

    def until_done(self, work: Callable[[], T]) -> T:
        """Call again while the database is busy."""
        for _ in range(PATIENCE):
            try:
                return work()
            except BUSY:
                continue
        raise GaveUpError

    def produce(self, plan: Plan) -> None:
        """Open a batch, add to it, seal it; what is done already is only repeated."""
        batches, batch = self._batches, plan.batch
        try:
            parent = self._parent_item(plan)
            self.until_done(lambda: batches.open("key", {"a": 1}, id=batch, parent_item=parent))
            for add in plan.adds:
                work = partial(
                    batches.add, batch, add.count, request_id=add.request, group_size=add.size
                )
                self._oracle.handed_out(batch, add.request, self.until_done(work))
            self.until_done(lambda: batches.seal(batch))
            self.produced.add(batch)
        except GaveUpError:
            pass
        except (BatchEnded, BatchSealed) as error:
            self._refused(batch, error)
            self.produced.add(batch)
        except UnknownItems:
            if plan.parent is None:  # else: others settled the item before the part was opened
                raise

    def _parent_item(self, plan: Plan) -> str | None:
        if plan.parent is None:
            return None
        return f"{self._plans[0].batch}:{plan.parent}:0"

    def _refused(self, batch: str, error: FairboxError) -> None:
        if batch not in self._oracle.ending:
            self._oracle.breaches.append(f"refused without a reason: {error}")

    def work(self) -> None:
        """Settle items that were handed out, some of them again, some that never were."""
        rng, issued = self._rng, self._oracle.issued
        for _ in range(rng.choice((1, 1, 1, 2))):
            items = [item for batch in issued.values() for item in batch]
            count = 1 if rng.random() < 0.4 else rng.randint(1, len(items))
            verb = rng.choices(("ack", "fail", "retry"), (7, 2, 1))[0]
            self.settle(verb, rng.sample(items, count))

    def settle(self, verb: str, items: list[str]) -> None:
        """Ack, fail or retry."""
        fenced = self._oracle.fenced & {item.split(":")[0] for item in items}
        self._oracle.begins(verb, items)
        try:
            result = getattr(self._batches, verb)(items)
        except BUSY:
            return
        except BatchEnded as error:
            if verb != "retry":
                self._refused(error.batch, error)
            return
        if fenced:
            self._oracle.breaches.append(f"not refused: {verb} of items of {sorted(fenced)}")
        self._oracle.settled(verb, items)
        self._oracle.completed(result.completed)

    def guess(self) -> None:
        """Ack an item that may not have been issued: then nothing changes."""
        batch = self._rng.choice(self._plans).batch
        item = f"{batch}:{self._rng.randrange(5)}:{self._rng.randrange(3)}"
        try:
            self._batches.ack([item])
        except (*BUSY, UnknownItems, BatchEnded):
            pass

    def follow(self) -> None:
        """Be the function on the stream: batches of records, some again, some late, for ever."""
        while True:
            if self.read >= len(self._stream):
                self._turn()
                continue
            for _ in range(self._rng.choice((0, 0, 4, 16))):
                self._turn()  # it is late
            end = min(len(self._stream), self.read + self._rng.randint(1, 6))
            start = max(0, self.read - 3) if self._rng.random() < 0.1 else self.read
            if self.cascade(self._stream[start:end]):
                self.read = end

    def cascade(self, records: list[Cause]) -> bool:
        """Do what these records ask for, as the stream's function does; return whether all is."""
        finished = BatchMaintenance(self._batches).finish(dict.fromkeys(records), deadline=math.inf)
        self._oracle.completed(finished.completed)
        return not finished.left

    def clean(self) -> None:
        """Look at a batch as the cleanup does, in earnest or too early."""
        batch = self._rng.choice(self._plans).batch
        hours = 0 if self._rng.random() < 0.5 else 24
        if hours == 0:
            self._oracle.ending.update(plan.batch for plan in self._plans)  # a part goes with it
        try:
            maintenance = BatchMaintenance(self._batches)
            check = maintenance.check_orphan(batch, open_hours=hours, sealed_hours=hours)
            if check.fate in FENCED:
                self._oracle.fenced.add(batch)
            if self._rng.random() < 0.5:
                maintenance.erase(batch, limit=1)
        except (*BUSY, FairboxError):
            pass

    def cancel(self) -> None:
        """Cancel a batch."""
        batch = self._rng.choice(self._plans).batch
        self._oracle.ending.update(plan.batch for plan in self._plans)
        with contextlib.suppress(FairboxError):
            self._batches.cancel(batch)
            self._oracle.fenced.add(batch)

    def watch(self) -> None:
        """Read the progress, which must lie within bounds that always hold."""
        batch = self._rng.choice(self._plans).batch
        try:
            found = self._batches.progress(batch, exact=self._rng.random() < 0.5)
        except FairboxError:
            return
        if min(found.pending, found.acked, found.failed) < 0:
            self._oracle.breaches.append(f"impossible progress: {found}")
