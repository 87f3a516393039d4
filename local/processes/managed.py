"""Child processes with a log file each: started, polled until ready, stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local.processes.reaper import REAPER
from local.workspace import LOOPBACK, LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

POLL_SECONDS = 0.05


@dataclass(kw_only=True)
class ManagedProcess:
    """A process in its own group that ends with this process, however this process ends."""

    name: str
    command: Sequence[str]
    log_file: Path
    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if running and self._process else None

    def start(self) -> None:
        """Start it; standard output and error are appended to the log file."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if self.environment is None else dict(self.environment),
                cwd=self.folder,
                process_group=0,
            )
        REAPER.watch(self._process.pid)

    def wait_until(self, ready: Callable[[], bool], *, seconds: float) -> None:
        """Poll until it is ready.

        If this raises, by an interrupt too, the process has been stopped.

        Raises:
            LocalError: the process ended or was not ready in time; the message names the log file.
        """
        deadline = time.monotonic() + seconds
        try:
            while not ready():
                self._check(deadline, seconds)
                time.sleep(POLL_SECONDS)
        except BaseException:
            self.stop()
            raise

    def _check(self, deadline: float, seconds: float) -> None:
        if self._process is None or self._process.poll() is not None:
            raise LocalError(f"{self.name} ended while starting: see {self.log_file}")
        if time.monotonic() > deadline:
            raise LocalError(f"{self.name} not ready after {seconds:g} s: see {self.log_file}")

    def stop(self, *, seconds: float = 5.0) -> bool:
        """Send SIGTERM, then kill it after the time given; return whether SIGTERM was enough."""
        if self._process is None:
            return True
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        REAPER.forget(self._process.pid)
        return True

    def kill(self) -> None:
        """SIGKILL the group, as a crash would, and wait until it has ended."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            REAPER.forget(self._process.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group unless it has ended."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def accepts_connections(port: int) -> bool:
    """Whether something listens on the loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0
