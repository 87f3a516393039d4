"""The table of promises is true: every breach has its promise, every promise its check and twin."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest
from  import fairbox_simulation as simulation
from fairbox_simulation import promises, promises_elsewhere
from fairbox_simulation.chaos import Chaos
from fairbox_simulation.scenarios import FAULTS, SCENARIOS
from fairbox.testing.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox_simulation.promise import Promise

ROOT = Path(__file__).resolve().parents[2]
WORLDS = Path(simulation.__path__[0])
NO_WORLDS = {"scenarios.py", "running.py", "shrinking.py", "replaying.py", "promise.py"} | {
    "promises.py",
    "promises_elsewhere.py",
    "promises_of_queues.py",
}
KIND = re.compile(r"([a-z][a-z ,']*): ")
SIMULATED = [promise for group in promises.GROUPS.values() for promise in group]
ELSEWHERE = [promise for group in promises_elsewhere.GROUPS.values() for promise in group]


def kinds_in(source: str) -> set[str]:
    """Return what stands before the colon of every text that begins as a breach does."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            match = KIND.match(first.value)
            if match is not None and "\n" not in first.value:
                found.add(match[1])
    return found


def source_of(name: str) -> str:
    return inspect.cleandoc("\n" + inspect.getsource(resolve_name(name)))


@cache
def module_of(path: str) -> Any:
    """Import a file of tests, as pytest does; its tests are not run."""
    name = f"collected_{re.sub(r'[^a-z_]', '_', path)}"
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def missing(test: str) -> bool:
    """Whether there is no such test; `path::Class.function`."""
    path, _, name = test.partition("::")
    found: Any = module_of(path)
    for part in name.split("."):
        found = getattr(found, part, None)
    return not (callable(found) and name.rpartition(".")[2].startswith("test_"))


def worlds() -> Iterator[Path]:
    for path in sorted(WORLDS.rglob("*.py")):
        if path.name not in NO_WORLDS:
            yield path


def test_every_kind_of_breach_breaks_a_promise_and_every_kind_can_come() -> None:
    yielded = {kind for path in worlds() for kind in kinds_in(path.read_text(encoding="utf-8"))}
    promised = {kind for promise in SIMULATED for kind in promise.kinds}
    assert yielded == promised


@pytest.mark.parametrize("promise", SIMULATED, ids=lambda p: p.text)
class TestSimulated:
    def test_its_invariants_yield_its_kinds(self, promise: Promise) -> None:
        yielded = set.union(*(kinds_in(source_of(name)) for name in promise.invariants))
        assert set(promise.kinds) <= yielded
        for name in promise.invariants:
            assert kinds_in(source_of(name)) & set(promise.kinds), name

    def test_it_has_twins_scenarios_and_faults_that_exist(self, promise: Promise) -> None:
        assert promise.twins
        assert [test for test in (*promise.twins, *promise.checks) if missing(test)] == []
        assert promise.scenarios
        assert set(promise.scenarios) <= set(SCENARIOS)
        assert set(promise.faults) <= set(FAULTS)


@pytest.mark.parametrize("promise", ELSEWHERE, ids=lambda p: p.text)
def test_what_is_checked_elsewhere_has_tests_and_twins_that_exist(promise: Promise) -> None:
    assert promise.checks
    assert promise.twins
    assert [test for test in (*promise.checks, *promise.twins) if missing(test)] == []
    assert (promise.kinds, promise.invariants, promise.scenarios) == ((), (), ())


def test_a_test_that_is_not_there_is_seen_to_be_missing() -> None:
    assert missing("tests/simulation/test_promises.py::test_of_nothing")
    assert missing("tests/simulation/test_promises.py::TestSimulated.test_of_nothing")


def test_every_scenario_is_held_to_promises_under_faults_that_there_are() -> None:
    held = {name for promise in SIMULATED for name in promise.scenarios}
    assert held == set(SCENARIOS)
    known = {field.name for field in fields(Chaos)} | {fault.name for fault in Fault}
    for scenario in SCENARIOS.values():
        assert set(scenario.faults) <= known
    assert {fault for s in SCENARIOS.values() for fault in s.faults} == set(FAULTS)


@pytest.mark.parametrize("promise", [*SIMULATED, *ELSEWHERE], ids=lambda p: p.text)
def test_the_page_that_makes_it_is_there(promise: Promise) -> None:
    path, _, anchor = promise.page.partition("#")
    text = (ROOT / "docs" / path).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    assert not anchor or anchor in anchors
