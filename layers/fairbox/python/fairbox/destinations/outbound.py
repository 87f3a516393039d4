"""HTTP calls to addresses from outside: resolved once, checked, and bounded in time.

`h11` speaks HTTP/1.1. The socket is ours, because it goes to an address that was checked, and
because every step on it ends at the deadline of the whole call.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import h11
import urllib3
from urllib3.util import connection
from urllib3.util.wait import wait_for_read

from fairbox.destinations.addresses import is_public, resolve, within
from fairbox.destinations.outcomes import refused, unreachable
from fairbox.errors import InvalidInput
from fairbox.model.redaction import secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairbox.dispatch.ports import Outcome

MAX_ANSWER: Final = 1024
_MAX_HEADERS: Final = 65_536
_READ_BYTES: Final = 65_536
_COPIED_BYTES: Final = 65_536  # of a body that goes with its headers in one write
_IDLE_SECONDS: Final = 30.0
MAX_IDLE: Final = 256
"""Open connections that a process keeps: those of two visits of 125 calls; Lambda has 1,024."""
_MAX_TRIED: Final = 3
_AT_ONCE: Final[list[tuple[int, int, int | bytes]]] = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]


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
        # an international name has several spellings, and only one of them would be checked
        if not text.isascii():
            raise InvalidInput("destination", "an https address in ASCII")
        try:
            url = urllib3.util.parse_url(text)
        except urllib3.exceptions.LocationParseError:
            raise InvalidInput("destination", "an https address") from None

        host = url.host or ""
        name = host.rstrip(".")
        if url.scheme not in ("https", "http") or not name:
            raise InvalidInput("destination", "an https address with a host")
        if url.auth is not None or url.fragment is not None or "%" in host:
            raise InvalidInput("destination", "an address without user, fragment or zone")

        default = 443 if url.scheme == "https" else 80
        port = url.port or default
        netloc = name if port == default else f"{name}:{port}"
        return cls(url.scheme, host.strip("[]"), port, url.request_uri, netloc)

    @property
    def name(self) -> str:
        """The host as certificates name it: without the dot that ends an absolute name."""
        return self.host.rstrip(".")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a receiver: status, headers (names in lower case), 1,024 bytes of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Call:
    """One call: its head and body, and the time by which it ends."""

    def __init__(
        self, head: h11.Request, body: bytes, timeout: float, monotonic: Callable[[], float]
    ) -> None:
        self.head = head
        self.body = body
        self.timeout = timeout
        self._monotonic = monotonic
        self._deadline = monotonic() + timeout

    def left(self) -> float:
        """Return the seconds that are left, over 0.

        Raises:
            TimeoutError: there are none.
        """
        left = self._deadline - self._monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _Line:
    """A connection to a checked address.

    Attributes:
        address: where it goes.
        used: when it was last used.
        answered: whether anything came since the present call began.
    """

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.address = address
        self.used = 0.0
        self.answered = False
        self._sock = sock
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEADERS)

    def exchange(self, call: _Call) -> Answer:
        """Make the call. A received status counts, even if the body behind it is cut off.

        Raises:
            OSError: the connection broke, or the time is over (TimeoutError).
            h11.ProtocolError: it was closed without an answer, or the answer is malformed.
        """
        self.answered = False
        try:
            self._send(call)
        except TimeoutError:
            raise
        except OSError:
            pass  # an early answer may lie there to be read

        event = self._next(call)
        while isinstance(event, h11.InformationalResponse):
            event = self._next(call)
        if not isinstance(event, h11.Response):
            raise h11.RemoteProtocolError("no answer")

        names = {name.decode(): value.decode("latin-1") for name, value in event.headers}
        body = bytearray()
        with suppress(OSError, h11.RemoteProtocolError):
            while len(body) <= MAX_ANSWER and isinstance(part := self._next(call), h11.Data):
                body += part.data
        return Answer(event.status_code, names, bytes(body[:MAX_ANSWER]))

    def renew(self) -> bool:
        """Make it ready for another call; return whether it can make one."""
        whole = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        # unread bytes would be taken for the answer to the next call
        if not whole or self._http.trailing_data[0]:
            return False
        self._http.start_next_cycle()
        return True

    def is_dropped(self) -> bool:
        """Whether the other side closed it, or sent unrequested bytes."""
        return wait_for_read(self._sock, timeout=0.0)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def _send(self, call: _Call) -> None:
        events = (call.head, h11.Data(call.body), h11.EndOfMessage())
        parts = [self._http.send(event) or b"" for event in events]
        # one packet in place of two; a large body is not copied for it
        if len(call.body) <= _COPIED_BYTES:
            parts = [b"".join(parts)]
        for part in filter(None, parts):
            self._sock.settimeout(call.left())  # of all of it, unlike that of `recv`
            self._sock.sendall(part)

    def _next(self, call: _Call) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._sock.settimeout(call.left())
            data = self._sock.recv(_READ_BYTES)
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise ConnectionResetError  # before the status and the headers were there
            self.answered = True
            self._http.receive_data(data)
        return event


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
            # closed outside of the lock, for which other calls wait
            over = [next(iter(self._lines))] if len(self._lines) > self._most else []
            for oldest in over:
                del self._lines[oldest]
        for oldest in over:
            oldest.close()

    def take(self, owner: object) -> _Line | None:
        """Return the owner's connection that was used last; None: it has none."""
        with self._lock:
            # the one used last is the least likely to be closed by the other side
            found = next((x for x in reversed(self._lines) if self._lines[x] is owner), None)
            if found is not None:
                del self._lines[found]
            return found

    def abandon(self, owner: object) -> None:
        """Close the connections of an owner that is gone.

        It takes no lock: a garbage collection may call it in a thread that holds the lock.
        """
        for line, theirs in list(self._lines.items()):
            # it stays in the list, and leaves as the oldest one does: removal would need the lock
            if theirs is owner:
                line.close()


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
        try:
            call = _Call(self._head(headers, body), body, timeout, self._monotonic)
        except h11.LocalProtocolError as error:
            return refused(f"HTTP cannot carry the headers: {error}", fault="message")
        try:
            found = within(timeout, self._lookup, self._url.host, self._url.port)
        except OSError:
            return unreachable("the host's name cannot be resolved")
        # only these are connected to: a second lookup could answer otherwise
        addresses = [a for a in found if self._allow_private or is_public(a)]
        if not addresses:
            return refused("the host has no public address", fault="destination")

        line = self._take_idle(addresses)
        if line is not None:
            answer = self._exchange(line, call, again=True)
            # None: the connection had been closed while idle, so a fresh one makes the call
            if answer is not None:
                return answer

        opened = self._open(addresses[:_MAX_TRIED], call)
        if not isinstance(opened, _Line):
            return opened
        answer = self._exchange(opened, call, again=False)
        return answer or refused("no answer", fault="destination")

    def close(self) -> None:
        """Close the idle connections; the next call opens one."""
        while (line := self._idle.take(self._owner)) is not None:
            line.close()

    def _head(self, headers: Mapping[str, str], body: bytes) -> h11.Request:
        named = {"host": self._url.netloc, **headers, "content-length": str(len(body))}
        return h11.Request(method="POST", target=self._url.target, headers=list(named.items()))

    def _take_idle(self, addresses: Sequence[str]) -> _Line | None:
        while (line := self._idle.take(self._owner)) is not None:
            fresh = self._monotonic() - line.used < _IDLE_SECONDS
            # a name that moved away leaves its old addresses
            if fresh and line.address in addresses and not line.is_dropped():
                return line
            line.close()
        return None

    def _open(self, addresses: Sequence[str], call: _Call) -> _Line | Outcome:
        """Return a connection to the first address that accepts one.

        Each has an equal share of the time that is left, so that one that swallows everything
        leaves some to the next.
        """
        failure = "no time left"
        for n, address in enumerate(addresses):
            try:
                return self._connect(address, call.left() / (len(addresses) - n))
            except (OSError, ValueError) as error:
                failure = _name(error)
        return unreachable(f"cannot connect: {failure}")

    def _connect(self, address: str, seconds: float) -> _Line:
        end = self._monotonic() + seconds
        sock = connection.create_connection(
            (address, self._url.port), seconds, socket_options=_AT_ONCE
        )
        if self._url.scheme == "http":
            return _Line(sock, address)

        try:
            sock.settimeout(max(end - self._monotonic(), 0.001))
            return _Line(self._context().wrap_socket(sock, server_hostname=self._url.name), address)
        except BaseException:
            sock.close()
            raise

    def _context(self) -> ssl.SSLContext:
        with self._lock:  # 125 first calls at once make one
            if self._tls is None:
                self._tls = ssl.create_default_context()
                self._tls.set_alpn_protocols(["http/1.1"])
            return self._tls

    def _exchange(self, line: _Line, call: _Call, *, again: bool) -> Answer | Outcome | None:
        """Make the call on a connection; None where an idle one had been closed: call again."""
        kept = False
        try:
            answer = line.exchange(call)
            kept = line.renew()
        except TimeoutError:
            return refused(f"no answer in {call.timeout:g} s", fault="destination")
        except (OSError, h11.ProtocolError) as error:
            # behind a part of an answer, or on a new connection, the message may have been taken
            if again and not line.answered:
                return None
            return refused(f"no answer: {_name(error)}", fault="destination")
        finally:
            if not kept:
                line.close()

        if kept:
            line.used = self._monotonic()
            self._idle.put(self._owner, line)
        return answer


def _name(error: BaseException) -> str:
    """Return the kind of a failure without its text, because texts of libraries show addresses."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid ({error.verify_message})"
    if isinstance(error, h11.RemoteProtocolError):
        return "it is not HTTP/1.1"
    return type(error).__name__
