"""Fixtures of the functions' tests."""

from __future__ import annotations

import pytest
from fairbox.model.topics import Topic
from fairbox.testing.application import MemoryApplication

from tests.functions.api_client import ApiClient


@pytest.fixture
def application() -> MemoryApplication:
    """Fairbox in memory, with topic `orders`."""
    application = MemoryApplication()
    application.outbox.create_topic(Topic("orders", shards=4))
    return application


@pytest.fixture
def api(application: MemoryApplication) -> ApiClient:
    """The HTTP API over it."""
    return ApiClient(application)
