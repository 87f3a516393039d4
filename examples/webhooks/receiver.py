"""Receives webhooks of Fairbox: `python receiver.py PORT SECRET`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LATE_SECONDS = 300
seen: set[str] = set()  # in production a table: a message may come again, to any process


def is_genuine(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> bool:
    """Whether a request was signed with `secret` in the last five minutes."""
    sent, message_id, signatures = (
        headers.get(name, "").encode(errors="surrogatepass")
        for name in ("webhook-timestamp", "webhook-id", "webhook-signature")
    )
    if not re.fullmatch(rb"[0-9]{1,15}", sent) or abs(now - int(sent)) > LATE_SECONDS:
        return False

    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = b".".join([message_id, sent, body])
    expected = b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    return any(hmac.compare_digest(one, expected) for one in signatures.split(b" "))


class Receiver(BaseHTTPRequestHandler):
    """Answers 401 to strangers, and 204 to a message: the first time when it is processed."""

    secret = ""

    def do_POST(self) -> None:
        """Take one message."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not is_genuine(headers, body, self.secret, time.time()):
            self._answer(401)
            return
        if headers["webhook-id"] not in seen:
            print(f"received {body.decode()}", flush=True)
            seen.add(headers["webhook-id"])
        self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
        """Log nothing."""


if __name__ == "__main__":
    Receiver.secret = sys.argv[2]
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
    print(f"listening on {server.server_address[1]}", flush=True)
    server.serve_forever()
