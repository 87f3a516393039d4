"""Fixtures for all tests: one DynamoDB Local for each session that asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from local import dynamodb_local
from local.engines import DynamoDbLocal
from local.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator


# machines differ in speed, and no test may depend on it
settings.register_profile("fairbox", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fairbox")


GROUPS = {"tests/e2e/": "application", "tests/pipeline/": "spark", "tests/stacks/": "stacks"}
"""Folders whose tests share what is dear to start, the longest first; a worker takes each whole."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a group on one worker, and begin with the longest groups."""
    folders = list(GROUPS)

    def place(item: pytest.Item) -> int:
        path = item.path.as_posix()
        found = next((n for n, folder in enumerate(folders) if folder in path), len(folders))
        if found < len(folders):
            item.add_marker(pytest.mark.xdist_group(GROUPS[folders[found]]))
        return found

    items.sort(key=place)


@pytest.fixture(scope="session")
def dynamodb_endpoint() -> Iterator[str]:
    """The URL of a fresh DynamoDB Local, in memory; the test fails where there can be none."""
    workspace = Workspace()
    dynamodb_local.install(workspace)
    engine = DynamoDbLocal(workspace=workspace, heap_mb=512).start()
    try:
        yield engine.endpoint
    finally:
        engine.stop()


@pytest.fixture(scope="session")
def dynamodb_local_endpoint(dynamodb_endpoint: str) -> str:
    """The same by another name."""
    return dynamodb_endpoint
