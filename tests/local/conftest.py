"""A workspace for each test that has the installed engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def engine_root(tmp_path: Path) -> Workspace:
    """A workspace of its own, with the engines of the repository's."""
    workspace = Workspace(root=tmp_path / "local")
    workspace.folder(workspace.root)
    workspace.engines.symlink_to(Workspace().engines)
    return workspace
