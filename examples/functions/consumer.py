"""A function behind a queue: each deposit is added once, however often it comes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import boto3
from fairbox.inbox import Inbox

if TYPE_CHECKING:
    from fairbox.inbox import Event

dynamodb = boto3.client("dynamodb")
inbox = Inbox("Inbox", "deposits/balances")


def add(event: Event) -> None:
    """Add a deposit to its account's balance."""
    deposit = json.loads(event.body())
    update: dict[str, Any] = {
        "TableName": "Accounts",
        "Key": {"id": {"S": deposit["account"]}},
        "UpdateExpression": "ADD balance :amount",
        "ExpressionAttributeValues": {":amount": {"N": str(deposit["amount"])}},
    }
    actions: list[Any] = [{"Update": update}, *inbox.transact_items(event)]
    dynamodb.transact_write_items(TransactItems=actions)


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Process the records of a queue; those that failed come again."""
    return inbox.handle(event, add)
