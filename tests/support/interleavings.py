"""Explores every interleaving of processes, call by call, over the in-memory engine.

A process is a use case of the shipped code. Its state is the list of answers that it has had: to
let it make one more call, it is run again from its beginning with those answers, and stopped
before the call after. So a state of the whole is the tables and each process's answers, and every
state is visited once. A write may also be applied and its answer lost. A crash needs no step of
its own: in every state that is reached, all processes may be taken to be dead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ReadTimeoutError
from fairbox.errors import FairboxError
from fairbox.testing.stores import Partition, Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairbox.testing import MemoryDynamoDB

_WRITES = frozenset({"put_item", "update_item", "transact_write_items", "batch_write_item"})


class PauseError(BaseException):
    """The process has made its call; no FairboxError, so that no use case catches it."""


@dataclass(frozen=True)
class Local:
    answers: tuple[Any, ...] = ()
    digest: int = 0
    done: str = ""
    result: Any = None


_State = tuple[Any, tuple[Local, ...], int, tuple[str, ...]]


@dataclass
class Report:
    """The result of a search: how many states, and the first violation with the way to it."""

    states: int = 0
    violation: str = ""
    trace: list[str] = field(default_factory=list)


class _Client:
    """Gives the answers that a process has had, then makes one call, then stops it."""

    def __init__(self, engine: MemoryDynamoDB, local: Local, *, lose: bool) -> None:
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


class Interleavings:
    """Searches all states that some processes can reach.

    Args:
        engine: with the tables as they stand in the beginning.
        names: of the processes.
        lost_answers: of writes, in one course of things.
        most: states after which a search gives up with an error.
    """

    def __init__(
        self,
        engine: MemoryDynamoDB,
        names: Sequence[str],
        *,
        lost_answers: int = 1,
        most: int = 60_000,
    ) -> None:
        self._engine = engine
        self._names = names
        self._lost_answers = lost_answers
        self._most = most
        self._row_digests: dict[int, tuple[Any, int]] = {}
        self.report = Report()

    def run(self, number: int, client: Any) -> Any:
        """Run a process over a client, from its beginning; return what it returns."""
        raise NotImplementedError

    def problem(self, saved: Any, tables: int, locals_: tuple[Local, ...]) -> str:
        """Say what is wrong in a state, which the engine holds; empty: nothing is."""
        raise NotImplementedError

    def search(self) -> Report:
        """Visit every state, depth first, up to the first violation."""
        start = tuple(Local() for _ in self._names)
        stack: list[_State] = [(self._save(), start, self._lost_answers, ())]
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
            problem = self.problem(saved, tables, locals_)
            if problem:
                self.report.violation, self.report.trace = problem, list(trace)
                break
            stack += self._after(saved, locals_, losses, trace)
        return self.report

    def _after(
        self, saved: Any, locals_: tuple[Local, ...], losses: int, trace: tuple[str, ...]
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

    def _advance(self, number: int, local: Local, *, lose: bool) -> tuple[Local, str, bool]:
        client = _Client(self._engine, local, lose=lose)
        done, result = "", None
        try:
            result = self.run(number, client)
            done = "returned"
        except PauseError:
            pass
        except FairboxError as error:
            done = type(error).__name__
        lost = isinstance(client.answer, ReadTimeoutError)
        answers = (*local.answers, client.answer) if client.operation else local.answers
        digest = hash((local.digest, client.operation, _text(client.answer)))
        step = f"{self._names[number]}: {client.operation}{' (answer lost)' if lost else ''} {done}"
        return Local(answers, digest, done, result), step, lost

    def _digest(self) -> int:
        found = []
        for name, table in sorted(self._engine._engine.tables.items()):
            for row in rows_of(table.store):
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


def rows_of(store: Store) -> list[Any]:
    """Return the rows of a table's store."""
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
