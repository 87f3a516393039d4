"""Explores every interleaving of use cases of batches, call by call, over the in-memory engine.

A process is a use case of the shipped code. Its state is the list of answers that it has had: to
let it make one more call, it is run again from its beginning with those answers, and stopped
before the call after. So a state of the whole is the tables and each process's answers, and every
state is visited once. A write may also be applied and its answer lost. A crash needs no step of
its own: in every state that is reached, all processes are taken to be dead, the stream brings
what it must, and the batch must end as it should.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ReadTimeoutError
from fairbox.batches.models import FirstDeath
from fairbox.client.batch_maintenance import BatchMaintenance
from fairbox.client.batches import COMPLETED_TOPIC, ORPHANED_TOPIC, Batches
from fairbox.client.outbox import Outbox
from fairbox.dynamodb.definitions import batches_definition, table_definitions
from fairbox.errors import FairboxError
from fairbox.model.ids import IdGenerator
from fairbox.model.topics import Topic
from fairbox.testing import ManualClock, MemoryDynamoDB
from fairbox.testing.stores import Partition, Store
from fairbox_simulation.batches.invariants import broken, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairbox.batches.models import Cause

OUTBOX, DELIVERIES, BATCHES = "outbox", "deliveries", "batches"
CALLBACK_TOPICS = ("on-complete", "on-success", "on-cancel", "on-death")
_START = 1_760_000_000.0
_WRITES = frozenset({"put_item", "transact_write_items", "batch_write_item"})


class PauseError(BaseException):
    """The process has made its call; no FairboxError, so that no use case catches it."""


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


@dataclass(frozen=True)
class _Local:
    answers: tuple[Any, ...] = ()
    digest: int = 0
    done: str = ""


_State = tuple[Any, tuple[_Local, ...], int, tuple[str, ...]]


@dataclass
class Report:
    """The result of a search: states, states checked for recovery, and the first violation."""

    states: int = 0
    tables: int = 0
    violation: str = ""
    trace: list[str] = field(default_factory=list)


class _Client:
    """Gives the answers that a process has had, then makes one call, then stops it."""

    def __init__(self, engine: MemoryDynamoDB, local: _Local, *, lose: bool) -> None:
        self._engine = engine
        self._answers = local.answers
        self._at = 0
        self._lose = lose
        self.operation = ""
        self.answer: Any = None

    def __getattr__(self, operation: str) -> Any:
        def call(**request: Any) -> Any:
            self._at += 1
            if self._at <= len(self._answers):
                return _given(self._answers[self._at - 1])
            if self.operation:
                raise PauseError
            self.operation = operation
            self.answer = self._make(operation, request)
            return _given(self.answer)

        return call

    def _make(self, operation: str, request: dict[str, Any]) -> Any:
        try:
            answer = getattr(self._engine, operation)(**request)
        except Exception as error:  # noqa: BLE001 - an answer like any other
            return error
        if self._lose and operation in _WRITES:
            return ReadTimeoutError(endpoint_url="dynamodb")
        return answer


def _given(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


class Explorer:
    """Searches one scenario.

    Args:
        mutant: breaks the `Batches` that every process gets; None: the code as it is shipped.
        most: states after which a search gives up with an error.
    """

    def __init__(
        self,
        scenario: Scenario,
        mutant: Callable[[Batches], None] | None = None,
        *,
        most: int = 60_000,
    ) -> None:
        self._scenario = scenario
        self._mutant = mutant
        self._most = most
        self._engine = MemoryDynamoDB(ManualClock(_START))
        self._checked: set[int] = set()
        self._row_digests: dict[int, tuple[Any, int]] = {}
        self.report = Report()

    def search(self) -> Report:
        """Visit every state, depth first, up to the first violation."""
        for definition in table_definitions(outbox=OUTBOX, deliveries=DELIVERIES):
            self._engine.create_table(**definition)
        self._engine.create_table(**batches_definition(BATCHES))
        outbox = Outbox(self._engine, table=OUTBOX, deliveries_table=DELIVERIES)
        for topic in (COMPLETED_TOPIC, ORPHANED_TOPIC, *CALLBACK_TOPICS):
            outbox.create_topic(Topic(topic, shards=1))
        self._scenario.prepare(self._batches(self._engine, 99, plain=True))
        start = tuple(_Local() for _ in self._scenario.processes)
        stack: list[_State] = [(self._save(), start, self._scenario.lost_answers, ())]
        seen: set[tuple[Any, ...]] = set()
        while stack:
            saved, locals_, losses, trace = stack.pop()
            self._restore(saved)
            tables = self._digest()
            key = (tables, tuple((p.digest, p.done) for p in locals_), losses)
            if key in seen:
                continue
            seen.add(key)
            self.report.states = len(seen)
            if len(seen) > self._most:
                raise AssertionError(f"over {self._most} states: the scenario is too large")
            problem = self._problem(saved, tables, locals_)
            if problem:
                self.report.violation, self.report.trace = problem, list(trace)
                break
            stack += self._after(saved, locals_, losses, trace)
        self.report.tables = len(self._checked)
        return self.report

    def _after(
        self, saved: Any, locals_: tuple[_Local, ...], losses: int, trace: tuple[str, ...]
    ) -> Iterator[_State]:
        """Yield the states that one more call of one process leads to."""
        for number, local in enumerate(locals_):
            for lose in (False, True) if losses else (False,):
                if local.done:
                    continue
                self._restore(saved)
                moved, step, lost = self._advance(number, local, lose=lose)
                if lost or not lose:
                    after = (*locals_[:number], moved, *locals_[number + 1 :])
                    yield self._save(), after, losses - lose, (*trace, step)

    def _advance(self, number: int, local: _Local, *, lose: bool) -> tuple[_Local, str, bool]:
        process = self._scenario.processes[number]
        client = _Client(self._engine, local, lose=lose)
        done = ""
        try:
            process.run(self._batches(client, number))
            done = "returned"
        except PauseError:
            pass
        except FairboxError as error:
            done = type(error).__name__
        lost = isinstance(client.answer, ReadTimeoutError)
        answers = (*local.answers, client.answer) if client.operation else local.answers
        digest = hash((local.digest, client.operation, _text(client.answer)))
        step = f"{process.name}: {client.operation}{' (answer lost)' if lost else ''} {done}"
        return _Local(answers, digest, done), step, lost

    def _batches(self, client: Any, number: int, *, plain: bool = False) -> Batches:
        clock = ManualClock(_START)
        rng = random.Random(number)
        made = Batches(
            client,
            table=BATCHES,
            outbox_table=OUTBOX,
            deliveries_table=DELIVERIES,
            clock=clock,
            rng=rng,
            ids=IdGenerator(clock, random.Random(number + 1000).getrandbits),
        )
        if self._mutant is not None and not plain:
            self._mutant(made)
        return made

    def _problem(self, saved: Any, tables: int, locals_: tuple[_Local, ...]) -> str:
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

    def _unsettled(self, locals_: tuple[_Local, ...]) -> str:
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
            BatchMaintenance(batches).cascade(found.emptied())
            died = [FirstDeath(batch) for batch in sorted({batch for batch, _ in found.failed})]
            causes: list[Cause] = [*found.untold(), *found.unfenced(), *died]
            BatchMaintenance(batches).finish(causes, deadline=1e12)

    def _items(self) -> list[dict[str, Any]]:
        return [row.item for row in _rows(self._engine._engine.tables[BATCHES].store)]

    def _messages(self, topic: str = COMPLETED_TOPIC) -> list[str]:
        rows = _rows(self._engine._engine.tables[OUTBOX].store)
        prefix = f"ready#{topic}#"
        return [r.item["k"]["S"] for r in rows if r.item["pk"]["S"].startswith(prefix)]

    def _digest(self) -> int:
        found = []
        for name, table in sorted(self._engine._engine.tables.items()):
            for row in _rows(table.store):
                known = self._row_digests.get(id(row))
                if known is None:  # the row is kept, so that its id stays its own
                    known = self._row_digests[id(row)] = (row, hash((name, _text(row.item))))
                found.append(known[1])
        return hash(tuple(sorted(found)))

    def _save(self) -> Any:
        tables = self._engine._engine.tables
        stores = {
            name: (_copy(t.store), [_copy(i.store) for i in t.indexes.values()])
            for name, t in tables.items()
        }
        return stores, self._engine._engine.tokens.copy()

    def _restore(self, saved: Any) -> None:
        stores, tokens = saved
        for name, (store, indexes) in stores.items():
            table = self._engine._engine.tables[name]
            table.store = _copy(store)
            for index, kept in zip(table.indexes.values(), indexes, strict=True):
                index.store = _copy(kept)
            if table.stream is not None:
                table.stream._changes.clear()
        self._engine._engine.tokens = tokens.copy()


def _rows(store: Store) -> list[Any]:
    return [row for partition in store.partitions.values() for row in partition.rows.values()]


def _copy(store: Store) -> Store:
    copied = Store()
    copied._tokens = list(store._tokens)
    for hash_value, partition in store.partitions.items():
        kept = copied.partitions[hash_value] = Partition()
        kept.order, kept.rows = list(partition.order), dict(partition.rows)
    return copied


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{','.join(f'{k}:{_text(value[k])}' for k in sorted(value))}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return str(value)
