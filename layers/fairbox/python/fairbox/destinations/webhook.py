"""Webhooks: CloudEvents in HTTP binary mode, so that the body arrives byte for byte, signed."""

from __future__ import annotations

import math
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from fairbox.cloudevents import binary_headers, split_headers
from fairbox.cloudevents.writing import encode_header
from fairbox.destinations.outbound import Answer, Caller
from fairbox.destinations.outcomes import gone, refused, throttled, too_large, unreachable
from fairbox.dispatch.ports import TAKEN, Limits, Outcome
from fairbox.errors import FairboxError, NotConfigured
from fairbox.model.messages import MAX_BODY_BYTES, MAX_HEADERS_BYTES
from fairbox.model.redaction import MAX_SEARCHED, redacted_text
from fairbox.model.webhook_signatures import signed_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.model.clock import Clock
    from fairbox.tables.stored_messages import StoredMessage

_DAY: Final = 86_400
_GONE: Final = 410
_TOO_MANY: Final = 429
_UNAVAILABLE: Final = 503
_SERVER_ERROR: Final = 500
_NOT_LET_IN: Final = frozenset({401, 403, 404, 405, 407, 408})
# Of the connection or of this call; a producer's headers do not speak for them.
_OURS: Final = frozenset(
    {
        "connection", "content-length", "content-type", "expect", "host", "http2-settings",
        "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "user-agent",
    }
)  # fmt: skip
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F)))
_OURS_BEGIN: Final = ("ce-", "proxy-", "webhook-")


class Webhook:
    """An HTTP endpoint, one message a call. Signed by the rules of Standard Webhooks.

    The status decides the verdict: 2xx takes; 429, and 503 with `Retry-After`, put off; 410 means
    that the receiver no longer wants messages; all others refuse, redirects included. An answer of
    5xx, or one that denies access, is the destination's fault; other refusals may be one message's.

    Args:
        caller: makes the calls.
        clock: gives the time of an attempt.
        secrets: gives the keys to sign with at each call; none: unsigned.
        max_bytes: of body and headers.
    """

    quick = False

    def __init__(
        self,
        caller: Caller,
        *,
        clock: Clock,
        secrets: Callable[[], Sequence[bytes]] = tuple,
        max_bytes: int = MAX_BODY_BYTES + 4 * MAX_HEADERS_BYTES,
    ) -> None:
        self.limits = Limits(1, max_bytes)
        self._caller = caller
        self._clock = clock
        self._secrets = secrets

    def size(self, message: StoredMessage) -> int:
        """Return the bytes of body and headers."""
        headers, body = self._parts(message)
        return _bytes(headers, body)

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:
        """Post each message, `timeout` seconds each."""
        return [self._send(message, timeout) for message in messages]

    def _send(self, message: StoredMessage, timeout: float) -> Outcome:
        headers, body = self._parts(message)
        if (size := _bytes(headers, body)) > self.limits.bytes:
            return too_large(size, self.limits.bytes)

        try:
            keys = self._secrets()
        # unreachable, not refused: messages wait for a key, and do not die unsigned
        except NotConfigured as error:
            return unreachable(str(error))
        except FairboxError:
            return unreachable("the keys to sign with cannot be read")

        # the time is that of the attempt: receivers refuse old signatures as replays
        headers |= signed_headers(message.message.id, int(self._clock.now()), body, keys)
        answer = self._caller.post(headers, body, timeout)
        return self._outcome(answer, message, body) if isinstance(answer, Answer) else answer

    def _parts(self, message: StoredMessage) -> tuple[dict[str, str], bytes]:
        """Return headers and body; the body's address in place of one that does not fit."""
        headers, body = _headers(message), message.message.body
        if message.offloaded is not None and _bytes(headers, body) > self.limits.bytes:
            return _headers(message, message.offloaded.uri), b""
        return headers, body

    def _outcome(self, answer: Answer, message: StoredMessage, sent: bytes) -> Outcome:
        if 200 <= answer.status < 300:
            return TAKEN

        body = answer.body.decode(errors="replace")
        # an answer may repeat keys of the address, or the message; errors are stored and shown
        text = redacted_text(body, self._caller.secrets, _own(message, sent))
        reason = f"HTTP {answer.status}: {text}" if text.strip() else f"HTTP {answer.status}"
        wait = self._retry_after(answer.headers.get("retry-after", ""))

        if answer.status == _TOO_MANY or (answer.status == _UNAVAILABLE and wait is not None):
            return throttled(reason, wait)
        if 300 <= answer.status < 400:
            reason = f"HTTP {answer.status}: redirects are not followed"
            return refused(reason, fault="destination")
        if answer.status == _GONE:
            return gone(f"HTTP 410, the receiver wants no more: {text}")

        itself = answer.status >= _SERVER_ERROR or answer.status in _NOT_LET_IN
        return refused(reason, wait, fault="destination" if itself else "unknown")

    def _retry_after(self, value: str) -> float | None:
        """Return the seconds asked for, at most a day; None: it is neither number nor date."""
        value = value.strip()
        if value.isascii() and value.isdigit():
            # nine digits are more than a day: longer numbers need no converting
            return float(min(int(value[:9]), _DAY))

        try:
            date = parsedate_to_datetime(value)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        # `-0000` in a date gives a time without a zone, which is UTC
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)

        try:
            wait = date.timestamp() - self._clock.now()
        except (ValueError, OverflowError):
            return None
        return float(min(max(math.ceil(wait), 0), _DAY))


def _headers(message: StoredMessage, uri: str | None = None) -> dict[str, str]:
    """Return the CloudEvents headers, and the message's own beside them."""
    _, rest = split_headers(message.message)
    own = {name.lower(): _plain(value) for name, value in rest.items()}
    # taken as attributes above: tools of tracing look for headers of these names
    tracing = {
        name.lower(): _plain(value)
        for name, value in message.message.headers.items()
        if name.lower() in ("traceparent", "tracestate")
    }

    own = {
        name: value
        for name, value in (own | tracing).items()
        if name not in _OURS and not name.startswith(_OURS_BEGIN)
    }

    agent = {"user-agent": "fairbox", "accept-encoding": "identity"}
    return agent | own | binary_headers(message, uri=uri)


def _plain(value: str) -> str:
    """Return a header's value; characters that HTTP cannot carry are percent-encoded.

    Only values of CloudEvents attributes have the encoding of the HTTP binding.
    """
    return quote(value.strip(" "), safe=_PRINTABLE)


def _own(message: StoredMessage, body: bytes) -> bytes:
    """Return the producer's own bytes: the body, and the values of headers as given and as sent.

    If the body is too long to be searched, it is returned alone.
    """
    if len(body) > MAX_SEARCHED:
        return body
    values = message.message.headers.values()
    # a receiver may quote a header as it got it, encoded
    texts = [text for value in values for text in (value, encode_header(value), _plain(value))]
    return b"\n".join([body, *(text.encode() for text in texts)])


def _bytes(headers: dict[str, str], body: bytes) -> int:
    return len(body) + sum(len(name) + len(value) for name, value in headers.items())
