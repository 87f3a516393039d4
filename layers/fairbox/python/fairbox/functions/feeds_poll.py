"""Feeds poll: answer clients of feeds that have no WebSocket."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

from fairbox.errors import Throttled, Unavailable
from fairbox.runtime.feed_application import FeedsApplication
from fairbox.runtime.function_process import ends_in_time, make_at_start


@cache
def application() -> FeedsApplication:
    """Return this process's application."""
    return FeedsApplication.from_env()


@ends_in_time(application)
def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer one poll; 503 where the client is to come back."""
    id_ = event["requestContext"]["requestId"]
    text = event.get("body") or ""
    if event.get("isBase64Encoded"):
        # damaged text is no JSON, and is refused there
        text = base64.b64decode(text).decode(errors="replace")
    try:
        reply = application().polling.poll(id_, event["headers"].get("authorization", ""), text)
    except (Throttled, Unavailable):
        return {"statusCode": 503, "headers": {"Retry-After": "1"}}

    content = {"Content-Type": "application/json"} if reply.body else {}
    headers = {"Cache-Control": "no-store", **content, **reply.headers}
    return {"statusCode": reply.status, "headers": headers, "body": reply.body}


make_at_start(lambda: application().polling, lambda: application().token_keys.client)
