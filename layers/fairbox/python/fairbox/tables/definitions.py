"""Definitions of the tables, as `create_table` takes them: for engines that no template makes."""

from __future__ import annotations

from typing import Any

from fairbox.tables import batch_records as batch_names
from fairbox.tables.keys import PK, SK
from fairbox.tables.ledger import DELIVERED_INDEX, LEDGER_DAY, LEDGER_TIME
from fairbox.tables.shard_rows import BUCKET, LOOK_AT, OUTSTANDING_INDEX, PROJECTED_COUNTS


def table_definitions(*, outbox: str, deliveries: str) -> list[dict[str, Any]]:
    """Return the arguments of `create_table` for the outbox and deliveries tables."""
    return [
        _table(
            outbox,
            _index(
                OUTSTANDING_INDEX,
                BUCKET,
                LOOK_AT,
                {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(PROJECTED_COUNTS)},
            ),
            {BUCKET: "S", LOOK_AT: "N"},
        )
        # a delivery is a delete: only the old image tells what was delivered
        | {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}},
        _table(
            deliveries,
            _index(
                DELIVERED_INDEX,
                LEDGER_DAY,
                LEDGER_TIME,
                # with the packed deliveries in it, the index would cost as much as the row again
                {"ProjectionType": "KEYS_ONLY"},
            ),
            {LEDGER_DAY: "S", LEDGER_TIME: "N"},
        ),
    ]


def batches_definition(name: str) -> dict[str, Any]:
    """Return the arguments of `create_table` for the batches table."""
    return _table(
        name,
        _index(
            batch_names.OPEN_BATCHES_INDEX,
            batch_names.BUCKET,
            batch_names.NEXT_CHECK,
            {"ProjectionType": "KEYS_ONLY"},
        ),
        {batch_names.BUCKET: "S", batch_names.NEXT_CHECK: "N"},
    ) | {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}}


def feeds_definition(name: str) -> dict[str, Any]:
    """Return the arguments of `create_table` for the feeds table."""
    stream = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    return _table(name, None, {}) | {"StreamSpecification": stream}


def _keys(hash_key: str, range_key: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": hash_key, "KeyType": "HASH"},
        {"AttributeName": range_key, "KeyType": "RANGE"},
    ]


def _index(name: str, hash_key: str, range_key: str, projection: dict[str, Any]) -> dict[str, Any]:
    return {"IndexName": name, "KeySchema": _keys(hash_key, range_key), "Projection": projection}


def _table(name: str, index: dict[str, Any] | None, extra: dict[str, str]) -> dict[str, Any]:
    types = {PK: "S", SK: "S", **extra}
    return {
        "TableName": name,
        "KeySchema": _keys(PK, SK),
        "AttributeDefinitions": [
            {"AttributeName": n, "AttributeType": t} for n, t in types.items()
        ],
        **({} if index is None else {"GlobalSecondaryIndexes": [index]}),
        "BillingMode": "PAY_PER_REQUEST",
    }
