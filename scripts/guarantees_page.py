"""The reference page of the guarantees: their texts, and the tests that are marked with them."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairbox_simulation.chaos import Chaos
from fairbox_simulation.scenarios import SCENARIOS

from tests.support.night import is_nightly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Table = Callable[[Sequence[str], Iterable[Sequence[str]]], str]

ROOT: Final = Path(__file__).resolve().parent.parent
_MARKER: Final = "pytest.mark.guarantee"
_EXTENDED: Final = "pytest.mark.extended"
_INTRODUCTION: Final = """\
The guarantees of the documents, and the tests that hold the code to each. Tests of `simulation` and
`batches` judge simulated worlds among faults: [Simulate](../how-to/simulate.md) describes how to
run more of them."""


def parts(note: str, table: Table) -> Iterable[str]:
    """Yield the page's parts."""
    yield "# Guarantees"
    yield note
    yield _INTRODUCTION
    tests = marked()
    for heading, group in guarantees().items():
        yield f"## {heading}"
        yield table(
            ("guarantee", "tests"),
            [
                (f"[{text}](../{page})", "<br>".join(f"`{test}`" for test in tests[name]))
                for name, (text, page) in group.items()
            ],
        )
    yield "## Faults"
    yield "The faults of each scenario; `--without FAULT` leaves one out."
    yield table(("fault", *SCENARIOS), [_fault(field.name) for field in fields(Chaos)])


def guarantees() -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """Return text and page of each guarantee by group and name."""
    return tomllib.loads((ROOT / "tests/guarantees.toml").read_text(encoding="utf-8"))


def marked(*, by_day: bool = False) -> Mapping[str, Sequence[str]]:
    """Return the tests of each guarantee by its name, as `file function`.

    Args:
        by_day: leave out those that only `make test-all` runs.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = path.relative_to(ROOT / "tests").as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        of_all = [ast.unparse(n) for n in tree.body if ast.unparse(n).startswith("pytestmark")]
        for test, marks in _tests(tree, of_all):
            extended = is_nightly(f"tests/{file}") or any(_EXTENDED in mark for mark in marks)
            if by_day and extended:
                continue
            for name in _names(test):
                found[name].append(f"{file} {test.name}")
    return found


def _tests(
    parent: ast.Module | ast.ClassDef, marks: Sequence[str]
) -> Iterator[tuple[ast.FunctionDef, Sequence[str]]]:
    """Yield each test with the texts of its marks and those around it."""
    for node in parent.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own = [*marks, *map(ast.unparse, node.decorator_list)]
            if isinstance(node, ast.FunctionDef):
                yield node, own
            else:
                yield from _tests(node, own)


def _names(test: ast.FunctionDef) -> Iterator[str]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == _MARKER:
            yield from map(ast.literal_eval, mark.args)


def _fault(fault: str) -> Sequence[str]:
    known = ("yes" if fault in scenario.faults else "" for scenario in SCENARIOS.values())
    return f"`{fault}`", *known
