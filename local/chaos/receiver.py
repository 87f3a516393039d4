"""A webhook receiver process with failure modes that change at random until it is healed."""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Final

from local.accounting.journal import Journal
from local.loopback_server import LoopbackServer
from local.workspace import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Sequence

WELL: Final = "well"
MODES: Final = {WELL: 8, "refuses": 2, "hangs": 1, "throttles": 2, "drops": 1, "mute": 1}
"""Failure modes by weight: 500; an answer that comes too late; 429 with Retry-After; a connection
closed without an answer; the message taken, but the connection closed before the answer."""
HANG_SECONDS: Final = 6.0
MODE_SECONDS: Final = (1.0, 8.0)
RETRY_AFTER: Final = 2


class Receiver:
    """Takes messages and records each before it answers; after `heal` it never fails.

    Args:
        journal: receives the arrivals.
        rng: chooses failure modes and their length.
    """

    def __init__(self, journal: Journal, rng: random.Random) -> None:
        self._journal = journal
        self._rng = rng
        self._lock = threading.Lock()
        self._mode = WELL
        self._until = 0.0
        self._healed = False

    def heal(self) -> None:
        """Stop failing."""
        self._healed = True

    def mode(self) -> str:
        """Return the current failure mode."""
        if self._healed:
            return WELL
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                (self._mode,) = self._rng.choices(list(MODES), list(MODES.values()))
                self._until = now + self._rng.uniform(*MODE_SECONDS)
            return self._mode

    def take(self, topic: str, taker: str, body: bytes, ref: str) -> None:
        """Record an arrival."""
        found = json.loads(body)
        self._journal.write(
            topic=topic, taker=taker, n=found["n"], e=found["e"], ref=ref, at=time.monotonic_ns()
        )


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            mode = receiver.mode()
            if mode in (WELL, "mute"):
                _, topic, taker = self.path.split("/")
                receiver.take(topic, taker, body, self.headers["ce-fairboxref"])
            if mode in ("drops", "mute"):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if mode == "hangs":
                time.sleep(HANG_SECONDS)
            self._answer(mode)

        def _answer(self, mode: str) -> None:
            status = {WELL: 204, "throttles": 429}.get(mode, 500)
            self.send_response_only(status)
            if mode == "throttles":
                self.send_header("Retry-After", str(RETRY_AFTER))
            if status != 204:
                self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
            """Log nothing."""

    return Handler


def main(arguments: Sequence[str] | None = None) -> None:
    """Receive until killed; SIGUSR1 heals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--well", action="store_true", help="be well from the beginning")
    given = parser.parse_args(arguments)
    receiver = Receiver(Journal(given.journal), random.Random(given.seed))  # noqa: S311 - no secret
    if given.well:
        receiver.heal()
    signal.signal(signal.SIGUSR1, lambda *_: receiver.heal())
    LoopbackServer((LOOPBACK, given.port), _handler(receiver)).serve_forever()


if __name__ == "__main__":
    main()
