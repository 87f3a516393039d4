"""A function behind an API: a deposit and its message are one transaction."""

from __future__ import annotations

import json
from typing import Any

from fairbox import Message, Outbox

outbox = Outbox.from_env()


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Store a deposit `id` of an account, and tell others."""
    deposit = json.loads(event["body"])
    message = Message(
        topic="deposits",
        body=event["body"].encode(),
        content_type="application/json",
        partition_key=deposit["account"],
    )
    item = {"id": {"S": f"deposit-{deposit['id']}"}, "amount": {"N": str(deposit["amount"])}}
    [ref] = outbox.transact([{"Put": {"TableName": "Accounts", "Item": item}}], message)
    return {"statusCode": 202, "body": json.dumps({"message": str(ref)})}
