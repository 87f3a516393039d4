"""The reference page of the guarantees, from the data that the tests hold to the code."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

from fairbox_simulation.chaos import Chaos
from fairbox_simulation.scenarios import SCENARIOS

from tests.guarantees import elsewhere, simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.guarantees.guarantee import Guarantee

    Table = Callable[[Sequence[str], Iterable[Sequence[str]]], str]

_INTRODUCTION: Final = """\
The guarantees of the documents, and the tests that hold the code to each. *Invariants* judge a
simulated world: functions that read its final state and name every breach. A *mutant* is the code
with one rule broken; its test fails unless the invariants find the breach.
[Simulate](../how-to/simulate.md) describes how to run the worlds."""
_ELSEWHERE: Final = """\
Other tests check these guarantees: models, properties, measures of cost, and contracts that run
against memory and DynamoDB Local alike."""


def parts(note: str, table: Table) -> Iterable[str]:
    """Yield the page's parts."""
    yield "# Guarantees"
    yield note
    yield _INTRODUCTION
    yield "## Simulated"
    for heading, group in simulated.GROUPS.items():
        yield f"### {heading}"
        head = ("guarantee", "invariants", "mutants", "scenarios", "faults", "other tests")
        yield table(head, map(_simulated, group))
    yield "## Checked by other tests"
    yield _ELSEWHERE
    for heading, group in elsewhere.GROUPS.items():
        yield f"### {heading}"
        yield table(("guarantee", "tests"), map(_elsewhere, group))
    yield "## Faults"
    yield "The faults of each scenario; `--without FAULT` leaves one out."
    yield table(("fault", *SCENARIOS), [_fault(field.name) for field in fields(Chaos)])


def _simulated(guarantee: Guarantee) -> Sequence[str]:
    faults = _listed(guarantee.faults) if guarantee.faults else "all"
    return (
        _linked(guarantee),
        _lines(name.partition(":")[2] for name in guarantee.invariants),
        _lines(map(_test, guarantee.mutants)),
        _listed(guarantee.scenarios),
        faults,
        _lines(map(_test, guarantee.checks)),
    )


def _elsewhere(guarantee: Guarantee) -> Sequence[str]:
    return (_linked(guarantee), _lines(map(_test, guarantee.checks)))


def _fault(fault: str) -> Sequence[str]:
    known = ("yes" if fault in scenario.faults else "" for scenario in SCENARIOS.values())
    return f"`{fault}`", *known


def _linked(guarantee: Guarantee) -> str:
    return f"[{guarantee.text}](../{guarantee.page})"


def _test(test: str) -> str:
    """Return a test's file and function."""
    path, _, name = test.partition("::")
    return f"{path.removeprefix('tests/')} {name.rpartition('.')[2]}"


def _lines(names: Iterable[str]) -> str:
    return "<br>".join(f"`{name}`" for name in names)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
