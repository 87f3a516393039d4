"""Synthesis of the application for this machine, repeated when its sources have changed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from fairbox_cdk.assets import locked

from local.workspace import REPOSITORY, LocalError, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SOURCES = ("app.py", "cdk.json", "requirements.lock", "stacks", "functions", "layers")
PROFILE = {"profile": "local"}


def synthesise(
    workspace: Workspace,
    *,
    repository: Path = REPOSITORY,
    context: Mapping[str, str] = PROFILE,
    name: str = "cdk.out",
) -> Path:
    """Synthesise if a source has changed; return the folder of the assembly.

    Args:
        workspace: where the folder is.
        repository: the sources.
        context: settings in place of those of `cdk.json`; each set has a folder of its own.
        name: of that folder.

    Raises:
        LocalError: the synthesis fails; the message is its last line.
    """
    folder = workspace.root / name
    with locked(workspace.folder(workspace.root) / "cdk.lock"):
        return _synthesise(folder, repository, context)


def _synthesise(folder: Path, repository: Path, context: Mapping[str, str]) -> Path:
    manifest = folder / "manifest.json"
    if manifest.is_file() and manifest.stat().st_mtime >= _newest(repository):
        return folder
    print("fairbox: synthesising the application", file=sys.stderr)
    settings = [text for pair in context.items() for text in ("-c", "=".join(pair))]
    done = subprocess.run(
        [sys.executable, "app.py", *settings, "--output", str(folder.resolve())],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no word"]
        raise LocalError(f"the application cannot be synthesised: {said[-1]}")
    if not manifest.is_file():
        raise LocalError(f"app.py wrote no assembly into {folder}")
    manifest.touch()
    return folder


def _newest(repository: Path) -> float:
    return max((path.stat().st_mtime for path in _sources(repository)), default=0.0)


def _sources(repository: Path) -> Iterator[Path]:
    for name in SOURCES:
        path = repository / name
        if path.is_file():
            yield path
        for folder, _, files in os.walk(path):
            if "__pycache__" in folder or ".egg-info" in folder:
                continue
            yield from (path.joinpath(folder, file) for file in files)
