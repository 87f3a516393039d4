"""The two engines under the contract, and a table with the shape of the outbox in each."""

from __future__ import annotations

import itertools
from typing import Any

import boto3
import pytest
from botocore.config import Config
from fairbox.testing import ManualClock, MemoryDynamoDB

_numbers = itertools.count()


@pytest.fixture(
    params=["memory", pytest.param("local", marks=pytest.mark.engine)],
    scope="session",
)
def client(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        return MemoryDynamoDB(ManualClock())
    return boto3.client(
        "dynamodb",
        endpoint_url=request.getfixturevalue("dynamodb_local_endpoint"),
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=20),
    )


@pytest.fixture
def table(client: Any) -> str:
    """A table with the keys of the outbox, two indexes, and no stream."""
    name = f"table-{next(_numbers)}"
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
            {"AttributeName": "q", "AttributeType": "S"},
            {"AttributeName": "l", "AttributeType": "N"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "due",
                "KeySchema": [
                    {"AttributeName": "q", "KeyType": "HASH"},
                    {"AttributeName": "l", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["rc"]},
            },
            {
                "IndexName": "by_q",
                "KeySchema": [{"AttributeName": "q", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            },
        ],
    )
    return name
