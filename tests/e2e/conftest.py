"""The application that most end-to-end tests share, and how they get one of their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from local.application import LocalApplication
from local.cloudformation.synthesis import synthesise
from local.triggers.attach import TriggerSettings
from local.workspace import Workspace
from tests.e2e.sink import Sink
from tests.e2e.stage import Stage, hard
from tests.e2e.storm import Flow, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
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
def storm(
    assembly: Path, workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[Flow]]:
    """The storm's flow, which runs beside the tests until one asks for its end."""
    flow, folder = Flow(), tmp_path_factory.mktemp("durable")

    def raging() -> Flow:
        run(assembly, workspace, folder, flow)
        return flow

    with flow.stack, ThreadPoolExecutor(1) as pool:
        future = pool.submit(raging)
        yield future
        flow.ending.set()


@pytest.fixture(scope="package")
def sink() -> Iterator[Sink]:
    sink = Sink()
    sink.start()
    yield sink
    sink.stop()


@pytest.fixture(scope="package")
def stage(
    request: pytest.FixtureRequest, assembly: Path, workspace: Workspace, sink: Sink
) -> Iterator[Stage]:
    """The application that tests share; each makes topics and queues of its own.

    The storm begins with it, where any test of the storm is to run.
    """
    if any("storm" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("storm")
    settings = TriggerSettings(speed=FASTER_SCHEDULES)
    with LocalApplication(assembly, workspace=workspace, attach=hard(settings)) as app:
        yield Stage(app, sink, workspace.log)
