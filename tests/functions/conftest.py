"""Fixtures of the functions' tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fairbox.model.topics import Topic

from tests.functions.api_client import ApiClient
from tests.support.deployment import RecordedApplication

if TYPE_CHECKING:
    from fairbox.testing.application import MemoryApplication


@pytest.fixture
def application() -> MemoryApplication:
    """Fairbox in memory, with topic `orders`."""
    application = RecordedApplication()
    application.outbox.create_topic(Topic("orders", shards=4))
    return application


@pytest.fixture
def api(application: MemoryApplication) -> ApiClient:
    """The HTTP API over it."""
    return ApiClient(application)
