"""A bounded chaos run: nothing is lost, what is lost is found, and nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from local.workspace import FOLDER_VARIABLE, REPOSITORY, Workspace
from tests.e2e.stage import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# tests/local accounts for told runs; what harm does to the functions is in the simulation
pytestmark = [pytest.mark.engine, pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.extended]

FEWEST = 60
RUN = ["--minutes", "0.25", "--rate", "10", "--pause", "1", "--seed", "11", "--fewest", str(FEWEST)]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "local.chaos", *arguments]


def environment(workspace: Workspace) -> dict[str, str]:
    return {**os.environ, FOLDER_VARIABLE: str(workspace.root)}


def running(folder: Path) -> list[str]:
    """Return the command lines that name a folder."""
    listed = (" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
    return [line for line in listed if str(folder) in line]


@pytest.fixture(scope="module")
def folder(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of a chaos run."""
    folder = tmp_path_factory.mktemp("chaos") / "run"
    done = subprocess.run(
        command("run", *RUN, "--folder", str(folder)),
        cwd=REPOSITORY,
        env=environment(workspace),
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def told(folder: Path) -> dict[str, Any]:
    """Return the account that the run wrote down."""
    return dict(json.loads((folder / "account.json").read_text()))


def test_each_message_of_a_chaos_run_is_in_one_class(folder: Path) -> None:
    made = told(folder)
    assert made["findings"] == []
    total = made["total"]
    assert total["sent"] >= FEWEST
    classes = ("delivered", "outstanding", "dead", "cancelled")
    assert total["sent"] == sum(total[name] for name in classes)
    assert (total["outstanding"], total["lost"], total["out_of_order"]) == (0, 0, 0)
    assert made["batches"]["announced"] == made["batches"]["filled"]


def test_the_run_did_harm(folder: Path) -> None:
    harm = told(folder)["harm"]
    assert harm["engine restarted"] == 1
    assert sum(harm.values()) >= 3


def test_nothing_of_a_run_is_left_running(folder: Path) -> None:
    assert running(folder) == []


@pytest.fixture
def begun(workspace: Workspace, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run whose application, consumers and producers run."""
    process = subprocess.Popen(
        command("run", *RUN, "--folder", str(tmp_path / "run")),
        cwd=REPOSITORY,
        env=environment(workspace),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "waiting for the first" in line:
            break
    yield process
    process.kill()
    process.wait()


def test_an_interrupt_ends_a_run_and_all_that_it_started(
    begun: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert len(running(tmp_path / "run")) > 1
    begun.send_signal(signal.SIGINT)
    _, errors = begun.communicate(timeout=PATIENCE)
    assert begun.returncode == 130, errors
    assert "everything that it started has ended" in errors
    assert running(tmp_path / "run") == []
