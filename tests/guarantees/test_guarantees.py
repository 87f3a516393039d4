"""The table of guarantees: each breach has a guarantee, each guarantee tests and mutants."""

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

import fairbox_simulation as simulation
import pytest
from fairbox.testing.faults import Fault
from fairbox_simulation.chaos import Chaos
from fairbox_simulation.scenarios import FAULTS, SCENARIOS

from tests.guarantees import elsewhere, simulated
from tests.simulation.test_loaded import USUAL as LOADED_WORLDS
from tests.support.night import is_nightly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.guarantees.guarantee import Guarantee

ROOT = Path(__file__).resolve().parents[2]
WORLDS = Path(simulation.__path__[0])
NO_WORLDS = {"scenarios.py", "runner.py", "shrinker.py", "reproduction.py"}
_LOADED = "test_loaded.py::test_no_subscription_waits_for_another_and_nothing_grows"
BY_DAY = {
    "whole": "tests/simulation/test_whole.py"
    "::test_the_full_system_keeps_every_guarantee_whatever_fails",
    "expiring": "tests/simulation/test_expiring.py"
    "::test_no_message_expires_early_or_while_it_is_held_and_none_stays",
    "delivery": "tests/simulation/test_simulation.py::test_every_guarantee_holds_whatever_fails",
    "ordered": "tests/simulation/test_ordered.py"
    "::test_order_holds_and_nothing_is_forgotten_whatever_fails",
    "resizing": "tests/simulation/test_resizing.py"
    "::test_every_guarantee_holds_while_topics_are_resized",
    "riding": "tests/simulation/test_batch_items.py"
    "::test_every_item_is_settled_once_and_rightly_whatever_fails",
    "batches": "tests/batches/test_simulation.py::test_every_guarantee_holds_whatever_fails",
} | dict.fromkeys(LOADED_WORLDS, f"tests/simulation/{_LOADED}")
"""Of each scenario a test that runs its first world in `make test`."""
KIND = re.compile(r"([a-z][a-z ,']*): ")
SIMULATED = [guarantee for group in simulated.GROUPS.values() for guarantee in group]
ELSEWHERE = [guarantee for group in elsewhere.GROUPS.values() for guarantee in group]


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


def extended(test: str) -> bool:
    """Whether a test, its class or its file runs in `make test-all` only."""
    path, _, name = test.partition("::")
    if is_nightly(f"{path}::{name.replace('.', '::')}"):
        return True
    found: list[Any] = [module_of(path)]
    for part in name.split("."):
        found.append(getattr(found[-1], part))
    marks = [getattr(each, "pytestmark", ()) for each in found]
    single = [
        mark for each in marks for mark in (each if isinstance(each, list | tuple) else [each])
    ]
    return "extended" in {mark.name for mark in single}


def worlds() -> Iterator[Path]:
    for path in sorted(WORLDS.rglob("*.py")):
        if path.name not in NO_WORLDS:
            yield path


def test_every_kind_of_breach_breaks_a_guarantee_and_every_kind_can_come() -> None:
    yielded = {kind for path in worlds() for kind in kinds_in(path.read_text(encoding="utf-8"))}
    guaranteed = {kind for guarantee in SIMULATED for kind in guarantee.kinds}
    assert yielded == guaranteed


@pytest.mark.parametrize("guarantee", SIMULATED, ids=lambda p: p.text)
class TestSimulated:
    def test_its_invariants_yield_its_kinds(self, guarantee: Guarantee) -> None:
        yielded = set.union(*(kinds_in(source_of(name)) for name in guarantee.invariants))
        assert set(guarantee.kinds) <= yielded
        for name in guarantee.invariants:
            assert kinds_in(source_of(name)) & set(guarantee.kinds), name

    def test_it_has_mutants_scenarios_and_faults_that_exist(self, guarantee: Guarantee) -> None:
        assert guarantee.mutants
        assert [test for test in (*guarantee.mutants, *guarantee.checks) if missing(test)] == []
        assert guarantee.scenarios
        assert set(guarantee.scenarios) <= set(SCENARIOS)
        assert set(guarantee.faults) <= set(FAULTS)


@pytest.mark.parametrize("guarantee", ELSEWHERE, ids=lambda p: p.text)
def test_what_is_checked_elsewhere_has_tests_that_exist(guarantee: Guarantee) -> None:
    assert guarantee.checks
    assert [test for test in guarantee.checks if missing(test)] == []
    assert (guarantee.kinds, guarantee.invariants, guarantee.scenarios) == ((), (), ())


@pytest.mark.parametrize("guarantee", ELSEWHERE, ids=lambda p: p.text)
def test_a_contributor_s_run_checks_each_guarantee(guarantee: Guarantee) -> None:
    assert [test for test in guarantee.checks if not extended(test)]


def test_a_contributor_s_run_has_a_world_of_each_scenario() -> None:
    assert set(BY_DAY) == set(SCENARIOS)
    assert [test for test in BY_DAY.values() if missing(test) or extended(test)] == []


def test_a_mark_is_seen() -> None:
    whole = "tests/simulation/test_whole.py"
    assert extended(f"{whole}::test_all_faults_strike_and_all_actors_act")
    assert extended(f"{whole}::TestMutants.test_erasing_at_once_is_found")
    assert not extended(BY_DAY["whole"])


def test_a_test_that_is_not_there_is_seen_to_be_missing() -> None:
    assert missing("tests/guarantees/test_guarantees.py::test_of_nothing")
    assert missing("tests/guarantees/test_guarantees.py::TestSimulated.test_of_nothing")


def test_every_scenario_is_held_to_guarantees_under_faults_that_there_are() -> None:
    held = {name for guarantee in SIMULATED for name in guarantee.scenarios}
    assert held == set(SCENARIOS)
    known = {field.name for field in fields(Chaos)} | {fault.name for fault in Fault}
    for scenario in SCENARIOS.values():
        assert set(scenario.faults) <= known
    assert {fault for s in SCENARIOS.values() for fault in s.faults} == set(FAULTS)


@pytest.mark.parametrize("guarantee", [*SIMULATED, *ELSEWHERE], ids=lambda p: p.text)
def test_the_page_that_makes_it_is_there(guarantee: Guarantee) -> None:
    path, _, anchor = guarantee.page.partition("#")
    text = (ROOT / "docs" / path).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    assert not anchor or anchor in anchors
