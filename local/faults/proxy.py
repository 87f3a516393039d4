"""A proxy before the database that injects faults that no local engine shows.

It throttles, leaves batch entries unprocessed, makes transactions conflict, fails, and applies
writes but loses their answers. Rates are set per operation and can be changed at any time.
"""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from local.faults import wire
from local.loopback_server import LoopbackServer

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from local.faults.wire import Answer

log = logging.getLogger(__name__)

EVERY: Final = "*"
_TARGET: Final = "DynamoDB_20120810."
SINGLE_WRITES: Final = frozenset({"PutItem", "UpdateItem", "DeleteItem"})
_TRANSACTIONS: Final = frozenset({"TransactWriteItems", "TransactGetItems", "ExecuteTransaction"})
_BATCHES: Final = frozenset({"BatchWriteItem", "BatchGetItem", "BatchExecuteStatement"})
_MANAGEMENT: Final = frozenset(
    {
        "CreateTable",
        "DeleteTable",
        "DescribeTable",
        "DescribeTimeToLive",
        "ListTables",
        "UpdateContinuousBackups",
        "UpdateTable",
        "UpdateTimeToLive",
    }
)
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
_NOT_ASKED: Final = _HOP_BY_HOP | {"accept-encoding"}  # answers are read here
_UNAVAILABLE: Final = 503
_LARGEST: Final = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Failure rates of an operation, each a share from 0 to 1 of its calls.

    `throttled` and `failed` calls are not applied. `conflicted` cancels transactions and refuses
    single writes. `unprocessed` applies only a part of a batch. `lost` applies the call and then
    drops the connection.
    """

    throttled: float = 0.0
    failed: float = 0.0
    conflicted: float = 0.0
    unprocessed: float = 0.0
    lost: float = 0.0

    def __post_init__(self) -> None:
        """Refuse rates outside 0 to 1."""
        for name, value in vars(self).items():
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is {value}: expected 0 to 1")


class FaultProxy:
    """Serves one engine on loopback; `injected` counts (fault, operation).

    Rates of `"*"` apply to operations without rates of their own. Calls to the streams' API and
    table management pass unchanged unless named.
    """

    def __init__(
        self,
        upstream: str,
        *,
        rng: random.Random,
        faults: Mapping[str, Faults] | None = None,
        port: int = 0,
        observe: Callable[[str, dict[str, Any], dict[str, Any]], None] | None = None,
    ) -> None:
        """`upstream` is the engine's URL; port 0 takes a free port.

        `observe` gets operation, request and answer of each successful call; the answers then
        include the consumed capacity.
        """
        self.observe = observe
        self._lock = threading.Lock()
        self._rng = rng
        self._faults = dict(faults or {})
        self._injected: Counter[tuple[str, str]] = Counter()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.proxy = self
        parts = urlsplit(upstream)
        self._server.upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._thread: threading.Thread | None = None

    @property
    def endpoint(self) -> str:
        """The URL that clients use in place of the engine's."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def injected(self) -> Counter[tuple[str, str]]:
        """Injected faults so far."""
        with self._lock:
            return Counter(self._injected)

    def clear(self) -> None:
        """Inject no more faults."""
        with self._lock:
            self._faults.clear()

    def start(self) -> None:
        """Serve in the background."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._server.serve_forever, name="fault-proxy", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop serving and free the port."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()

    def choose(self, operation: str) -> str | None:
        """Return the fault for this call, or None."""
        with self._lock:
            rates = self._faults.get(operation)
            if rates is None and operation not in _MANAGEMENT:
                rates = self._faults.get(EVERY)
            if rates is None:
                return None
            draw = self._rng.random()
            for fault, share in vars(rates).items():
                if not _applies(fault, operation):
                    continue
                if draw < share:
                    return str(fault)
                draw -= share
        return None

    def count(self, fault: str, operation: str) -> None:
        """Count an injected fault."""
        with self._lock:
            self._injected[fault, operation] += 1

    def pick(self, number: int) -> set[int]:
        """Choose the entries to leave out of `number`: at least one, never all."""
        with self._lock:
            return set(self._rng.sample(range(number), self._rng.randrange(1, number)))

    def flip(self) -> bool:
        """Return true or false at random."""
        with self._lock:
            return bool(self._rng.getrandbits(1))


def _applies(fault: str, operation: str) -> bool:
    if fault == "conflicted":
        return operation in SINGLE_WRITES | _TRANSACTIONS
    if fault == "unprocessed":
        return operation in _BATCHES
    return True


class _Server(LoopbackServer):
    proxy: FaultProxy
    upstream: tuple[str, int]


class _Handler(BaseHTTPRequestHandler):
    """One client connection, with one connection to the engine."""

    protocol_version = "HTTP/1.1"
    server: _Server
    _upstream: http.client.HTTPConnection | None = None

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing: every call would be a line."""

    def do_GET(self) -> None:
        self._pass_on("GET")

    def do_POST(self) -> None:
        self._pass_on("POST")

    def _pass_on(self, method: str) -> None:
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _LARGEST))
        target = self.headers.get("X-Amz-Target") or ""
        operation = target.removeprefix(_TARGET) if target.startswith(_TARGET) else ""
        fault = self.server.proxy.choose(operation) if operation else None
        try:
            answer = self._answer(method, body, operation, fault)
        except (OSError, http.client.HTTPException) as error:
            text = json.dumps({"__type": "ServiceUnavailable", "message": str(error)}).encode()
            answer = (_UNAVAILABLE, [("Content-Type", "application/x-amz-json-1.0")], text)
        if answer is None:
            self.close_connection = True
        else:
            self._send(*answer)

    def _answer(self, method: str, body: bytes, operation: str, fault: str | None) -> Answer | None:
        """Return the client's answer; None: it is lost."""
        proxy = self.server.proxy
        if fault == "unprocessed":
            return self._partly(body, operation)
        if fault is None and operation in wire.CONSUMING and proxy.observe is not None:
            return self._observed(body, operation, proxy.observe)
        if fault is None:
            return self._forward(method, body)
        proxy.count(fault, operation)
        if fault == "lost":
            self._forward(method, body)
            return None
        if fault == "conflicted":
            return self._conflicted(body, operation)
        return wire.throttled(proxy.flip()) if fault == "throttled" else wire.failed()

    def _observed(
        self,
        body: bytes,
        operation: str,
        observe: Callable[[str, dict[str, Any], dict[str, Any]], None],
    ) -> Answer:
        """Forward a call, ask for its consumed capacity, show both sides to the observer."""
        request = json.loads(body) | {"ReturnConsumedCapacity": "INDEXES"}
        status, headers, text = self._forward("POST", json.dumps(request).encode())
        observe(operation, request, json.loads(text) if status == http.HTTPStatus.OK else {})
        return status, headers, text

    def _partly(self, body: bytes, operation: str) -> Answer:
        """Forward a part of a batch and report the rest as unprocessed."""
        request = json.loads(body)
        entries = wire.entries(operation, request)
        if len(entries) < 2:
            self.server.proxy.count("throttled", operation)
            return wire.throttled(self.server.proxy.flip())
        left_out = self.server.proxy.pick(len(entries))
        status, headers, text = self._forward("POST", wire.only(operation, request, left_out))
        if status != http.HTTPStatus.OK:
            return status, headers, text
        self.server.proxy.count("unprocessed", operation)
        answer = wire.merged(operation, request, json.loads(text), left_out)
        kept = [(name, value) for name, value in headers if name.lower() != "x-amz-crc32"]
        return wire.json_answer(status, answer, kept)

    def _conflicted(self, body: bytes, operation: str) -> Answer:
        if operation in SINGLE_WRITES:
            return wire.conflict()
        request = json.loads(body)
        number = len(request.get("TransactItems") or request.get("TransactStatements") or [{}])
        hit = self.server.proxy.pick(number) if number > 1 else {0}
        return wire.cancelled(number, hit)

    def _forward(self, method: str, body: bytes) -> Answer:
        headers = {"Accept-Encoding": "identity"} | {
            name: value for name, value in self.headers.items() if name.lower() not in _NOT_ASKED
        }
        reused = self._upstream is not None
        try:
            status, given, text = self._exchange(method, body, headers)
        except (ConnectionError, http.client.RemoteDisconnected):
            if not reused:
                raise
            status, given, text = self._exchange(method, body, headers)  # it had been idle too long
        kept = [(name, value) for name, value in given if name.lower() not in _HOP_BY_HOP]
        return status, kept, text

    def _exchange(self, method: str, body: bytes, headers: dict[str, str]) -> Answer:
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection(*self.server.upstream, timeout=60)
        try:
            self._upstream.request(method, self.path, body=body, headers=headers)
            response = self._upstream.getresponse()
            return response.status, response.getheaders(), response.read()
        except (OSError, http.client.HTTPException):
            self._upstream.close()
            self._upstream = None
            raise

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Write headers and body at once, because two writes cost 44 ms more per call."""
        lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, '')}"]
        lines += [f"{name}: {value}" for name, value in headers]
        lines += [f"Content-Length: {len(body)}", "", ""]
        self.wfile.write("\r\n".join(lines).encode("latin-1") + body)
