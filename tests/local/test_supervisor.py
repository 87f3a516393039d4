"""The background process: its state, leftovers of a killed one, and synthesis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from local.__main__ import main
from local.cloudformation.synthesis import synthesise
from local.supervisor import Supervisor
from local.workspace import LocalError, Workspace

if TYPE_CHECKING:
    from pathlib import Path

APP = """
import pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
folder.mkdir(parents=True, exist_ok=True)
with (folder / "manifest.json").open("a") as manifest:
    manifest.write(" ".join(sys.argv[1:3]) + "\\n")
"""


def write_state(workspace: Workspace, pid: int) -> None:
    workspace.folder(workspace.run)
    state = {"pid": 1, "ready": True, "engines": {"dynamodb": pid}, "addresses": {}}
    (workspace.run / "up.json").write_text(json.dumps(state), encoding="utf-8")
    (workspace.run / "lock").touch()


def sleeper(*words: str) -> subprocess.Popen[bytes]:
    code = "import time; print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, process_group=0
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


def test_a_state_without_its_supervisor_is_no_state(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    write_state(workspace, os.getpid())
    assert Supervisor(workspace).state() is None


def test_engines_that_a_killed_supervisor_left_are_ended(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    engine = sleeper("local.engines.moto_server")
    try:
        write_state(workspace, engine.pid)
        assert Supervisor(workspace).stop() is False
        assert engine.wait(60) == -9
        assert not (workspace.run / "up.json").exists()
    finally:
        end(engine)


def test_another_program_that_got_an_engines_process_id_is_left_alone(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    other = sleeper("something else")
    try:
        write_state(workspace, other.pid)
        Supervisor(workspace).stop()
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.2)
    finally:
        end(other)


def test_a_second_supervisor_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    first, second = Supervisor(workspace), Supervisor(workspace)
    with (
        first._exclusively(),
        pytest.raises(LocalError, match="already"),
        second._exclusively(),
    ):
        pass


def test_status_of_nothing_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("local.__main__.Workspace", lambda: Workspace(root=tmp_path))
    with pytest.raises(SystemExit, match="nothing runs"):
        main(["status"])


def test_the_application_is_synthesised_when_a_source_is_newer(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    (repository / "functions" / "relay").mkdir(parents=True)
    (repository / "app.py").write_text(APP, encoding="utf-8")
    source = repository / "functions" / "relay" / "handler.py"
    source.touch()
    workspace = Workspace(root=tmp_path / "local")
    folder = synthesise(workspace, repository=repository)
    synthesise(workspace, repository=repository)
    manifest = folder / "manifest.json"
    assert manifest.read_text(encoding="utf-8") == "-c profile=local\n"
    later = time.time() + 5
    os.utime(source, (later, later))
    synthesise(workspace, repository=repository)
    assert manifest.read_text(encoding="utf-8") == "-c profile=local\n" * 2


def test_a_failing_synthesis_gives_its_last_line(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "app.py").write_text("raise SystemExit('retention is no number')", "utf-8")
    with pytest.raises(LocalError, match="retention is no number"):
        synthesise(Workspace(root=tmp_path / "local"), repository=repository)
