"""The reaper ends the children of a process, however it ends, and no other process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from local.processes.managed import ManagedProcess
from local.workspace import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 20.0
OWNER = """
import signal, sys
from pathlib import Path
from local.processes.managed import ManagedProcess

sleeper = [sys.executable, "-c", "import time; time.sleep(120)"]
started = [ManagedProcess(name="s", command=sleeper, log_file=Path(sys.argv[1])) for _ in "ab"]
for one in started:
    one.start()
first = started[0].pid
if "stopped" in sys.argv:
    started[0].stop()
if "frozen" in sys.argv:
    started[0].signal(signal.SIGSTOP)
print(first, started[1].pid, flush=True)
if "returns" not in sys.argv:
    sys.stdin.read()
"""


class Owner:
    """A program that starts two sleepers and waits, in a process group of its own."""

    def __init__(self, log: Path, *how: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(log), *how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=REPOSITORY,
            process_group=0,
            text=True,
        )
        assert self.process.stdout is not None
        self.sleepers = [int(pid) for pid in self.process.stdout.readline().split()]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        for pid in filter(psutil.pid_exists, self.sleepers):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def owners() -> Iterator[list[Owner]]:
    made: list[Owner] = []
    yield made
    for owner in made:
        owner.end()


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + SECONDS
    while left := [pid for pid in pids if runs(pid)]:
        assert time.monotonic() < deadline, f"{left} still run"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("how", [(), ("frozen",)])
def test_what_was_started_ends_with_a_process_that_a_signal_ends(
    number: signal.Signals, how: tuple[str, ...], tmp_path: Path, owners: list[Owner]
) -> None:
    owners.append(owner := Owner(tmp_path / "log", *how))
    assert all(map(runs, owner.sleepers))
    os.killpg(owner.process.pid, number)
    wait_until_gone([owner.process.pid, *owner.sleepers])


def test_what_was_started_ends_with_a_process_that_returns(
    tmp_path: Path, owners: list[Owner]
) -> None:
    owners.append(owner := Owner(tmp_path / "log", "returns"))
    assert owner.process.wait(SECONDS) == 0
    wait_until_gone(owner.sleepers)


def test_what_was_stopped_is_gone_and_the_other_goes_with_its_owner(
    tmp_path: Path, owners: list[Owner]
) -> None:
    owners.append(owner := Owner(tmp_path / "log", "stopped"))
    assert [runs(pid) for pid in owner.sleepers] == [False, True]
    owner.process.kill()
    wait_until_gone(owner.sleepers)


def test_what_has_ended_and_what_was_forgotten_is_left_alone(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""], process_group=0)
    ended.wait()
    reaper = subprocess.Popen(
        [sys.executable, "-m", "local.processes.reaper"],
        stdin=subprocess.PIPE,
        cwd=REPOSITORY,
        text=True,
    )
    bystander = ManagedProcess(
        name="b",
        command=[sys.executable, "-c", "import time; time.sleep(120)"],
        log_file=tmp_path / "log",
    )
    bystander.start()
    try:
        reaper.communicate(f"+{ended.pid}\n+{bystander.pid}\n-{bystander.pid}\n", timeout=SECONDS)
        assert reaper.returncode == 0
        assert bystander.pid is not None
    finally:
        bystander.stop()
