"""HTTP calls to addresses from outside: resolved once, checked, and bounded in time."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from fairbox.destinations.addresses import is_public, resolve, within
from fairbox.destinations.outcomes import refused, unreachable
from fairbox.errors import InvalidInput
from fairbox.model.redaction import secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairbox.dispatch.ports import Outcome

MAX_ANSWER: Final = 1024
_IDLE_SECONDS: Final = 30.0
MAX_IDLE: Final = 256
"""Open connections that a process keeps: those of two visits of 125 calls; Lambda has 1,024."""
_MAX_TRIED: Final = 3
_FAILURES: Final = (OSError, http.client.HTTPException, urllib3.exceptions.HTTPError)


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of an `http` or `https` address."""

    scheme: str
    host: str
    port: int
    target: str
    netloc: str

    @classmethod
    def parse(cls, text: str) -> Url:
        """Return the parts.

        Raises:
            InvalidInput: it is no such address; the field is `destination`.
        """
        if not text.isascii():
            raise InvalidInput("destination", "an https address in ASCII")
        try:
            url = urllib3.util.parse_url(text)
        except urllib3.exceptions.LocationParseError:
            raise InvalidInput("destination", "an https address") from None
        host = url.host or ""
        if url.scheme not in ("https", "http") or not host:
            raise InvalidInput("destination", "an https address with a host")
        if url.auth is not None or url.fragment is not None or "%" in host:
            raise InvalidInput("destination", "an address without user, fragment or zone")
        default = 443 if url.scheme == "https" else 80
        port = url.port or default
        netloc = host if port == default else f"{host}:{port}"
        return cls(url.scheme, host.strip("[]"), port, url.request_uri, netloc)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a receiver: status, headers (names in lower case), 1,024 bytes of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class _Request:
    headers: Mapping[str, str]
    body: bytes
    deadline: float
    timeout: float


@dataclass(slots=True, eq=False)
class _Line:
    """A connection, the checked address that it goes to, and when it was last used."""

    connection: HTTPConnection
    address: str
    used: float = field(default=0.0)


class IdleConnections:
    """Open connections that wait for a call, of all addresses; over the limit the oldest close."""

    def __init__(self, most: int = MAX_IDLE) -> None:
        self._most = most
        self._lines: dict[_Line, object] = {}  # the owner of each, in the order of use
        self._lock = threading.Lock()

    def put(self, owner: object, line: _Line) -> None:
        """Keep a connection until its owner's next call."""
        with self._lock:
            self._lines[line] = owner
            over = [next(iter(self._lines))] if len(self._lines) > self._most else []
            for oldest in over:
                del self._lines[oldest]
        for oldest in over:
            oldest.connection.close()

    def take(self, owner: object) -> _Line | None:
        """Return the owner's connection that was used last; None: it has none."""
        with self._lock:
            found = next((x for x in reversed(self._lines) if self._lines[x] is owner), None)
            if found is not None:
                del self._lines[found]
            return found

    def abandon(self, owner: object) -> None:
        """Close the connections of an owner that is gone.

        It takes no lock: a garbage collection may call it in a thread that holds the lock.
        """
        for line, theirs in list(self._lines.items()):
            if theirs is owner:
                line.connection.close()


