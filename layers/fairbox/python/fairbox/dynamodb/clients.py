"""boto3 clients with bounded time-outs."""

from __future__ import annotations

from typing import Any, Final

import boto3
from botocore.config import Config

from fairbox.collection import no_collection

_CONFIG: Final = Config(
    connect_timeout=2,
    read_timeout=5,
    max_pool_connections=32,
    retries={"mode": "standard", "total_max_attempts": 1},  # Calls retries, once, in one place
)


def make_client(service: str) -> Any:
    """Return a boto3 client of the environment's region and credentials."""
    with no_collection():
        return boto3.client(service, config=_CONFIG)  # type: ignore[call-overload]
