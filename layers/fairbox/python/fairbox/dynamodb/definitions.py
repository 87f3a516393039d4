"""Definitions of the tables, as `create_table` takes them: for engines that no template makes."""

from __future__ import annotations

from typing import Any

from fairbox.codec import attributes as names
from fairbox.codec import batches as batch_names


def table_definitions(*, outbox: str, deliveries: str) -> list[dict[str, Any]]:
    """Return the arguments of `create_table` for the outbox and deliveries tables."""
    return [
        _table(
            outbox,
            _index(
                names.OUTSTANDING_INDEX,
                names.BUCKET,
                names.LOOK_AT,
                {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(names.PROJECTED_COUNTS)},
            ),
            {names.BUCKET: "S", names.LOOK_AT: "N"},
        )
        | {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}},
        _table(
            deliveries,
            _index(
                names.DELIVERED_INDEX,
                names.LEDGER_DAY,
                names.LEDGER_TIME,
                {"ProjectionType": "KEYS_ONLY"},
            ),
            {names.LEDGER_DAY: "S", names.LEDGER_TIME: "N"},
        ),
    ]


def batches_definition(name: str) -> dict[str, Any]:
    """Return the arguments of `create_table` for the batches table."""
    return _table(
        name,
        _index(
            batch_names.OPEN_BATCHES_INDEX,
            batch_names.BUCKET,
            batch_names.LOOK,
            {"ProjectionType": "KEYS_ONLY"},
        ),
        {batch_names.BUCKET: "S", batch_names.LOOK: "N"},
    ) | {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}}


def _keys(hash_key: str, range_key: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": hash_key, "KeyType": "HASH"},
        {"AttributeName": range_key, "KeyType": "RANGE"},
    ]


def _index(name: str, hash_key: str, range_key: str, projection: dict[str, Any]) -> dict[str, Any]:
    return {
        "IndexName": name,
        "KeySchema": _keys(hash_key, range_key),
        "Projection": projection,
    }


def _table(name: str, index: dict[str, Any], extra: dict[str, str]) -> dict[str, Any]:
    types = {names.PK: "S", names.SK: "S", **extra}
    return {
        "TableName": name,
        "KeySchema": _keys(names.PK, names.SK),
        "AttributeDefinitions": [
            {"AttributeName": n, "AttributeType": t} for n, t in types.items()
        ],
        "GlobalSecondaryIndexes": [index],
        "BillingMode": "PAY_PER_REQUEST",
    }
