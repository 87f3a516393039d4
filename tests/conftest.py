"""Fixtures for all tests: one DynamoDB Local for each session that asks for it."""

from __future__ import annotations

import shlex
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from local.engines import installation
from local.engines.servers import DynamoDbLocal
from local.workspace import Workspace
from tests.support.iam.plugin import IamSimulation
from tests.support.night import is_nightly

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xdist.remote import Producer


# machines differ in speed, and no run differs from another
settings.register_profile(
    "fairbox",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fairbox")
settings.register_profile("by day", max_examples=50)  # the night draws 100


BY_DAY = "not extended"
"""The expression by which `make test` chooses its tests."""
GROUPS = ("tests/e2e/", "tests/pipeline/", "tests/stacks/")
"""Folders whose tests share what is dear to start; a worker takes each whole."""
LONG = (*GROUPS, "tests/simulation/", "tests/batches/", "tests/local/", "tests/contract/")
"""Folders to begin with, so that what is left for the end is short and keeps every worker busy."""
OWN = tuple(f"tests/e2e/test_{name}.py" for name in ("chaos", "commands"))
"""Files that start applications of their own, to begin with: an idle one beside them takes a third
of a core."""
SHARED = tuple(f"tests/e2e/test_{name}.py" for name in ("batches", "cli", "circuits"))
"""Files to go on with."""


class ByFolder(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives a worker a folder of `GROUPS` as a whole, else a file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in GROUPS if nodeid.startswith(folder)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFolder:
    """Distribute tests so that no engine is started twice without need."""
    return ByFolder(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Draw fewer examples by day; hold functions to their roles; let children be interrupted."""
    if config.option.markexpr == BY_DAY:
        settings.load_profile("by day")
    # a shell starts its background jobs with interrupts ignored, and their children inherit that
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(IamSimulation(config), "iam")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the command that runs again what failed."""
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    tests = dict.fromkeys(shlex.quote(report.nodeid) for report in failed)
    if tests:
        terminalreporter.write_line(f"again: .venv/bin/pytest {' '.join(tests)}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file of the night by day: some import what only the night's set-up installs."""
    by_day = config.option.markexpr == BY_DAY
    name = collection_path.relative_to(config.rootpath).as_posix()
    return True if by_day and is_nightly(name) else None


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the night; begin with the long folders and applications of their own."""
    for item in items:
        if is_nightly(item.nodeid):
            item.add_marker(pytest.mark.extended)
        if item.get_closest_marker("extended"):
            item.add_marker(pytest.mark.timeout(1800))  # as many as the night needs

    places = (*OWN, *SHARED, *LONG)

    def place(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((n for n, place in enumerate(places) if place in path), len(places))

    items.sort(key=place)


@pytest.fixture(scope="session")
def dynamodb_endpoint() -> Iterator[str]:
    """The URL of a fresh DynamoDB Local, in memory; the test fails where there can be none."""
    workspace = Workspace()
    installation.install(workspace)
    engine = DynamoDbLocal(workspace=workspace, heap_mb=512).start()
    try:
        yield engine.endpoint
    finally:
        engine.stop()


@pytest.fixture(scope="session")
def dynamodb_local_endpoint(dynamodb_endpoint: str) -> str:
    """The same by another name."""
    return dynamodb_endpoint
