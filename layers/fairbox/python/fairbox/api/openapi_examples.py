"""Examples of requests in the OpenAPI document, and links from an answer to the next request.

API tests use both too. A link names an operation, and where its parameters and body stand in the
answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

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
"""By operation."""
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

_TOPIC: Final = "$request.path.topic"
_ID: Final = "$request.path.id"
_OPENED: Final = "$response.body#/id"
_REF: Final = "$response.body#/refs/0"
_FIRST_RECEIPT: Final = "$response.body#/messages/0/receipt"
_FIRST_ITEM: Final = "{$response.body#/groups/0/id}:0"


def _link(operation: str, *, body: Any = None, **parameters: str) -> dict[str, Any]:
    link: dict[str, Any] = {"operationId": operation}
    if parameters:
        link["parameters"] = parameters
    if body is not None:
        link["requestBody"] = body
    return link


def _of_batch(batch: str) -> dict[str, Any]:
    return {
        "show": _link("show_batch", id=batch),
        "missing": _link("list_missing", id=batch),
        "failed": _link("list_failed", id=batch),
        "seal": _link("seal_batch", id=batch),
        "cancel": _link("cancel_batch", id=batch),
    }


_OF_TOPIC: Final = {
    "show": _link("show_one_topic", topic=_TOPIC),
    "publish": _link("publish_messages", topic=_TOPIC),
    "list": _link("list_topic_messages", topic=_TOPIC),
    "receive": _link("receive_messages", topic=_TOPIC),
    "subscribe": _link("put_subscription", topic=_TOPIC, name="billing"),
    "resize": _link("resize_topic", topic=_TOPIC),
    "delete": _link("delete_topic", topic=_TOPIC),
}
_OPENED_BATCH: Final = _of_batch(_OPENED) | {"add": _link("add_items", id=_OPENED)}

LINKS: Final[Mapping[str, Mapping[int, Mapping[str, Any]]]] = {
    "put_topic": {200: _OF_TOPIC, 201: _OF_TOPIC},
    "publish_messages": {
        202: {
            "show": _link("show_one_message", ref=_REF),
            "edit": _link("edit_message", ref=_REF),
            "cancel": _link("cancel_message", ref=_REF),
            "receive": _link("receive_messages", topic=_TOPIC),
        }
    },
    "receive_messages": {
        200: {
            "ack": _link("ack_messages", body={"receipts": [_FIRST_RECEIPT]}),
            "release": _link("release_messages", body={"receipts": [_FIRST_RECEIPT]}),
            "nack": _link("nack_messages", body={"nacks": [{"receipt": _FIRST_RECEIPT}]}),
            "extend": _link(
                "extend_messages", body={"extensions": [{"receipt": _FIRST_RECEIPT, "seconds": 60}]}
            ),
        }
    },
    "list_topic_messages": {
        200: {
            "next": _link(
                "list_topic_messages",
                topic=_TOPIC,
                state="$request.query.state",
                cursor="$response.body#/cursor",
            ),
            "show": _link("show_one_message", ref="$response.body#/messages/0/ref"),
        }
    },
    "open_batch": {200: _OPENED_BATCH, 201: _OPENED_BATCH},
    "add_items": {
        200: _of_batch(_ID)
        | {
            "ack": _link("ack_items", body={"items": [_FIRST_ITEM]}),
            "fail": _link("fail_items", body={"items": [_FIRST_ITEM], "reason": "no"}),
            "retry": _link("retry_items", body={"items": [_FIRST_ITEM]}),
        }
    },
}
"""By operation and status: links by name."""
