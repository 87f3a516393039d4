"""The files and ports of the local application."""

from __future__ import annotations

import os
import random
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK = "127.0.0.1"
_OWN_PORTS = range(20_000, 32_768)
_TRIES = 100
REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER_VARIABLE = "FAIRBOX_LOCAL_FOLDER"


class LocalError(Exception):
    """The local application cannot continue; the message is one line that says what to do."""


def _root() -> Path:
    moved = os.environ.get(FOLDER_VARIABLE)
    return Path(moved).resolve() if moved else REPOSITORY / ".local"


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The folders below one root: `.local` of the repository, or `FAIRBOX_LOCAL_FOLDER`."""

    root: Path = field(default_factory=_root)

    @property
    def engines(self) -> Path:
        """Installed engines, one folder each."""
        return self.root / "engines"

    @property
    def payloads(self) -> Path:
        """The webhook examples."""
        return self.root / "payloads"

    @property
    def log(self) -> Path:
        """One file for each engine and function."""
        return self.root / "log"

    @property
    def run(self) -> Path:
        """Process ids and the state of `up`."""
        return self.root / "run"

    @property
    def env_file(self) -> Path:
        """Shell exports for the SDK and the commands."""
        return self.root / "env"

    def folder(self, path: Path) -> Path:
        """Create the folder if necessary; return its path."""
        path.mkdir(parents=True, exist_ok=True)
        return path


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The ports of the local application; 0 means any free one."""

    api: int = 8080
    dynamodb: int = 8000
    services: int = 5000
    feeds: int = 8081

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Ports:
        """Read `FAIRBOX_LOCAL_{API,DYNAMODB,SERVICES,FEEDS}_PORT`.

        Raises:
            LocalError: a value is not a port number.
        """
        found = os.environ if environment is None else environment
        ports = cls()
        for name in ("api", "dynamodb", "services", "feeds"):
            key = f"FAIRBOX_LOCAL_{name.upper()}_PORT"
            text = found.get(key, "")
            if not text:
                continue
            if not text.isdigit() or int(text) > 65535:
                raise LocalError(f"{key} is {text!r}: expected a port number from 0 to 65535")
            ports = replace(ports, **{name: int(text)})
        return ports

    @classmethod
    def free(cls) -> Ports:
        """Use any free ports, for several applications in parallel (tests, benchmarks)."""
        return cls(api=0, dynamodb=0, services=0, feeds=0)


def choose_port(wanted: int, purpose: str, rng: random.Random | None = None) -> int:
    """Return the wanted port, or a free one for 0.

    A free one lies below those that systems give to outgoing connections: else any connection
    could take it before a server listens there.

    Raises:
        LocalError: the port is taken; the message names the variable that changes it.
    """
    if wanted:
        if _is_free(wanted):
            return wanted
        raise LocalError(
            f"port {wanted} for {purpose} is taken: stop what listens there, or set "
            f"FAIRBOX_LOCAL_{purpose.upper()}_PORT to another port"
        )

    choices = (rng or random.SystemRandom()).sample(_OWN_PORTS, _TRIES)
    free = next((port for port in choices if _is_free(port)), None)
    if free is None:
        raise LocalError(f"no free port for {purpose}: {_TRIES} of {_OWN_PORTS} are taken")
    return free


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
