"""A server on loopback whose answers are scripts, and a webhook that calls it."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import socket
import ssl
import tempfile
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fairbox.destinations.outbound import Caller, Url
from fairbox.destinations.webhook import Webhook

from tests.support.destination_examples import FixedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@functools.cache
def certificate() -> bytes:
    """Return a fresh key and its certificate for localhost, in PEM."""
    name = "localhost"
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=9))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


@functools.cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server with that certificate, and of one who trusts it."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
        pem.write(certificate())
        pem.flush()
        serving.load_cert_chain(pem.name)
        return serving, ssl.create_default_context(cafile=pem.name)


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

    def webhook(
        self, host: str = "localhost", found: Sequence[str] = ("127.0.0.1",), **options: Any
    ) -> Webhook:
        """Return a webhook that calls the server by a name with these addresses."""
        scheme = "https" if self.tls else "http"
        url = Url.parse(f"{scheme}://{host}:{self.port}/hook?token=t")
        tls = contexts()[1] if self.tls else None
        caller = Caller(url, allow_private=True, lookup=lambda _h, _p: found, tls=tls)
        return Webhook(caller, **({"clock": FixedClock()} | options))

    def close(self) -> None:
        self.listener.close()


def status(line: str, *headers: str, body: bytes = b"") -> bytes:
    head = [f"HTTP/1.1 {line}", f"content-length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
