"""Installation of the Iceberg runtime for local Spark jobs, locked, so that they start offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from local.engines import installation

if TYPE_CHECKING:
    from local.workspace import Workspace

NAME = "iceberg"
COORDINATE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
LOCK_FILE = Path(__file__).with_name(f"{NAME}.lock")


def install(workspace: Workspace) -> bool:
    """Fetch the locked jar unless it is installed; return whether anything was done.

    Raises:
        LocalError: it cannot be fetched, or is not the locked one.
    """
    return installation.install(workspace, lock_file=LOCK_FILE, name=NAME)


def jar(workspace: Workspace) -> Path:
    """Return the path of the installed jar."""
    (file,) = installation.locked_files(LOCK_FILE)
    return installation.folder_of(workspace, LOCK_FILE, NAME) / file.name
