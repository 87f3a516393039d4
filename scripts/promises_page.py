"""The reference page of the promises, from the data that the tests hold to the code."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

from fairbox_simulation import promises, promises_elsewhere
from fairbox_simulation.chaos import Chaos
from fairbox_simulation.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairbox_simulation.promise import Promise

    Table = Callable[[Sequence[str], Iterable[Sequence[str]]], str]

_INTRODUCTION: Final = """\
What the documents promise, and what holds the code to it. A simulated world is judged by
*invariants*: functions that read what it came to, and name every breach. A *twin* is the code with
one rule broken; its test fails unless the invariants find that.
[Simulate](../how-to/simulate.md) says how to run the worlds."""
_ELSEWHERE: Final = """\
These are not of one world's end, and have tests of their own: models, properties, measures of
cost, and contracts that run against memory and DynamoDB Local alike. Their twins run a test of the
promise over a rule that is broken, and fail unless it does."""


def parts(note: str, table: Table) -> Iterable[str]:
    """Yield the page's parts."""
    yield "# Promises"
    yield note
    yield _INTRODUCTION
    yield "## Simulated"
    for heading, group in promises.GROUPS.items():
        yield f"### {heading}"
        head = ("promise", "invariants", "twins", "scenarios", "faults", "other tests")
        yield table(head, [_simulated(promise) for promise in group])
    yield "## Held by other tests"
    yield _ELSEWHERE
    for heading, group in promises_elsewhere.GROUPS.items():
        yield f"### {heading}"
        yield table(("promise", "tests", "twins"), [_elsewhere(promise) for promise in group])
    yield "## Faults"
    yield "What goes wrong in the worlds of each scenario; `--without FAULT` leaves one out."
    yield table(("fault", *SCENARIOS), [_fault(field.name) for field in fields(Chaos)])


def _simulated(promise: Promise) -> Sequence[str]:
    faults = _listed(promise.faults) if promise.faults else "all"
    return (
        _linked(promise),
        _lines(name.partition(":")[2] for name in promise.invariants),
        _lines(map(_test, promise.twins)),
        _listed(promise.scenarios),
        faults,
        _lines(map(_test, promise.checks)),
    )


def _elsewhere(promise: Promise) -> Sequence[str]:
    return _linked(promise), _lines(map(_test, promise.checks)), _lines(map(_test, promise.twins))


def _fault(fault: str) -> Sequence[str]:
    known = ("yes" if fault in scenario.faults else "" for scenario in SCENARIOS.values())
    return f"`{fault}`", *known


def _linked(promise: Promise) -> str:
    return f"[{promise.text}](../{promise.page})"


def _test(test: str) -> str:
    """Return a test's file and function."""
    path, _, name = test.partition("::")
    return f"{path.removeprefix('tests/')} {name.rpartition('.')[2]}"


def _lines(names: Iterable[str]) -> str:
    return "<br>".join(f"`{name}`" for name in names)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
