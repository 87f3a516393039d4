"""Explores every interleaving of use cases of batches, call by call, over the in-memory engine.

In every state that is reached, all processes are taken to be dead, the stream brings what it must,
and the batch must end as it should.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairbox.client.batch_maintenance import BatchMaintenance
from fairbox.client.batches import COMPLETED_TOPIC, ORPHANED_TOPIC, Batches
from fairbox.client.outbox import Outbox
from fairbox.model.ids import IdGenerator
from fairbox.model.topics import Topic
from fairbox.tables.batch_values import FirstDeath
from fairbox.tables.definitions import batches_definition, table_definitions
from fairbox.testing import ManualClock, MemoryDynamoDB
from fairbox_simulation.batches.invariants import broken, pieces

from tests.support.interleavings import Interleavings, Local, Report, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.tables.batch_values import Cause

OUTBOX, DELIVERIES, BATCHES = "outbox", "deliveries", "batches"
CALLBACK_TOPICS = ("on-complete", "on-success", "on-cancel", "on-death")
_START = 1_760_000_000.0


@dataclass(frozen=True)
class Process:
    """A use case: `run` does it; `settles` are items that stay settled once it has returned."""

    name: str
    run: Callable[[Batches], Any]
    settles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """A starting state, processes, and the invariant when all have run without a crash."""

    name: str
    prepare: Callable[[Batches], Any]
    processes: Sequence[Process]
    at_end: Callable[[Batches], None] = lambda _: None
    lost_answers: int = 1


class Explorer(Interleavings):
    """Searches one scenario.

    Args:
        most: states after which a search gives up with an error.
    """

    def __init__(self, scenario: Scenario, *, most: int = 60_000) -> None:
        self._scenario = scenario
        self._checked: set[int] = set()
        names = [process.name for process in scenario.processes]
        engine = MemoryDynamoDB(ManualClock(_START))
        super().__init__(engine, names, lost_answers=scenario.lost_answers, most=most)

    def search(self) -> Report:
        """Visit every state, depth first, up to the first violation."""
        for definition in table_definitions(outbox=OUTBOX, deliveries=DELIVERIES):
            self._engine.create_table(**definition)
        self._engine.create_table(**batches_definition(BATCHES))
        outbox = Outbox(self._engine, table=OUTBOX, deliveries_table=DELIVERIES)
        for topic in (COMPLETED_TOPIC, ORPHANED_TOPIC, *CALLBACK_TOPICS):
            outbox.create_topic(Topic(topic, shards=1))
        self._scenario.prepare(self._batches(self._engine, 99))
        return super().search()

    def run(self, number: int, client: Any) -> Any:
        """Run a process over a client."""
        self._scenario.processes[number].run(self._batches(client, number))

    def _batches(self, client: Any, number: int) -> Batches:
        clock = ManualClock(_START)
        rng = random.Random(number)
        return Batches(
            client,
            table=BATCHES,
            outbox_table=OUTBOX,
            deliveries_table=DELIVERIES,
            clock=clock,
            rng=rng,
            ids=IdGenerator(clock, random.Random(number + 1000).getrandbits),
        )

    def problem(self, saved: Any, tables: int, locals_: tuple[Local, ...]) -> str:
        """Say what is wrong in a state, and what would be if all processes were dead."""
        problem = self._unsettled(locals_)
        if any(local.done == "NotRefusedError" for local in locals_):
            problem = "settled after the end"
        if not problem and tables not in self._checked:
            self._checked.add(tables)
            problem = (
                broken(self._items(), self._messages()) or self._miscalled() or self._recovered()
            )
        if not problem and all(local.done == "returned" for local in locals_):
            self._restore(saved)
            self._stream(self._batches(self._engine, 98))
            try:
                self._scenario.at_end(self._batches(self._engine, 97))
            except AssertionError as error:
                problem = f"at the end: {error}"
        return problem

    def _unsettled(self, locals_: tuple[Local, ...]) -> str:
        pending = pieces(self._items()).pending_items()
        for process, local in zip(self._scenario.processes, locals_, strict=True):
            lost = pending & set(process.settles)
            if local.done == "returned" and lost:
                return f"{process.name} returned, but these are pending: {sorted(lost)}"
        return ""

    def _miscalled(self) -> str:
        """Say which callback was not told once, of a batch that tells all topics."""
        for root in pieces(self._items()).roots.values():
            if root.callbacks and root.state != "reaped":
                complete = root.state == "complete"
                told = [len(self._messages(topic)) for topic in CALLBACK_TOPICS]
                ended = [complete, complete and not root.failed, root.state == "cancelled"]
                # of a death that was undone, or came to its batch cancelled, none need be told
                death = 1 if complete and root.failed else min(told[-1], 1)
                if told != [*ended, death]:
                    return f"{root.batch} is {root.state}, {root.failed} failed, told {told} times"
        return ""

    def _untold_death(self) -> str:
        """Say which batch goes on, has a failed item, and has not told of it."""
        found = pieces(self._items())
        died = {batch for batch, _ in found.failed}
        for root in found.roots.values():
            told = self._messages(CALLBACK_TOPICS[-1])
            if root.batch in died and root.callbacks and not (root.ended or told):
                return f"{root.batch} has not told of its first failed item"
        return ""

    def _recovered(self) -> str:
        """Let everything be dead but the stream; say what is wrong then."""
        self._stream(self._batches(self._engine, 98))
        problem = broken(self._items(), self._messages()) or self._miscalled()
        if not problem:
            problem = pieces(self._items()).stuck() or self._untold_death()
        return f"after a crash of all: {problem}" if problem else ""

    def _stream(self, batches: Batches) -> None:
        """Do what the stream brings: every emptied item and every end that was not told."""
        for _ in range(3):
            found = pieces(self._items())
            BatchMaintenance(batches).cascade.cascade(found.emptied())
            died = [FirstDeath(batch) for batch in sorted({batch for batch, _ in found.failed})]
            causes: list[Cause] = [*found.untold(), *found.unfenced(), *died]
            BatchMaintenance(batches).finish(causes, deadline=1e12)

    def _items(self) -> list[dict[str, Any]]:
        return [row.item for row in rows_of(self._engine._engine.tables[BATCHES].store)]

    def _messages(self, topic: str = COMPLETED_TOPIC) -> list[str]:
        rows = rows_of(self._engine._engine.tables[OUTBOX].store)
        prefix = f"ready#{topic}#"
        return [r.item["k"]["S"] for r in rows if r.item["pk"]["S"].startswith(prefix)]
