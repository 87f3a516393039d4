"""A webhook receiver in a process of its own, whose moods change by seed until it is healed."""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

from local.chaos.journal import Journal
from local.workspace import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Sequence

WELL: Final = "well"
MOODS: Final = {WELL: 8, "refuses": 2, "hangs": 1, "throttles": 2, "drops": 1, "mute": 1}
"""How often each comes: 500; an answer that comes too late; 429 with Retry-After; a connection
closed without an answer; the message taken, but the connection closed before the answer."""
HANG_SECONDS: Final = 6.0
MOOD_SECONDS: Final = (1.0, 8.0)
RETRY_AFTER: Final = 2


class Receiver:
    """Takes messages and writes each down before it answers; on `heal` well for good.

    Args:
        journal: where arrivals go.
        rng: chooses moods and their length.
    """

    def __init__(self, journal: Journal, rng: random.Random) -> None:
        self._journal = journal
        self._rng = rng
        self._lock = threading.Lock()
        self._mood = WELL
        self._until = 0.0
        self._healed = False

    def heal(self) -> None:
        """Be well from now on."""
        self._healed = True

    def mood(self) -> str:
        """Return the mood of this moment."""
        if self._healed:
            return WELL
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                (self._mood,) = self._rng.choices(list(MOODS), list(MOODS.values()))
                self._until = now + self._rng.uniform(*MOOD_SECONDS)
            return self._mood

    def take(self, topic: str, taker: str, body: bytes, ref: str) -> None:
        """Write an arrival down."""
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
            mood = receiver.mood()
            if mood in (WELL, "mute"):
                _, topic, taker = self.path.split("/")
                receiver.take(topic, taker, body, self.headers["ce-fairboxref"])
            if mood in ("drops", "mute"):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if mood == "hangs":
                time.sleep(HANG_SECONDS)
            self._answer(mood)

        def _answer(self, mood: str) -> None:
            status = {WELL: 204, "throttles": 429}.get(mood, 500)
            self.send_response_only(status)
            if mood == "throttles":
                self.send_header("Retry-After", str(RETRY_AFTER))
            if status != 204:
                self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
            """Say nothing."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: callers are killed, too."""


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
    _Server((LOOPBACK, given.port), _handler(receiver)).serve_forever()


if __name__ == "__main__":
    main()
