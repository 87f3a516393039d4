"""A server on loopback whose answers are scripts, and a webhook that calls it."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairbox.destinations.outbound import Caller, Url
from fairbox.destinations.webhook import Webhook

from tests.support.destination_examples import FixedClock

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class Server:
    """Answers each request on loopback with the next script; keeps connections open.

    A script that writes by itself ends its connection, but with `keep`. `ended` is released for
    each connection that has ended.
    """

    scripts: list[bytes | Callable[[socket.socket], None]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0
    tls: ssl.SSLContext | None = None
    keep: bool = False
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self._answer(connection)
        self.ended.release()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with contextlib.closing(connection), connection.makefile("rb") as lines:
                while first := lines.readline().decode():
                    headers: dict[str, str] = {}
                    while line := lines.readline().decode().strip():
                        name, _, value = line.partition(": ")
                        headers[name.lower()] = value
                    body = lines.read(int(headers.get("content-length", "0")))
                    self.requests.append((first.strip(), headers, body))
                    script = self.scripts.pop(0) if self.scripts else OK
                    if callable(script):
                        script(connection)
                        if self.keep:
                            continue
                        return
                    connection.sendall(script)

    def webhook(self, **options: object) -> Webhook:
        url = Url.parse(f"http://localhost:{self.port}/hook?token=t")
        caller = Caller(url, allow_private=True, lookup=lambda _h, _p: ["127.0.0.1"])
        return Webhook(caller, **({"clock": FixedClock()} | options))  # type: ignore[arg-type]

    def close(self) -> None:
        self.listener.close()


def status(line: str, *headers: str, body: bytes = b"") -> bytes:
    head = [f"HTTP/1.1 {line}", f"content-length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
