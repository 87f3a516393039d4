"""The engines: Amazon's DynamoDB Local, and moto's server for the other services."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local.engines import installation
from local.processes.managed import ManagedProcess, accepts_connections
from local.workspace import LOOPBACK, REPOSITORY, LocalError, Workspace, choose_port

if TYPE_CHECKING:
    from pathlib import Path

ENDPOINT_VARIABLE = "FAIRBOX_LOCAL_DYNAMODB_ENDPOINT"
MAIN_CLASS = "software.amazon.dynamodb.services.local.main.ServerRunner"
JAVA_VERSIONS = (17, 21)
START_SECONDS = 120.0
STOP_SECONDS = 30.0


@dataclass(frozen=True)
class GivenEngine:
    """An engine that runs outside the local application."""

    endpoint: str
    pid: int | None = None

    def stop(self) -> None:
        """Leave it running."""


def find_java() -> str:
    """Return the path of a Java 17 or newer.

    Raises:
        LocalError: there is none; the message says what to install.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java"] if home else []
    candidates.append("java")
    for candidate in candidates:
        path = shutil.which(candidate)
        if path and _java_version(path) >= JAVA_VERSIONS[0]:
            return path
    raise LocalError(
        "Java 17 or 21 is missing (DynamoDB Local needs it): apt-get install "
        "openjdk-17-jre-headless, or set JAVA_HOME"
    )


def _java_version(path: str) -> int:
    said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return int(found.group(1)) if found else 0


@dataclass(kw_only=True)
class _Server:
    """A server process on one port of this machine."""

    port: int = 0
    workspace: Workspace = field(default_factory=Workspace)
    _process: ManagedProcess | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        """Base URL."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process else None

    def suspend(self) -> None:
        """Stop the process where it is: it answers nobody, and loses nothing."""
        if self._process:
            self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process continue."""
        if self._process:
            self._process.signal(signal.SIGCONT)


@dataclass(kw_only=True)
class DynamoDbLocal(_Server):
    """One DynamoDB Local. It listens on all interfaces, because it has no option for an address.

    In memory it starts empty; with a folder (`durable`) its tables survive restarts and kills.
    `restart` uses the same port again.
    """

    durable: Path | None = None
    heap_mb: int = 1024

    def start(self) -> DynamoDbLocal:
        """Start it and wait until it answers.

        Raises:
            LocalError: Java or the installation is missing, the port is taken, or it fails.
        """
        java = find_java()
        jars = installation.installed(self.workspace)
        self.port = choose_port(self.port, "dynamodb")
        self._process = ManagedProcess(
            name="DynamoDB Local",
            command=[
                java,
                f"-Xmx{self.heap_mb}m",
                "-XX:+UseSerialGC",
                f"-Djava.library.path={jars}",
                *("-cp", f"{jars}/*"),
                MAIN_CLASS,
                *("-sharedDb", "-disableTelemetry", "-port", str(self.port)),
                *self._storage(),
            ],
            log_file=self.workspace.log / f"dynamodb-{self.port}.log",
            folder=jars,
        )
        self._process.start()
        self._process.wait_until(lambda: _answers(self.endpoint), seconds=START_SECONDS)
        return self

    def _storage(self) -> list[str]:
        if self.durable is None:
            return ["-inMemory"]
        return ["-dbPath", str(self.workspace.folder(self.durable.resolve()))]

    def stop(self) -> None:
        """Stop it; with a folder, all acknowledged writes are kept."""
        if self._process:
            self._process.stop(seconds=STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL it; transactions acknowledged in the last 100 ms are lost."""
        if self._process:
            self._process.kill()

    def restart(self) -> None:
        """Start again on the same port, with the same folder."""
        self.stop()
        self.start()


@dataclass(kw_only=True)
class Services(_Server):
    """Moto's server: SQS, SNS, EventBridge, S3 and CloudWatch on one port."""

    def start(self) -> Services:
        """Start it and wait until it answers.

        Raises:
            LocalError: the port is taken, or it fails.
        """
        self.port = choose_port(self.port, "services")
        self._process = ManagedProcess(
            name="the services (moto)",
            command=[sys.executable, "-m", "local.engines.moto_server", "--port", str(self.port)],
            log_file=self.workspace.log / f"services-{self.port}.log",
            folder=REPOSITORY,
        )
        self._process.start()
        self._process.wait_until(lambda: accepts_connections(self.port), seconds=START_SECONDS)
        return self

    def stop(self) -> None:
        """Stop it; its contents are lost."""
        if self._process:
            self._process.stop()


def _answers(endpoint: str) -> bool:
    """Whether a DynamoDB answers: it refuses an unsigned request with status 400."""
    try:
        urllib.request.urlopen(endpoint, timeout=2.0).close()  # noqa: S310 - loopback or given
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def start_dynamodb(
    *, port: int, durable: Path | None, workspace: Workspace, given: str | None = None
) -> DynamoDbLocal | GivenEngine:
    """Start DynamoDB Local, or use the engine at `given` in its place.

    Raises:
        LocalError: nothing answers at the given endpoint, or the engine does not start.
    """
    if given:
        if not _answers(given):
            raise LocalError(f"nothing answers at {given}: start it, or unset {ENDPOINT_VARIABLE}")
        return GivenEngine(given.rstrip("/"))
    return DynamoDbLocal(port=port, durable=durable, workspace=workspace).start()
