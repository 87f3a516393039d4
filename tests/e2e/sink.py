"""A web server on loopback that answers webhooks as a test says, and keeps what it took."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from fairbox.model.messages import MessageRef

from local.loopback_server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Callable

TAKES = 204
REFUSES = 500


@dataclass(frozen=True, slots=True)
class Call:
    """One request: whose message, when (s since 1970), its bytes and headers, the answer."""

    ref: MessageRef
    at: float
    body: bytes
    headers: dict[str, str]
    status: int


class Sink:
    """Answers 204 on every path until `script` says otherwise for one.

    Attributes:
        hangs: seconds by path before an answer that takes nothing comes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, list[Call]] = defaultdict(list)
        self._scripts: dict[str, Callable[[MessageRef], int]] = {}
        self._server = LoopbackServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="sink", daemon=True)
        self.hangs: dict[str, float] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/{path}"

    def script(self, path: str, answer: Callable[[MessageRef], int]) -> None:
        """Let `answer` choose the status of each call on a path; one at a time."""
        self._scripts[path] = answer

    def calls(self, path: str) -> list[Call]:
        """Return the calls on a path so far, in the order of their answers."""
        with self._lock:
            return list(self._calls[path])

    def taken(self, path: str) -> list[Call]:
        return [call for call in self.calls(path) if call.status == TAKES]

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> int:
        ref = MessageRef.parse(headers["ce-fairboxref"])
        with self._lock:
            script = self._scripts.get(path)
            status = TAKES if script is None else script(ref)
            self._calls[path].append(Call(ref, time.time(), body, headers, status))
        return status


def _handler(sink: Sink) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = sink.answer(self.path.lstrip("/"), headers, body)
            text = b"" if status == TAKES else b"not now"
            lines = f"HTTP/1.1 {status} X\r\n"
            if status != TAKES:
                time.sleep(sink.hangs.get(self.path.lstrip("/"), 0))
            if text:
                lines += f"Content-Length: {len(text)}\r\n"
            self.wfile.write(lines.encode() + b"\r\n" + text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's
            """Say nothing."""

    return Handler
