"""The application that most end-to-end tests share, and how they get one of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local.application import LocalApplication
from local.cloudformation.synthesis import synthesise
from local.triggers.attach import TriggerSettings
from local.workspace import Workspace
from tests.e2e.sink import Sink
from tests.e2e.stage import Stage, hard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FASTER_SCHEDULES = 12.0  # a minute takes 5 s


@pytest.fixture(scope="session")
def assembly() -> Path:
    """The application as synthesised for this machine."""
    return synthesise(Workspace())


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory, assembly: Path) -> Workspace:
    """A folder of its own, with what is installed and synthesised already."""
    workspace = Workspace(root=tmp_path_factory.mktemp("e2e") / "local")
    workspace.folder(workspace.root)
    workspace.engines.symlink_to(Workspace().engines)
    workspace.payloads.symlink_to(Workspace().payloads)
    (workspace.root / "cdk.out").symlink_to(assembly)
    return workspace


@pytest.fixture(scope="package")
def sink() -> Iterator[Sink]:
    sink = Sink()
    sink.start()
    yield sink
    sink.stop()


@pytest.fixture(scope="package")
def stage(assembly: Path, workspace: Workspace, sink: Sink) -> Iterator[Stage]:
    """The application that tests share; each makes topics and queues of its own."""
    settings = TriggerSettings(speed=FASTER_SCHEDULES)
    with LocalApplication(assembly, workspace=workspace, attach=hard(settings)) as app:
        yield Stage(app, sink, workspace.log)
