"""Processes of a chaos run, which can be killed, frozen and started again."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import psutil

from local.processes.managed import ManagedProcess
from local.processes.reaper import REAPER
from local.workspace import LocalError

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

INTERRUPTED: Final = 130
_CRASH: Final = b"Traceback (most recent call last)"


@dataclass(kw_only=True)
class LoadProcess:
    """A process that can be killed and started again.

    Attributes:
        name: its name in the output.
        kind: `producer`, `consumer`, `receiver` or `reader`.
        command: returns the command of a life, counted from 1.
        environment: of the process.
        log_file: for its output.
        folder: its working folder.
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
        """Whether an exception ended it at least once; a kill leaves no traceback."""
        return self.log_file.exists() and _CRASH in self.log_file.read_bytes()

    def start(self) -> None:
        """Start its next life unless it is running."""
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
        """SIGKILL it; return whether it was running."""
        with self._lock:
            lived = self.pid is not None
            if self._process:
                self._process.kill()
            return lived

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if it is running."""
        if self._process:
            self._process.signal(number)

    def finish(self, *, seconds: float) -> bool:
        """Send SIGTERM and wait, then kill it; return whether SIGTERM was enough."""
        with self._lock:
            if self._process is None or self.pid is None:
                return True
            return self._process.stop(seconds=seconds)


def children() -> list[str]:
    """Return the running child processes of this one."""
    return [
        f"{child.pid} {' '.join(child.cmdline())}"
        for child in psutil.Process().children()
        if child.pid != REAPER.pid and child.status() != psutil.STATUS_ZOMBIE
    ]


@contextmanager
def nothing_left() -> Iterator[None]:
    """End the program with one line if a run fails, is interrupted, or leaves a process behind."""
    try:
        yield
    except KeyboardInterrupt:
        print("fairbox: interrupted; everything that it started has ended", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except LocalError as error:
        sys.exit(f"fairbox: {error}")
    finally:
        if left := children():
            sys.exit(f"fairbox: still running: {'; '.join(left)}")
