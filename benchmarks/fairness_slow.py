"""A slow destination beside a fast one, in the running local application."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from fairbox import Outbox, Subscription, Topic

from benchmarks.figures import Figure
from benchmarks.latency import drain, percentile, produce
from local.application import LocalApplication
from local.cloudformation.synthesis import synthesise
from local.loopback_server import LoopbackServer
from local.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_SECONDS: Final = 2.0
RATE: Final = 20  # messages a second for the fast destination
SLOW_RATE: Final = 5  # and for the slow one, which takes four with eight visits at a time
SECONDS: Final = 6  # of a turn
TURNS: Final = 4
_LONGEST: Final = 60.0  # seconds to wait until the slow one has all
_ALONE: Final = "the fast one alone"


def figures() -> list[Figure]:
    """Return percentiles of added to delivered of a queue, beside a webhook of 2 s a call.

    `beside` is a queue whose topic has no other destination, while another topic's messages go to
    the webhook; `same_topic` one whose own topic goes to the webhook too. The baseline is the
    first queue while nothing else is sent. They are measured in turns in one run, so that other
    programs disturb them equally.
    """
    with _SlowServer().serving() as server, LocalApplication(synthesise(Workspace())) as running:
        setup = _Setup(running, server)
        setup.measure("fast", "warm-up")
        setup.measure("both", "warm-up")
        for _ in range(TURNS):
            setup.measure("fast", _ALONE)
            setup.measure("fast", "beside", slow=True)
            setup.measure("both", "same_topic")
        waits, lost = setup.waits, setup.lost
    return [
        *(
            Figure(
                f"fairness.{what}_slow.{name}_ms",
                "ms",
                percentile(waits[what], rank),
                percentile(waits[_ALONE], rank),
                _ALONE,
            )
            for what in ("beside", "same_topic")
            for name, rank in (("p50", 0.5), ("p99", 0.99))
        ),
        Figure("fairness.beside_slow.not_delivered", "messages", lost),
    ]


class _Setup:
    """Topics `fast`, `slow` and `both`, by where their messages go.

    Attributes:
        waits: added to delivered (ms) at the queues, by what was measured.
        lost: messages that did not come within a minute.
    """

    def __init__(self, application: LocalApplication, server: _SlowServer) -> None:
        self._server = server
        self._sqs = application.clients["sqs"]
        self._outbox = Outbox(
            application.clients["dynamodb"],
            table=application.env["FAIRBOX_OUTBOX_TABLE"],
            deliveries_table=application.env["FAIRBOX_DELIVERIES_TABLE"],
        )
        self._queues: dict[str, str] = {}
        self.waits: dict[str, list[float]] = {}
        self.lost = 0
        subscriptions = [Subscription(name, "slow", server.url) for name in ("slow", "both")]
        for name in ("fast", "slow", "both"):
            self._outbox.create_topic(Topic(name))
        for name in ("fast", "both"):
            self._queues[name] = self._sqs.create_queue(QueueName=name)["QueueUrl"]
            subscriptions.append(Subscription(name, "fast", f"sqs:{self._queues[name]}"))
        self._outbox.add_subscriptions(subscriptions)

    def measure(self, topic: str, what: str, *, slow: bool = False) -> None:
        """Send to a topic, and to topic `slow` if asked; wait until all messages have arrived."""
        rate = SLOW_RATE if topic == "both" else RATE
        expected = self._server.taken + (rate * SECONDS if topic == "both" else 0)
        with ThreadPoolExecutor(1) as pool:
            if slow:
                expected += SLOW_RATE * SECONDS
                pool.submit(produce, self._outbox, SLOW_RATE, SLOW_RATE * SECONDS, topic="slow")
            added = produce(self._outbox, rate, rate * SECONDS, topic=topic)
        sent = drain(self._sqs, self._queues[topic], len(added))
        self.waits.setdefault(what, []).extend(
            sent[id_] - added[id_] for id_ in added if id_ in sent
        )
        self.lost += len(added.keys() - sent.keys())
        deadline = time.monotonic() + _LONGEST
        while self._server.taken < expected and time.monotonic() < deadline:
            time.sleep(0.1)


class _SlowServer:
    """An endpoint on loopback that accepts every call after two seconds.

    Attributes:
        taken: calls that it took.
        url: of the endpoint.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.url = ""
        self._lock = threading.Lock()

    @contextmanager
    def serving(self) -> Iterator[_SlowServer]:
        """Serve until the block ends."""
        server = LoopbackServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{server.server_address[1]}/slow"
        threading.Thread(target=server.serve_forever, name="slow", daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        def take() -> None:
            with self._lock:
                self.taken += 1

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                time.sleep(SLOW_SECONDS)
                take()
                self.wfile.write(b"HTTP/1.1 204 X\r\n\r\n")

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's
                """Log nothing."""

        return Handler
