"""Fixtures of the local application's tests: a workspace with engines, queues in moto's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from moto.sqs import models

from local.engines import moto_queues
from local.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def engine_root(tmp_path: Path) -> Workspace:
    """A workspace of its own, with the engines of the repository's."""
    workspace = Workspace(root=tmp_path / "local")
    workspace.folder(workspace.root)
    workspace.engines.symlink_to(Workspace().engines)
    return workspace


@pytest.fixture(scope="module")
def local_queues() -> Iterator[None]:
    """Queues of the local application in place of moto's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "Queue", models.Queue)
        for name in ("receive_message", "change_message_visibility"):
            patch.setattr(models.SQSBackend, name, getattr(models.SQSBackend, name))
        moto_queues.install()
        yield
