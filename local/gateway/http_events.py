"""HTTP API events of payload format 2.0: request to event, function result to response."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from local.cloudformation.identities import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local.functions.invoker import InvokeResult

STAGE = "$default"
DOMAIN_ID = "local"
PRINCIPAL = {
    "accessKey": "local",
    "accountId": ACCOUNT,
    "callerId": "local",
    "cognitoIdentity": None,
    "principalOrgId": None,
    "userArn": f"arn:aws:iam::{ACCOUNT}:user/local",
    "userId": "local",
}
_TEXT_TYPES = ("text/", "application/json", "application/javascript", "application/xml")
_STRUCTURED_SUFFIXES = ("+json", "+xml")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request: headers as (name, value) pairs in their order."""

    method: str
    path: str  # percent-encoded
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    source_ip: str = "127.0.0.1"
    protocol: str = "HTTP/1.1"


@dataclass(frozen=True, kw_only=True)
class Match:
    """The route that takes a request."""

    route_key: str  # "POST /topics/{topic}/messages" or "$default"
    path_parameters: Mapping[str, str]
    iam: bool  # the route asks for a signed request; unsigned ones are accepted here


@dataclass(frozen=True, kw_only=True)
class Response:
    """The response to the client."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def message(status: int, text: str) -> Response:
    """Return a response that the gateway itself makes."""
    body = json.dumps({"message": text}, separators=(",", ":")).encode()
    return Response(status=status, headers=(("content-type", "application/json"),), body=body)


def build_event(
    request: Request, match: Match, *, api_id: str, request_id: str, now: datetime
) -> dict[str, Any]:
    """Return the version 2.0 event; keys without a value are left out, as on AWS."""
    headers = _joined(pair for pair in request.headers if pair[0].lower() != "cookie")
    headers |= {"x-forwarded-for": request.source_ip, "x-forwarded-proto": "http"}
    cookies = [
        cookie.strip()
        for name, value in request.headers
        if name.lower() == "cookie"
        for cookie in value.split(";")
    ]
    query = _joined(parse_qsl(request.query, keep_blank_values=True), lower=False)
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": match.route_key,
        "rawPath": unquote(request.path),  # HTTP APIs decode it
        "rawQueryString": request.query,
        "headers": headers,
        "requestContext": _context(
            request, match, headers, api_id=api_id, request_id=request_id, now=now
        ),
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if query:
        event["queryStringParameters"] = query
    if match.path_parameters:
        event["pathParameters"] = dict(match.path_parameters)
    if request.body:
        event["body"], event["isBase64Encoded"] = _body(request.body, headers)
    return event


def _context(
    request: Request,
    match: Match,
    headers: Mapping[str, str],
    *,
    api_id: str,
    request_id: str,
    now: datetime,
) -> dict[str, Any]:
    moment = now.astimezone(UTC)
    context: dict[str, Any] = {
        "accountId": ACCOUNT,
        "apiId": api_id,
        "domainName": headers.get("host", "127.0.0.1").rsplit(":", 1)[0],
        "domainPrefix": DOMAIN_ID,
        "http": {
            "method": request.method,
            "path": unquote(request.path),
            "protocol": request.protocol,
            "sourceIp": request.source_ip,
            "userAgent": headers.get("user-agent", ""),
        },
        "requestId": request_id,
        "routeKey": match.route_key,
        "stage": STAGE,
        "time": moment.strftime("%d/%b/%Y:%H:%M:%S +0000"),
        "timeEpoch": int(moment.timestamp() * 1000),
    }
    if match.iam:
        context["authorizer"] = {"iam": dict(PRINCIPAL)}
    return context


def _joined(pairs: Any, *, lower: bool = True) -> dict[str, str]:
    """Join the values of one name by commas, in order."""
    joined: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower() if lower else name
        joined[key] = f"{joined[key]},{value}" if key in joined else value
    return joined


def _body(body: bytes, headers: Mapping[str, str]) -> tuple[str, bool]:
    """Return text unchanged; return anything else, or text that is not UTF-8, as base64."""
    kind = headers.get("content-type", "").split(";")[0].strip().lower()
    textual = kind.startswith(_TEXT_TYPES) or kind.endswith(_STRUCTURED_SUFFIXES)
    if textual and "content-encoding" not in headers:
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True


def read_result(result: InvokeResult) -> Response:
    """Map a function's result to a response.

    A result without `statusCode` is the body itself, as JSON. An error, or a result of another
    shape, is the gateway's 500.
    """
    if result.function_error is not None:
        return message(500, "Internal Server Error")
    try:
        answer = json.loads(result.payload or b"null")
        if not isinstance(answer, dict) or "statusCode" not in answer:
            return _inferred(answer)
        headers = [
            (str(name).lower(), _header_text(value))
            for name, value in (answer.get("headers") or {}).items()
        ]
        headers += [("set-cookie", str(cookie)) for cookie in answer.get("cookies") or ()]
        if not any(name == "content-type" for name, _ in headers):
            headers.append(("content-type", "text/plain; charset=utf-8"))
        return Response(
            status=int(answer["statusCode"]), headers=tuple(headers), body=_response_body(answer)
        )
    except (TypeError, ValueError, AttributeError):
        return message(500, "Internal Server Error")


def _inferred(answer: Any) -> Response:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return Response(status=200, headers=(("content-type", "application/json"),), body=text.encode())


def _header_text(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if any(character in text for character in "\r\n\0"):
        raise ValueError("a header value with a line break")
    return text


def _response_body(answer: Mapping[str, Any]) -> bytes:
    body = answer.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        raise TypeError("the body is no text")
    if answer.get("isBase64Encoded"):
        return base64.b64decode(body, validate=True)
    return body.encode()
