"""A short soak: steady load, an overload, recovery, and the account of every message."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from local.workspace import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

# tests/local judges told runs
pytestmark = [pytest.mark.engine, pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.extended]

MINUTES = 0.5
# in so short a run a process still warms up: what a leak of 20 KB an invocation makes is over it
LET_PASS = ["--growth", "1500", "--level", "3", "--latency", "10"]


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, dict[str, Any]]:
    """The exit code, what was printed and the result of a run in a process of its own."""
    folder: Path = tmp_path_factory.mktemp("soak") / "run"
    command = [sys.executable, "-m", "local.soak", "--minutes", str(MINUTES), "--rate", "5"]
    command += ["--factor", "3", "--callers", "110", "--folder", str(folder), *LET_PASS]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=590
    )
    result = folder / "soak.json"
    found = json.loads(result.read_text()) if result.exists() else {}
    return done.returncode, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}", found


def test_nothing_is_lost_memory_is_flat_and_latency_is_back(
    soaked: tuple[int, str, dict[str, Any]],
) -> None:
    code, printed, found = soaked
    assert found.get("faults") == [], printed
    assert code == 0, printed


def test_every_acknowledged_message_is_in_one_class(
    soaked: tuple[int, str, dict[str, Any]],
) -> None:
    messages = soaked[2]["messages"]
    classes = ("delivered", "outstanding", "dead", "cancelled")
    assert messages["sent"] == sum(messages[name] for name in classes)
    assert messages["lost"] == 0
    assert messages["delivered"] > 100


def test_the_overload_was_refused_with_a_time_to_come_again_and_taken_all_the_same(
    soaked: tuple[int, str, dict[str, Any]],
) -> None:
    answers = {(a["status"], a["retry_after"]): a["count"] for a in soaked[2]["answers"]}
    assert answers[429, True] > 0
    assert (429, False) not in answers
    assert answers[202, False] > 0
    assert soaked[2]["offered"] > 1


def test_the_memory_of_functions_consumers_and_the_gateway_was_watched(
    soaked: tuple[int, str, dict[str, Any]],
) -> None:
    told = {one["name"].partition(" ")[0] for one in soaked[2]["memory"] if one["growth"]}
    assert {"function", "consumer", "receiver", "reader", "producer", "gateway"} <= told
