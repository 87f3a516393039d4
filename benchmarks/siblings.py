"""A fast webhook beside a slow, a paused, a dead and a gone one of its topic: latency and units.

Latency is measured in the running local application, each with a topic of its own; units over the
cost meter, with the same subscriptions in the application in memory.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Outbox, Subscription, Topic
from fairbox.dispatch.ports import TAKEN, Limits, Outcome
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication, MemoryDestination

from benchmarks.figures import Figure
from benchmarks.latency import percentile, produce
from local.application import LocalApplication
from local.cloudformation.synthesis import synthesise
from local.loopback_server import LoopbackServer
from local.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_SECONDS: Final = 2.0
RATE: Final = 10  # messages a second
SECONDS: Final = 18
SIBLINGS: Final = ("slow", "paused", "dead", "gone")
ALONE: Final = "alone"
IN_FLIGHT: Final = 100
_BACKLOG: Final = 2200  # messages
_COUNTED: Final = 0.8  # of them: of the others some shards have none left
_WARM_UP: Final = 20
_LONGEST: Final = 75.0  # seconds to wait for what is under way
_UNITS_SECONDS: Final = 60
_GONE: Final = "HTTP/1.1 410 X\r\ncontent-length: 0\r\n\r\n"
_TAKEN: Final = "HTTP/1.1 204 X\r\n\r\n"


def figures() -> tuple[list[Figure], list[str]]:
    """Return latency and units of a fast webhook by its sibling, and the pace of 100 in flight.

    The second list says which targets were missed: the median beside a slow sibling at most twice
    that alone, and 50 messages a second of 2 s each with 100 in flight.
    """
    with _Receiver().serving() as receiver, LocalApplication(synthesise(Workspace())) as running:
        setup = _Setup(running, receiver)
        waits = {name: setup.measure(name) for name in (ALONE, *SIBLINGS)}
        pace, most = setup.pace()
    found = [_latency(name, waits) for name in (ALONE, *SIBLINGS)]
    result = [figure for each in found for figure in each]
    result.append(Figure("siblings.in_flight_100.pace", "messages/s", pace, IN_FLIGHT / 2, "ideal"))
    result.append(Figure("siblings.in_flight_100.most", "messages", most, IN_FLIGHT, "limit"))
    for unit in ("wru", "rru"):
        alone = units(ALONE)[unit]
        for name in (ALONE, *SIBLINGS):
            value = units(name)[unit]
            result.append(Figure(f"siblings.{name}.{unit}", unit.upper(), value, alone, ALONE))
    return result, _missed(waits, pace, most)


def _latency(name: str, waits: dict[str, list[float]]) -> list[Figure]:
    return [
        Figure(
            f"siblings.{name}.{label}_ms", "ms", percentile(waits[name], rank),
            percentile(waits[ALONE], rank), ALONE,
        )
        for label, rank in (("p50", 0.5), ("p99", 0.99))
    ]  # fmt: skip


def _missed(waits: dict[str, list[float]], pace: float, most: int) -> list[str]:
    alone = percentile(waits[ALONE], 0.5)
    slower = [name for name in SIBLINGS if percentile(waits[name], 0.5) > 2 * alone]
    wrong = [f"the median beside the {name} one is over twice that alone" for name in slower]
    lost = {name: RATE * SECONDS - len(found) for name, found in waits.items()}
    wrong += [f"{count} messages of {name} did not come" for name, count in lost.items() if count]
    if pace < 0.9 * IN_FLIGHT / SLOW_SECONDS:
        wrong.append(f"100 in flight gave {pace:.0f} messages/s")
    if most > IN_FLIGHT:
        wrong.append(f"{most} were in flight, of 100 allowed")
    return wrong


class _Setup:
    """Topics by the fast webhook's sibling, and one of a slow webhook alone."""

    def __init__(self, application: LocalApplication, receiver: _Receiver) -> None:
        self._receiver = receiver
        self._outbox = Outbox(
            application.clients["dynamodb"],
            table=application.env["FAIRBOX_OUTBOX_TABLE"],
            deliveries_table=application.env["FAIRBOX_DELIVERIES_TABLE"],
        )
        subscriptions = []
        for name in (ALONE, *SIBLINGS, "wide"):
            self._outbox.create_topic(Topic(name))
            if name != "wide":
                subscriptions.append(Subscription(name, "fast", receiver.url("fast")))
            if name in SIBLINGS:
                subscriptions.append(Subscription(name, "sibling", _address(receiver, name)))
        wide = Subscription("wide", "hook", receiver.url("wide"), max_in_flight=IN_FLIGHT)
        self._outbox.add_subscriptions([*subscriptions, wide])
        self._outbox.pause_subscription("paused", "sibling", reason="a benchmark")

    def measure(self, topic: str) -> list[float]:
        """Return added to received (ms) at the fast webhook, after a warm-up."""
        for rate, count in ((RATE, _WARM_UP), (RATE, RATE * SECONDS)):
            added = produce(self._outbox, rate, count, topic=topic)
            self._receiver.wait(added, _LONGEST)
        return [
            self._receiver.at["fast"][id_] - added[id_]
            for id_ in added
            if id_ in self._receiver.at["fast"]
        ]

    def pace(self) -> tuple[float, int]:
        """Return answered messages a second with 100 in flight at 2 s each, and the most at once.

        The time counts from the moment when as many are in flight: before, shared visits hand the
        messages over. And it counts until shards begin to run out of messages.
        """
        messages = [Message(topic="wide", body=b"{}") for _ in range(_BACKLOG)]
        with ThreadPoolExecutor(4) as pool:
            parts = [messages[n : n + 100] for n in range(0, len(messages), 100)]
            list(pool.map(self._outbox.add_many, parts))
        self._receiver.wait({m.id: 0.0 for m in messages}, _LONGEST, at="wide")
        times = sorted(self._receiver.at["wide"].values())
        begin, end = self._receiver.full_at, times[int(len(times) * _COUNTED)]
        counted = [at for at in times if begin <= at <= end]
        return 1000 * len(counted) / max(end - begin, 1.0), self._receiver.most


