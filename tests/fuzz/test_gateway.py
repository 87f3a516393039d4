"""The gateway in this process hands on what the real one does."""

from __future__ import annotations

from typing import Any

from fairbox.testing.application import MemoryApplication
from schemathesis.python.asgi import get_client

from tests.fuzz.gateway import CREDENTIALS, InProcess, SignedOnly, gateway


def test_a_path_with_a_line_break_reaches_the_function_and_only_when_it_is_signed() -> None:
    invoker = InProcess(MemoryApplication(), refill=lambda: None, every=100)
    app: Any = SignedOnly(gateway(invoker).app)
    client = get_client(app)
    assert client.get("/topics/a%0Ab").status_code == 403
    reply = client.get("/topics/a%0Ab", headers={"authorization": CREDENTIALS})
    assert (reply.status_code, invoker.requests) == (422, 1)
    assert reply.headers["content-type"] == "application/problem+json"
