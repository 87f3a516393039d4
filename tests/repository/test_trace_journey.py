"""The journeys' sizes: what a reader of one message's way has to follow, held by upper bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/trace_journey.py"
LIMITS = {
    "publish": {"files": 8, "functions": 20, "changes": 26, "depth": 6},
    "relay": {"files": 25, "functions": 159, "changes": 156, "depth": 15},
    "marking": {"files": 18, "functions": 101, "changes": 120, "depth": 12},
    "acks": {"files": 16, "functions": 97, "changes": 164, "depth": 15},
}
"""At most so many: lower a figure when a journey has become shorter."""


def run(*arguments: str) -> str:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    traced: dict[str, Any] = json.loads(run("--json"))
    return traced


def test_the_four_journeys_are_printed(figures: dict[str, Any]) -> None:
    header, *rows = run().splitlines()
    assert header.split() == ["files", "functions", "changes", "depth"]
    printed = {name: [int(n) for n in counted] for name, *counted in map(str.split, rows)}
    assert printed == {name: list(counted.values()) for name, counted in figures.items()}


@pytest.mark.parametrize("journey", LIMITS)
def test_a_journey_has_not_become_longer(figures: dict[str, Any], journey: str) -> None:
    longer = {
        name: (counted, LIMITS[journey][name])
        for name, counted in figures[journey].items()
        if not 0 < counted <= LIMITS[journey][name]
    }
    assert not longer, f"{journey} (counted, at most): {longer}"


def test_a_journeys_functions_and_changes_of_file_are_listed() -> None:
    listed = run("--show", "relay")
    assert "dispatch/relay.py  Relay.handle" in listed
    assert " -> dispatch/relay.py" in listed
