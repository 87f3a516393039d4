"""The background process of `up`, which serves until it is stopped; its state: `.local/run`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import psutil

from local.application import LocalApplication, Options
from local.engines.servers import ENDPOINT_VARIABLE
from local.webhooks import SECRET_VARIABLE
from local.workspace import REPOSITORY, LocalError, Ports, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READY_SECONDS = 180.0
STOP_SECONDS = 60.0
ENGINE_MARKS = ("ServerRunner", "local.engines.moto_server")


@dataclass(frozen=True, kw_only=True)
class State:
    """State of the running application: process ids of supervisor and engines, and addresses."""

    pid: int
    ready: bool = False
    engines: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)


class Supervisor:
    """Starts, finds and ends the background process of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._state_file = workspace.run / "up.json"
        self._lock_file = workspace.run / "lock"
        self.log_file = workspace.log / "application.log"

    def state(self) -> State | None:
        """Return the state while the supervisor lives: it holds the lock."""
        return self._read() if self._locked() else None

    def _read(self) -> State | None:
        try:
            return State(**json.loads(self._state_file.read_text("utf-8")))
        except (FileNotFoundError, ValueError):
            return None

    def _locked(self) -> bool:
        if not self._lock_file.is_file():
            return False
        with self._lock_file.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def start(self, assembly: Path, *, durable: bool) -> State:
        """Start the background process and wait until everything is ready.

        Raises:
            LocalError: it could not start; the message is that of the process.
        """
        self._end_leftovers()
        self._workspace.folder(self._workspace.run)
        self._workspace.folder(self._workspace.log)
        command = [sys.executable, "-m", "local", "serve", str(assembly.resolve())]
        with self.log_file.open("wb") as log:
            process = subprocess.Popen(
                [*command, "--durable"] if durable else command,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            state = self.state()
            if state is not None and state.pid == process.pid and state.ready:
                return state
            time.sleep(0.1)
        if process.poll() is None:
            process.terminate()
            raise LocalError(f"not ready after {READY_SECONDS:g} s: see {self.log_file}")
        said = self.log_file.read_text("utf-8").strip().splitlines() or ["it ended"]
        raise LocalError(said[-1].removeprefix("fairbox: "))

    def stop(self) -> bool:
        """End the background process and wait; False: nothing ran.

        Processes that a killed supervisor left running are ended as well.
        """
        state = self.state()
        if state is None:
            self._end_leftovers()
            return False
        os.kill(state.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self._locked() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._locked():
            os.kill(state.pid, signal.SIGKILL)
            self._end_leftovers()
        self._state_file.unlink(missing_ok=True)
        return True

    def _end_leftovers(self) -> None:
        """End engines whose supervisor was killed, by the ids in its state file."""
        state = self._read()
        for pid in state.engines.values() if state else ():
            command = _command_of(pid)
            if any(mark in command for mark in ENGINE_MARKS):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        self._state_file.unlink(missing_ok=True)

    def serve(self, assembly: Path, *, durable: bool) -> None:
        """Run the application until SIGTERM or SIGINT, as the background process.

        Raises:
            LocalError: another process runs, or the application does not start.
        """
        ending = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ending.set())
        options = Options(
            ports=Ports.from_environment(),
            durable=durable,
            dynamodb_endpoint=os.environ.get(ENDPOINT_VARIABLE) or None,
            workspace=self._workspace,
            webhook_keys=os.environ.get(SECRET_VARIABLE, ""),
        )
        with self._exclusively():
            self._write(State(pid=os.getpid()))
            with LocalApplication(assembly, options) as application:
                self._write_env(application.env)
                self._write(
                    State(
                        pid=os.getpid(),
                        ready=True,
                        engines=application.pids(),
                        addresses=addresses(application),
                    )
                )
                while not ending.wait(1.0):
                    pass  # a signal just before a wait is handled only after it
            self._state_file.unlink(missing_ok=True)

    def variables(self) -> dict[str, str]:
        """Return the variables of the running application, as `.local/env` exports them.

        Raises:
            LocalError: nothing runs.
        """
        state = self.state()
        if state is None or not state.ready:
            raise LocalError("nothing runs: make up")
        lines = self._workspace.env_file.read_text("utf-8").splitlines()
        pairs = (shlex.split(line)[1].partition("=") for line in lines)
        return {name: value for name, _, value in pairs}

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        self._workspace.folder(self._workspace.run)
        with self._lock_file.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LocalError("the local application runs already") from None
            yield

    def _write(self, state: State) -> None:
        partial = self._state_file.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(state), indent=2), encoding="utf-8")
        partial.rename(self._state_file)

    def _write_env(self, variables: dict[str, str]) -> None:
        lines = [f"export {key}={shlex.quote(value)}\n" for key, value in sorted(variables.items())]
        self._workspace.env_file.write_text("".join(lines), encoding="utf-8")


def addresses(application: LocalApplication) -> dict[str, str]:
    """Return the addresses by kind of service."""
    endpoints = application.endpoints
    feeds = {"Feeds": application.feeds_url} if application.feeds_url else {}
    return {
        "API": application.api_url,
        **feeds,
        "DynamoDB": endpoints.dynamodb,
        "SQS, SNS, EventBridge, S3, CloudWatch": endpoints.services,
        "Firehose": endpoints.firehose,
    }


def _command_of(pid: int) -> str:
    """Return a process's command line; empty: no such process."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:  # it has ended, or belongs to another user
        return ""
