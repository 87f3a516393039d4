"""Tables of other outboxes."""

from __future__ import annotations

from typing import Any


def text_keys(client: Any, name: str, *keys: str) -> None:
    """Create a table with keys that are text."""
    kinds = zip(keys, ("HASH", "RANGE"), strict=False)
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in kinds],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        BillingMode="PAY_PER_REQUEST",
    )
