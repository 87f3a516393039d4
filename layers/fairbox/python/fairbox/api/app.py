"""The resolver: events to routes, answers and refusals to responses, one log line each refusal.

Powertools' resolver routes. Its validation stays off: it would cost each cold start the import of
its OpenAPI machinery, answers in a shape of its own, and cannot read the four forms of one route.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response

from fairbox.api.request import JSON_TYPE, Request
from fairbox.api.routes import ROUTES
from fairbox.errors import FairboxError
from fairbox.problems import PROBLEM_TYPE, FieldError, Refusal, refusal_of
from fairbox.tables.calls import tries_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairbox.api.route import Answer, Api, Route
    from fairbox.model.clock import Clock


class Log(Protocol):
    """The two methods of a logger that are used."""

    def warning(self, msg: str, *, extra: Mapping[str, object]) -> None:
        """Write a line of level WARNING."""

    def error(self, msg: str, *, extra: Mapping[str, object]) -> None:
        """Write a line of level ERROR."""


TRY_SECONDS: Final = 18.0
"""After which no call of a request is tried again: with the last wait (3 s) and the last call (7 s)
the refusal is there before the function's time limit (28 s) and the gateway's 30 s, which would
tell the caller nothing."""
_LITERAL = frozenset(route.path for route in ROUTES if "{" not in route.path)
_BASE64_OVER = 500_000  # above it JSON in JSON, escaped twice, may outgrow what Lambda returns


class App:
    """Answers events of an HTTP API; one at a time, for the resolver keeps the event.

    Args:
        api: what the routes work with.
        log: takes one line for each refusal, with fields.
    """

    def __init__(self, api: Api, log: Log) -> None:
        self._api = api
        self._log = log
        self._resolver = APIGatewayHttpResolver(serializer=_as_it_is)
        for route in ROUTES:
            self._resolver.route(route.rule, method=route.method)(self._endpoint(route))
        self._resolver.not_found(self._not_found)

    @property
    def clock(self) -> Clock:
        """The time."""
        return self._api.clock

    def resolve(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        """Return the response to an event, as API Gateway takes it."""
        return self._resolver.resolve(event, context)

    def _endpoint(self, route: Route) -> Callable[..., Response[Any]]:
        def endpoint() -> Response[Any]:
            event = self._event
            if event["rawPath"] in _LITERAL and "{" in route.path:
                return self._not_found(LookupError())  # `/batches/acks` is no batch
            try:
                with tries_until(self._api.clock.now() + TRY_SECONDS):
                    request = Request.from_event(event, route.params(event["rawPath"]))
                    return _response(route.answer(self._api, request))
            except FairboxError as error:
                return self._refuse(refusal_of(error), error)

        return endpoint

    def _not_found(self, _error: Exception) -> Response[Any]:
        path = self._event["rawPath"]
        # a literal path goes before routes whose names would fit it
        named = [r for r in ROUTES if r.path == path]
        methods = sorted(r.method for r in named or ROUTES if re.fullmatch(r.rule, path))

        if not methods:
            refusal = Refusal("unknown-route", "No route has this path.")
        else:
            allow = ", ".join(methods)
            refusal = Refusal(
                "method-not-allowed",
                f"The route takes {allow}.",
                [FieldError("method", allow)],
                {"Allow": allow},
            )

        return self._refuse(refusal, refusal)

    @property
    def _event(self) -> Mapping[str, Any]:
        return self._resolver.current_event.raw_event

    def _refuse(self, refusal: Refusal, error: FairboxError) -> Response[Any]:
        event = self._event
        http = event["requestContext"]["http"]
        request_id = event["requestContext"]["requestId"]
        # callers choose these texts: they are cut, so that a line of the log stays one
        fields = {
            "method": http["method"],
            "path": event["rawPath"][:300],
            "status": refusal.status,
            "problem": refusal.kind,
            "fields": [e.field[:100] for e in refusal.errors[:20]],
            "request_id": request_id,
        }

        if refusal.status < 500:
            self._log.warning("A request was refused.", extra=fields)
        else:
            # the log alone has the cause: an answer shows nothing of the inside
            cause = {"error": type(error).__name__, "error_detail": str(error)[:1000]}
            self._log.error("A request failed.", extra=fields | cause)

        # the log has the same id, so that a caller can name the request to an operator
        problem = refusal.problem(f"urn:fairbox:request:{request_id}")
        return Response(
            status_code=refusal.status,
            content_type=PROBLEM_TYPE,
            body=_text(json.dumps(problem, separators=(",", ":"))),
            headers=dict(refusal.headers),
        )


def _as_it_is(body: Any) -> Any:
    """Return a body that is JSON already; else Powertools would make JSON of bytes."""
    return body


def _response(answer: Answer) -> Response[Any]:
    headers = dict(answer.headers)
    if answer.body is None:
        return Response(status_code=answer.status, headers=headers)
    text = answer.body if isinstance(answer.body, str) else answer.body.model_dump_json()
    return Response(
        status_code=answer.status, content_type=JSON_TYPE, body=_text(text), headers=headers
    )


def _text(text: str) -> str | bytes:
    """Return a body; a long one as bytes, which Powertools gives as base64."""
    return text if len(text) <= _BASE64_OVER else text.encode()
