"""Writes an order and its message in one transaction."""

from __future__ import annotations

import json
import os
from typing import Any

from fairbox import Message, Outbox

outbox = Outbox.from_env()


def handler(event: dict[str, Any], context: object) -> dict[str, str]:
    """Place the order `id` of a customer."""
    message = Message(
        topic="orders",
        body=json.dumps(event).encode(),
        content_type="application/json",
        partition_key=event["customer"],
    )
    item = {"id": {"S": event["id"]}, "customer": {"S": event["customer"]}}
    [ref] = outbox.transact(
        [{"Put": {"TableName": os.environ["ORDERS_TABLE"], "Item": item}}], message
    )
    return {"message": str(ref)}