class Caller:
    """Posts to one address.

    The name is resolved for each call; the connection goes to an address that was checked then, so
    a name that resolves differently between check and connection leads nowhere. TLS verifies the
    certificate for the name. Redirects are not followed, proxies of the environment not used.

    Args:
        url: the address.
        allow_private: allow private addresses.
        lookup: gives a host's addresses, or raises OSError.
        tls: the context to verify with; by default that of the system's authorities.
        monotonic: seconds that never step back.
        idle: the open connections, of which callers can share the limit.
    """

    def __init__(
        self,
        url: Url,
        *,
        allow_private: bool = False,
        lookup: Callable[[str, int], Sequence[str]] = resolve,
        tls: ssl.SSLContext | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        idle: IdleConnections | None = None,
    ) -> None:
        self._url = url
        self._allow_private = allow_private
        self._lookup = lookup
        self._tls = tls
        self._monotonic = monotonic
        self._idle = idle or IdleConnections()
        self._owner = object()
        self._lock = threading.Lock()
        # not __del__: in a cycle, the connections may be finalized before it
        weakref.finalize(self, self._idle.abandon, self._owner)

    @property
    def secrets(self) -> list[str]:
        """Parts of the address that nobody else may see: the values of its query."""
        return secrets_of(self._url.target)

    def post(self, headers: Mapping[str, str], body: bytes, timeout: float) -> Answer | Outcome:
        """Post and return the answer, or the outcome where there is none in `timeout` seconds."""
        request = _Request(headers, body, self._monotonic() + timeout, timeout)
        try:
            found = within(timeout, self._lookup, self._url.host, self._url.port)
        except OSError:
            return unreachable("the host's name cannot be resolved")
        addresses = [a for a in found if self._allow_private or is_public(a)]
        if not addresses:
            return refused("the host has no public address", fault="destination")
        line = self._take_idle(addresses)
        if line is not None:
            answer = self._exchange(line, request, again=True)
            if answer is not None:
                return answer
        opened = self._open(addresses, request)
        if not isinstance(opened, _Line):
            return opened
        answer = self._exchange(opened, request, again=False)
        return answer or refused("no answer", fault="destination")

    def close(self) -> None:
        """Close the idle connections; the next call opens one."""
        while (line := self._idle.take(self._owner)) is not None:
            line.connection.close()

    def _take_idle(self, addresses: Sequence[str]) -> _Line | None:
        while (line := self._idle.take(self._owner)) is not None:
            fresh = self._monotonic() - line.used < _IDLE_SECONDS
            if fresh and line.address in addresses:
                return line
            line.connection.close()
        return None

    def _open(self, addresses: Sequence[str], request: _Request) -> _Line | Outcome:
        failure = "no address"
        for address in addresses[:_MAX_TRIED]:
            left = request.deadline - self._monotonic()
            if left <= 0:
                break
            connection = self._connection(address, left)
            try:
                connection.connect()
            except (*_FAILURES, ValueError) as error:
                connection.close()
                failure = _name(error)
            else:
                return _Line(connection, address)
        return unreachable(f"cannot connect: {failure}")

    def _connection(self, address: str, timeout: float) -> HTTPConnection:
        if self._url.scheme == "http":
            return HTTPConnection(address, self._url.port, timeout=timeout)
        with self._lock:  # 125 first calls at once make one
            if self._tls is None:
                self._tls = ssl.create_default_context()
        return HTTPSConnection(
            address,
            self._url.port,
            timeout=timeout,
            ssl_context=self._tls,
            server_hostname=self._url.host,
            assert_hostname=self._url.host,
        )

    def _exchange(self, line: _Line, request: _Request, *, again: bool) -> Answer | Outcome | None:
        """Make the call on a connection; None where an idle one had been closed: call again."""
        connection = line.connection
        left = request.deadline - self._monotonic()
        watch = _Watch(connection.sock, left)
        answer: Answer | None = None
        whole = False
        names: dict[str, str] = {}
        try:
            connection.timeout = max(left, 0.001)
            with suppress(BrokenPipeError):  # an early answer may lie there to be read
                self._ask(connection, request)
            response = connection.getresponse()
            if watch.fired:  # the end of a cut connection reads like the end of the headers
                return _late(request)
            names = {name.lower(): value for name, value in response.headers.items()}
            answer = Answer(response.status, names, b"")
            body = response.read(MAX_ANSWER + 1, decode_content=False)
            answer = Answer(response.status, names, body[:MAX_ANSWER])
            whole = len(body) <= MAX_ANSWER and not response.read(1)
        except _FAILURES as error:
            if answer is None and not watch.fired and not isinstance(error, TimeoutError):
                closed = isinstance(error, ConnectionError | urllib3.exceptions.ProtocolError)
                silent = refused(f"no answer: {_name(error)}", fault="destination")
                return None if again and closed else silent
            if answer is None:
                return _late(request)
        finally:
            watch.stop()
            if whole and not watch.fired and names.get("connection", "").lower() != "close":
                line.used = self._monotonic()
                self._idle.put(self._owner, line)
            else:
                connection.close()
        return answer

    def _ask(self, connection: HTTPConnection, request: _Request) -> None:
        connection.request(
            "POST",
            self._url.target,
            body=request.body,
            headers={"host": self._url.netloc, **request.headers},
            preload_content=False,
            decode_content=False,
        )


class _Watch:
    """Cuts a connection at the deadline: socket time-outs begin anew with each byte."""

    def __init__(self, sock: Any, seconds: float) -> None:
        self.fired = False
        self._sock = sock
        self._timer = threading.Timer(max(seconds, 0.001), self._cut)
        self._timer.daemon = True
        self._timer.start()

    def _cut(self) -> None:
        self.fired = True
        with suppress(OSError):  # of the plain socket: TLS objects are not for two threads
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def stop(self) -> None:
        self._timer.cancel()


def _late(request: _Request) -> Outcome:
    return refused(f"no answer in {request.timeout:g} s", fault="destination")


def _name(error: BaseException) -> str:
    """Return the kind of a failure without its text, because texts of libraries show addresses."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid ({error.verify_message})"
    return type(error).__name__
