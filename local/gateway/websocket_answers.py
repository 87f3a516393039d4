"""Answers of the functions of a WebSocket API: those of its routes, and its authorizer's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from local.functions.invoker import InvokeResult

_MALFORMED = (AttributeError, KeyError, TypeError, ValueError)


class Refused(Exception):
    """The gateway goes no further, for which its argument, `status`, is the HTTP status."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(self.args[0])


def read_answer(result: InvokeResult) -> tuple[int, str | None, str]:
    """Return the status, the subprotocol and the body of a route's answer.

    Raises:
        Refused: 502: the function failed, or its answer has another shape.
    """
    try:
        answer = json.loads(result.payload)
        status, body = int(answer["statusCode"]), answer.get("body") or ""
        headers = {name.lower(): value for name, value in (answer.get("headers") or {}).items()}
    except _MALFORMED:
        raise Refused(502) from None
    if result.function_error is not None or not 200 <= status < 600 or not isinstance(body, str):
        raise Refused(502)
    return status, headers.get("sec-websocket-protocol"), body


def read_policy(result: InvokeResult) -> dict[str, str]:
    """Return the context (values as text) and `principalId` of an authorizer that allows.

    Raises:
        Refused: 401: it raised "Unauthorized"; 403: it does not allow; 500: it failed, or its
            answer has another shape.
    """
    try:
        answer = json.loads(result.payload)
        if result.function_error is not None:
            raise Refused(401 if answer["errorMessage"] == "Unauthorized" else 500)
        effects = {each["Effect"] for each in answer["policyDocument"]["Statement"]}
        context = {**(answer.get("context") or {}), "principalId": answer["principalId"]}
    except _MALFORMED:
        raise Refused(500) from None
    if effects != {"Allow"}:
        raise Refused(403)
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in context.items()}
