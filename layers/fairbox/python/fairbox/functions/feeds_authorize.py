"""Feeds authorize: check the token of a client that connects to feeds."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from fairbox.feeds.tokens import check_token
from fairbox.model.feed_types import SUBPROTOCOL
from fairbox.runtime.feed_application import FeedsApplication
from fairbox.runtime.function_process import ends_in_time, make_at_start


@cache
def application() -> FeedsApplication:
    """Return this process's application."""
    return FeedsApplication.from_env()


@ends_in_time(application)
def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Allow a connection, or deny it; an error fails the invocation, and the client comes back."""
    app = application()
    headers = {name.lower(): value for name, value in event["headers"].items()}
    offered = [one.strip() for one in headers.get("sec-websocket-protocol", "").split(",")]
    tokens = [one.removeprefix("token.") for one in offered if one.startswith("token.")]

    claims = None
    # browsers can give a WebSocket no header of their own, so the token is a subprotocol
    if SUBPROTOCOL in offered and len(tokens) == 1:
        claims = check_token(app.token_keys, tokens[0], app.clock.now())

    statement = {
        "Action": "execute-api:Invoke",
        "Effect": "Allow" if claims else "Deny",
        "Resource": event["methodArn"],
    }
    return {
        "principalId": "user",
        "policyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        # `feeds_connect` reads them from the request
        "context": {"user": claims.user, "allow": json.dumps(claims.allow)} if claims else {},
    }


make_at_start(lambda: application().token_keys.client)
