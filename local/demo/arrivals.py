"""Arrivals in the demo: a queue, an event bus through a queue, and a webhook's sink."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from fairbox.model.messages import MessageRef

from local.accounting.queues import delete_received, event_of
from local.loopback_server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message at one destination: its subscription, time (ms since 1970) and bytes."""

    ref: MessageRef
    subscription: str
    at: float
    body: bytes


class Arrivals:
    """All arrivals in order; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Arrival] = []

    def add(self, arrival: Arrival) -> None:
        """Add one arrival."""
        with self._lock:
            self._all.append(arrival)

    def all(self) -> list[Arrival]:
        """Return the arrivals so far."""
        with self._lock:
            return list(self._all)

    def distinct(self) -> int:
        """Return the number of distinct (message, subscription) pairs."""
        with self._lock:
            return len({(a.ref, a.subscription) for a in self._all})


class WebhookSink:
    """A web server on loopback that takes every message."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._server = LoopbackServer(("127.0.0.1", 0), _handler(arrivals))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The address for messages."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/events"

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(arrivals: Arrivals) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            ref = MessageRef.parse(self.headers["ce-fairboxref"])
            arrivals.add(Arrival(ref, "webhook", time.time() * 1000, body))
            self.wfile.write(b"HTTP/1.1 204 No Content\r\n\r\n")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's
            """Log nothing."""

    return Handler


class QueueReader:
    """Reads one SQS queue until it is stopped."""

    def __init__(self, client: Any, url: str, subscription: str, arrivals: Arrivals) -> None:
        self._client = client
        self._url = url
        self._subscription = subscription
        self._arrivals = arrivals
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            answer = self._client.receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=10, AttributeNames=["SentTimestamp"]
            )
            messages = answer.get("Messages", [])
            for message in messages:
                self._arrivals.add(self._arrival(message))
            delete_received(self._client, self._url, messages)
            if not messages:
                self._stopped.wait(0.1)

    def _arrival(self, message: Mapping[str, Any]) -> Arrival:
        event = event_of(message["Body"], from_bus=self._subscription == "events")
        ref = MessageRef.parse(event.extensions["fairboxref"])
        sent = float(message["Attributes"]["SentTimestamp"])
        return Arrival(ref, self._subscription, sent, event.data)