def _address(receiver: _Receiver, name: str) -> str:
    return _closed_port() if name == "dead" else receiver.url(name)


def _closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}/"


@dataclass
class _Receiver:
    """Webhooks on loopback: `fast`, `slow`, `wide` (as slow), `gone`, `paused` by path.

    Attributes:
        at: when each message came (ms), by path and id.
        most: calls of `wide` in hand at once.
        full_at: when there were as many as may be (ms); 0: never.
    """

    at: dict[str, dict[str, float]] = field(default_factory=dict)
    most: int = 0
    full_at: float = 0.0
    _now: int = 0
    _port: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def url(self, name: str) -> str:
        """Return the address of a webhook."""
        return f"http://127.0.0.1:{self._port}/{name}"

    def wait(self, expected: dict[str, float], seconds: float, *, at: str = "fast") -> None:
        """Wait until these messages have come."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._lock:
                if expected.keys() <= self.at.get(at, {}).keys():
                    return
            time.sleep(0.1)

    @contextlib.contextmanager
    def serving(self) -> Iterator[_Receiver]:
        """Serve until the block ends."""
        server = LoopbackServer(("127.0.0.1", 0), self._handler())
        self._port = server.server_address[1]
        threading.Thread(target=server.serve_forever, name="receiver", daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    def _begin(self, name: str, id_: str) -> None:
        with self._lock:
            self.at.setdefault(name, {}).setdefault(id_, time.time() * 1000)
            if name == "wide":
                self._now += 1
                self.most = max(self.most, self._now)
                if self._now >= IN_FLIGHT and not self.full_at:
                    self.full_at = time.time() * 1000

    def _end(self, name: str) -> None:
        with self._lock:
            self._now -= name == "wide"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                name = self.path.strip("/")
                receiver._begin(name, self.headers.get("ce-id", ""))
                if name in ("slow", "wide"):
                    time.sleep(SLOW_SECONDS)
                receiver._end(name)
                self.wfile.write((_GONE if name == "gone" else _TAKEN).encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's
                """Log nothing."""

        return Handler


def units(sibling: str, seconds: int = _UNITS_SECONDS) -> dict[str, float]:
    """Return WRU and RRU a message of a fast webhook's topic by its sibling, all recording in."""
    app = MemoryApplication(wrap=CostMeter, rng=random.Random(1))
    meter: CostMeter = app.client
    app.outbox.create_topic(Topic("hooks"))
    for name in ("fast", sibling) if sibling != ALONE else ("fast",):
        address = f"https://{name}.example"
        one = MemoryDestination(Limits(1, 1 << 20), quick=False)
        app.destinations.put(address, one)
        app.outbox.add_subscription(Subscription("hooks", name, address))
        if name == "slow":
            one.answer = lambda _: _taken_late(app)
        elif name in ("dead", "gone"):
            verdict = "unreachable" if name == "dead" else "gone"
            one.answer = lambda _, verdict=verdict: Outcome(verdict, "no")  # type: ignore[misc]  # bound here
    if sibling == "paused":
        app.outbox.pause_subscription("hooks", "paused")
    app.relay()
    app.mark()
    meter.reset()
    began = app.clock.now()
    published = 0
    while app.clock.now() - began < seconds:
        app.outbox.add_many(
            Message(topic="hooks", body=b"{}", id=app.ids.next()) for _ in range(RATE)
        )
        published += RATE
        app.clock.advance(1)
        app.relay()
        app.visit()
    app.run(5)
    reading = meter.reading()
    return {"wru": reading.wru / published, "rru": reading.rru / published}


def _taken_late(app: MemoryApplication) -> Outcome:
    app.clock.advance(0.3)  # slow, and short enough that the messages of a second take no minute
    return TAKEN
