"""Examples of request bodies in the OpenAPI document, by operation."""

from __future__ import annotations

from typing import Any, Final

_ITEM: Final = "01980d4c-7a10-7c3e-9b1f-2f3a4b5c6d7e:0:7"
_RECEIPT: Final = (
    "cgBqb2JzLzAvNC8wMWEyMjcxNy0zZTU3LTc0YWItODJhMi1hMWY0NzI4NmQ0ZDgAZTg3YTE2MTNlNDQzZGY3ODk1NTg4Nj"
    "dmADE3OTU5NTIxOTQ0MzezlTlsa1M"
)

BODIES: Final[dict[str, Any]] = {
    "put_topic": {"shards": 8, "ordering": "key", "retry": {"max_attempts": 5}},
    "resize_topic": {"shards": 16},
    "put_subscription": {
        "destination": "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/billing",
        "max_in_flight": 10,
    },
    "pause_subscription": {"reason": "billing is being migrated"},
    "open_batch": {
        "user_key": "catalog-7",
        "metadata": {"customer": 42},
        "on_complete": "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/finished",
    },
    "add_items": {"count": 25000, "request_id": "r1"},
    "ack_items": {"items": [_ITEM]},
    "fail_items": {"items": [_ITEM], "reason": "the address is unknown"},
    "retry_items": {"items": [_ITEM]},
    "redrive_dead_letters": {"where": {"subscription": "billing"}, "limit": 100, "dry_run": True},
    "receive_messages": {"max_messages": 10, "visibility_timeout": 30, "wait": 20},
    "receive_dead_letters": {"max_messages": 10},
    "ack_messages": {"receipts": [_RECEIPT]},
    "nack_messages": {"nacks": [{"receipt": _RECEIPT, "delay": 60, "reason": "no stock"}]},
    "extend_messages": {"extensions": [{"receipt": _RECEIPT, "seconds": 60}]},
    "release_messages": {"receipts": [_RECEIPT]},
    "edit_message": {"body": {"order": "7", "total": 43}, "content_type": "application/json"},
    "put_feed": {"kind": "ring", "size": 64, "history": 10},
    "publish_to_feed": {"body": {"price": "101.25"}, "id": "trade-1"},
    "make_feed_token": {"user": "customer-42", "allow": ["trades/btc"], "ttl": 60},
}
MESSAGE: Final = {
    "body": {"order": "7", "total": 42},
    "partition_key": "customer-42",
    "headers": {"source": "shop"},
}
EVENT: Final = {
    "specversion": "1.0",
    "id": "order-7",
    "source": "/shop",
    "type": "shop.order.placed",
    "partitionkey": "customer-42",
    "data": {"order": "7", "total": 42},
}
