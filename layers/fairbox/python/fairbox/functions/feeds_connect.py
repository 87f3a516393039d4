"""Feeds connect: keep the connections of feeds' clients, and answer what they ask."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from fairbox.model.feed_types import SUBPROTOCOL
from fairbox.runtime.feed_application import FeedsApplication
from fairbox.runtime.function_process import ends_in_time, make_at_start
from fairbox.tables.feed_connections import Connection


@cache
def application() -> FeedsApplication:
    """Return this process's application."""
    return FeedsApplication.from_env()


@ends_in_time(application)
def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer one event of a connection; after an error its client asks again."""
    app, request = application(), event["requestContext"]
    id_, route = request["connectionId"], request["routeKey"]
    if route == "$connect":
        granted = request["authorizer"]
        grants = frozenset(json.loads(granted["allow"]))
        app.connections.open(id_, Connection(granted["user"], grants))
        # a browser closes a socket whose server chooses none of the subprotocols that it offered
        return {"statusCode": 200, "headers": {"Sec-WebSocket-Protocol": SUBPROTOCOL}}

    if route == "$disconnect":
        # API Gateway tries to tell of each end, and promises nothing: rows expire too
        app.connections.close(id_)
        return {"statusCode": 200}

    return {"statusCode": 200, "body": app.requests.answer(id_, event.get("body") or "")}


make_at_start(lambda: application().requests)
