"""The table of business rows, one for each message that is published in a transaction."""

from __future__ import annotations

from typing import Any, Final

BUSINESS_TABLE: Final = "Business"


def create_business_table(dynamodb: Any) -> None:
    """Create the table with a boto3 client."""
    dynamodb.create_table(
        TableName=BUSINESS_TABLE,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
