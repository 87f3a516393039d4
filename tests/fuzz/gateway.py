"""The HTTP API in this process: the local gateway before the real use cases in memory."""

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairbox.api.app import App
from fairbox.api.route import Api
from fairbox.api.routes import ROUTES

from local.functions.invoker import InvokeResult
from local.gateway.http_api import ApiRoute, Gateway

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from fairbox.testing.application import MemoryApplication
    from starlette.types import Receive, Scope, Send

CREDENTIALS = (
    "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261121/eu-west-1/execute-api/aws4_request,"
    " SignedHeaders=host;x-amz-date, Signature=" + "0" * 64
)
"""The headers of a signed request; the gateway checks the signature, not the function."""

_SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=\S+, ?SignedHeaders=\S+, ?Signature=[0-9a-f]{64}"
)
_FORBIDDEN = b'{"message":"Forbidden"}'
_STEP_SECONDS = 0.05  # between requests: what is held, delayed or copied for a while ends


class Lines:
    """A logger that keeps what failed, not what was refused."""

    def __init__(self) -> None:
        self.failures: list[dict[str, object]] = []

    def warning(self, msg: str, *, extra: Mapping[str, object]) -> None:
        """Pass over a refusal."""

    def error(self, msg: str, *, extra: Mapping[str, object]) -> None:
        """Keep a failure."""
        self.failures.append({"message": msg, **extra})


class InProcess:
    """Runs the API's function in this process, one request at a time.

    Args:
        application: what the function works with.
        refill: makes again what requests have taken away.
        every: after so many requests.
    """

    def __init__(
        self, application: MemoryApplication, *, refill: Callable[[], None], every: int
    ) -> None:
        self.log = Lines()
        self.errors: list[str] = []
        self.requests = 0
        self._application = application
        self._refill = refill
        self._every = every
        self._lock = threading.Lock()
        batches = application.batches
        api = Api(application.outbox, application.ids, application.clock, lambda: batches)
        self._app = App(api, self.log)

    def invoke(self, function: str, payload: bytes) -> InvokeResult:
        """Answer an event; what is raised is the function's error, as Lambda says it."""
        with self._lock:
            self.requests += 1
            self._application.clock.advance(_STEP_SECONDS)
            if self.requests % self._every == 0:
                self._refill()
            try:
                answer = self._app.resolve(json.loads(payload), None)
                return InvokeResult(json.dumps(answer).encode(), None)
            except Exception as error:  # noqa: BLE001 - whatever a function raises is its error
                self.errors.append(f"{type(error).__name__}: {error}")
                return InvokeResult(b"{}", "Unhandled")


class SignedOnly:
    """Lets in what is signed, and answers the rest 403 as the gateway does."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and not _signed(scope):
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(_FORBIDDEN)).encode()),
            ]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": _FORBIDDEN})
            return
        await self._app(scope, receive, send)


def _signed(scope: Scope) -> bool:
    shown: Any = dict(scope["headers"]).get(b"authorization", b"")
    return _SIGNED.fullmatch(shown.decode("latin-1")) is not None


def gateway(invoker: InProcess) -> Gateway:
    """Return the gateway with the routes of the stack before a function in this process."""
    keys = [f"{route.method} {route.path}" for route in ROUTES] + ["$default"]
    routes = [ApiRoute.parse(key, function="api", iam=True) for key in keys]
    numbers = iter(range(10**9))
    return Gateway(
        routes=sorted(routes, key=lambda route: route.rank),
        invoker=invoker,
        api_id="fuzz",
        new_id=lambda: f"request-{next(numbers)}",
        now=lambda: datetime(2026, 11, 21, tzinfo=UTC),
    )
