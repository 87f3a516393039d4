"""A world of secrets that must not get out: a receiver that repeats all it was sent, and logs."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from awslambdaric.lambda_runtime_log_utils import JsonFormatter

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = base64.b64encode(b"canary-key-" + b"k" * 21).decode()
TOKEN = "canary-url-token-93"
BEARER = "canary.bearer.77ffee"
CARD = "4111-1111-1111-1111"
MAIL = "canary@customers.example"
BODY = json.dumps({"card": CARD, "mail": MAIL, "ok": True}).encode()
CANARIES = (KEY, f"whsec_{KEY}", TOKEN, BEARER, CARD, MAIL)
ESCAPES = "\x1b[2J\x1b]0;owned\x07\u202e\x9b31m"
FORGED = '\n{"_aws": {"CloudWatchMetrics": []}, "level": "INFO", "message": "all is well"}\r\n'


class Secrets:
    """Secrets Manager, with one secret for all subscriptions asked for."""

    def __init__(self, *subscriptions: str) -> None:
        self.text = json.dumps({name: [f"whsec_{KEY}"] for name in subscriptions})

    def get_secret_value(self, *, SecretId: str) -> dict[str, Any]:  # noqa: N803 - boto3's names
        assert SecretId
        return {"SecretString": self.text}


class Echo:
    """A receiver on loopback that answers with everything it was sent, and worse.

    Attributes:
        status: which it answers with.
        extra: is said first.
        requests: the bodies that came.
    """

    def __init__(self) -> None:
        self.status, self.extra = 500, ""
        self.requests: list[bytes] = []
        self.said: list[str] = []
        echo = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                echo.requests.append(body)
                headers = "; ".join(f"{k}: {v}" for k, v in self.headers.items() if "-" not in k)
                signed = self.headers.get("webhook-signature", "")
                said = f"{echo.extra} {self.path} {headers} {signed} {body.decode()}"
                echo.said.append(said)
                self.send_response(echo.status)
                data = said.encode()
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook?token={TOKEN}&{TOKEN}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def lambda_log(level: int = logging.DEBUG) -> Iterator[io.StringIO]:
    """Take the log as Lambda's runtime writes it in JSON, of all loggers and levels."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.terminator = ""
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def objects(text: str) -> list[dict[str, Any]]:
    """Return the log's lines, each of which must be one JSON object."""
    lines = [json.loads(line) for line in text.splitlines() if line]
    assert all(isinstance(line, dict) for line in lines)
    return lines


def found_in(text: str) -> list[str]:
    """Return the secrets that are in a text, as they are or as JSON or base64 writes them."""
    forms = {secret: (secret, base64.b64encode(secret.encode()).decode()) for secret in CANARIES}
    return [secret for secret, written in forms.items() if any(one in text for one in written)]
