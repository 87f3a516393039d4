"""A bounded chaos run: nothing is lost, what is lost is found, and nothing is left running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from local.accounting import journal
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


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """The evidence of the run, to be changed."""
    for part in ("journals", "state"):
        shutil.copytree(folder / part, tmp_path / part)
    return tmp_path


def told(folder: Path) -> dict[str, Any]:
    """Return the account that the run wrote down."""
    return dict(json.loads((folder / "account.json").read_text()))


def accounted(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("account", str(folder)), cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def without(path: Path, line: dict[str, Any]) -> None:
    """Take one line out of a journal."""
    kept = [one for one in journal.read(path) if one != line]
    path.unlink()
    written = journal.Journal(path)
    for one in kept:
        written.write(**one)
    written.close()


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


def test_an_arrival_that_is_taken_away_is_a_loss_with_a_name(copied: Path) -> None:
    arrivals = copied / "journals" / "arrivals"
    lines = [line for line in journal.read_all(arrivals) if "n" in line]
    times = Counter((line["topic"], line["taker"], line["n"]) for line in lines)
    acked = {
        line["n"]
        for line in journal.read_all(copied / "journals" / "producers")
        if line["t"] == "ok"
    }
    dead = {line["id"] for line in journal.read(copied / "state" / "dead.jsonl")}
    path, line = next(
        (path, line)
        for path in arrivals.glob("*.jsonl")
        for line in journal.read(path)
        if line.get("n") in acked
        and times[line["topic"], line["taker"], line["n"]] == 1
        and (line.get("id") or line["ref"].split("/")[3]) not in dead
        and line["topic"] != "chaos.copies"
    )
    without(path, line)
    done = accounted(copied)
    assert done.returncode == 1
    assert f"lost {line['topic']} {line['taker']} {line['n']}" in done.stdout


def test_a_row_that_is_taken_out_of_the_ledger_is_missed_by_name(copied: Path) -> None:
    seen = {
        line["ref"].split("/")[3]: line["n"]
        for line in journal.read_all(copied / "journals" / "arrivals")
        if line.get("taker") == "queue"
    }
    path = copied / "state" / "ledger.jsonl"
    line = next(one for one in journal.read(path) if one["taker"] == "queue" and one["id"] in seen)
    without(path, line)
    done = accounted(copied)
    assert done.returncode == 1
    assert f"not in the ledger {line['topic']} queue {seen[line['id']]}" in done.stdout


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
