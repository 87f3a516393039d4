"""What arrives in the demo: the queue, the event bus through a queue, and a webhook's sink."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from fairbox.cloudevents import parse_structured
from fairbox.model.messages import MessageRef

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message at one destination: whose, when (ms since 1970), with which bytes."""

    ref: MessageRef
    subscription: str
    at: float
    body: bytes


class Arrivals:
    """Everything that arrived, in order, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Arrival] = []

    def add(self, arrival: Arrival) -> None:
        """Take note of one."""
        with self._lock:
            self._all.append(arrival)

    def all(self) -> list[Arrival]:
        """Return what has arrived so far."""
        with self._lock:
            return list(self._all)

    def distinct(self) -> int:
        """Return how many (message, subscription) have arrived."""
        with self._lock:
            return len({(a.ref, a.subscription) for a in self._all})


class WebhookSink:
    """A web server on loopback that takes every message."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(arrivals))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where to send messages."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/events"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
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
            """Say nothing."""

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
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
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
            if messages:
                entries = [
                    {"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]}
                    for n, m in enumerate(messages)
                ]
                self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            else:
                self._stopped.wait(0.1)

    def _arrival(self, message: Mapping[str, Any]) -> Arrival:
        text = message["Body"]
        if self._subscription == "events":
            # the bus hands the detail on as a JSON value; its bytes are those of the compact form
            detail = json.loads(text)["detail"]
            text = json.dumps(detail, separators=(",", ":"), ensure_ascii=False)
        event = parse_structured(text.encode(), exact=True)
        ref = MessageRef.parse(event.extensions["fairboxref"])
        sent = float(message["Attributes"]["SentTimestamp"])
        return Arrival(ref, self._subscription, sent, event.data)
