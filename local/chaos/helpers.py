"""A chaos run's own processes: started, killed, frozen and started again, each in lives."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from local.processes import ManagedProcess

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_CRASH: Final = b"Traceback (most recent call last)"


@dataclass(kw_only=True)
class Helper:
    """A process that can be killed and started again.

    Attributes:
        name: what it is called in lines that people read.
        kind: `producer`, `consumer`, `receiver` or `reader`.
        command: gives the command of a life, counted from 1.
        environment: of the process.
        log_file: takes what it prints.
        folder: in which it starts.
    """

    name: str
    kind: str
    command: Callable[[int], Sequence[str]]
    environment: Mapping[str, str]
    log_file: Path
    folder: Path
    life: int = 0
    _process: ManagedProcess | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def crashed(self) -> bool:
        """Whether an error of its own ended it at least once: a kill leaves no word."""
        return self.log_file.exists() and _CRASH in self.log_file.read_bytes()

    def start(self) -> None:
        """Begin its next life, unless it lives."""
        with self._lock:
            if self.pid is not None:
                return
            self.life += 1
            self._process = ManagedProcess(
                name=self.name,
                command=self.command(self.life),
                log_file=self.log_file,
                environment=self.environment,
                folder=self.folder,
            )
            self._process.start()

    def kill(self) -> bool:
        """SIGKILL it; return whether it lived."""
        with self._lock:
            lived = self.pid is not None
            if self._process:
                self._process.kill()
            return lived

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, where it lives."""
        if self._process:
            self._process.signal(number)

    def finish(self, *, seconds: float) -> bool:
        """Ask it to end, and wait; kill it then, and return whether asking was enough."""
        with self._lock:
            if self._process is None or self.pid is None:
                return True
            return self._process.stop(seconds=seconds)


def children() -> list[str]:
    """Return the processes that this one has started and that still run, as `ps` shows them."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True
    )
    found = []
    for line in listed.stdout.splitlines():
        pid, parent, state, command = line.split(None, 3)
        if parent == str(os.getpid()) and not state.startswith("Z") and "ps -A" not in command:
            found.append(f"{pid} {command}")
    return found
