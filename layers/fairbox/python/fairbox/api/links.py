"""OpenAPI links from an answer to the next request, used by readers and by API tests.

A link names an operation and where its parameters and body stand in the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOPIC: Final = "$request.path.topic"
_ID: Final = "$request.path.id"
_OPENED: Final = "$response.body#/id"
_REF: Final = "$response.body#/refs/0"
_RECEIPT: Final = "$response.body#/messages/0/receipt"
_ITEM: Final = "{$response.body#/groups/0/id}:0"


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
            "ack": _link("ack_messages", body={"receipts": [_RECEIPT]}),
            "release": _link("release_messages", body={"receipts": [_RECEIPT]}),
            "nack": _link("nack_messages", body={"nacks": [{"receipt": _RECEIPT}]}),
            "extend": _link(
                "extend_messages", body={"extensions": [{"receipt": _RECEIPT, "seconds": 60}]}
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
            "ack": _link("ack_items", body={"items": [_ITEM]}),
            "fail": _link("fail_items", body={"items": [_ITEM], "reason": "no"}),
            "retry": _link("retry_items", body={"items": [_ITEM]}),
        }
    },
}
"""By operation and status: links by name."""
