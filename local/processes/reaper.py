"""A program that outlives a process and ends the processes that it started and left behind."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading

import psutil

from local.workspace import REPOSITORY


class Reaper:
    """The process groups that must end with this process.

    A separate process holds the list and reads a pipe of this one, which the kernel closes however
    this process ends, by `kill -9` too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the reaper; None until the first `watch`."""
        return self._process.pid if self._process else None

    def watch(self, group: int) -> None:
        """Register a process group, by its leader, to end with this process."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Remove a group that has ended."""
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._process is None:
                self._process = _start()
                atexit.register(self._end)
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # somebody killed it
                    self._process.stdin.write(line.encode())

    def _end(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "local.processes.reaper"],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=REPOSITORY,
        process_group=0,
    )


REAPER = Reaper()


def main() -> None:
    """Read the list until its owner has ended; then end the groups on it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched: dict[int, psutil.Process] = {}
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "-":
            watched.pop(group, None)
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            watched[group] = psutil.Process(group)
    for group, leader in watched.items():
        if leader.is_running():  # and not another process with that number
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
