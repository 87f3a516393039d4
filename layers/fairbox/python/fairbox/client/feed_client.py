"""A client of feeds over a WebSocket, in its caller's thread."""

from __future__ import annotations

import random
import threading
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, Final

from fairbox.client.feed_positions import FeedPositions, FeedUpdate
from fairbox.errors import FeedRefused, InvalidInput, Throttled, Unavailable
from fairbox.model.clock import Clock, SystemClock
from fairbox.model.feed_types import SUBPROTOCOL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Self


MAX_BYTES: Final = 1024 * 1024
"""Bytes of a message that a client takes: more than API Gateway sends at once."""
_STEP: Final = 0.5  # seconds without a look at the clock, which jumps where a machine slept
_CLOSE_SECONDS: Final = 1.0  # a socket that is given up may be dead
_REFUSED: Final = (401, 403)


class FeedClient:
    """Follows topics of feeds: messages in order, each once, and the number of lost messages.

    Iterate over it: the iterator does all the work in the thread that calls it, and goes on until
    `close`, over broken connections. A caller that takes long for an update delays nobody else.
    Messages of private topics are acknowledged soon after the iterator is called again.

    Args:
        url: of the WebSocket API, `wss://...`.
        topics: position by topic `feed/key`, up to 100 of them, as `positions` gave them; None:
            begin with the feed's history, the snapshot, or unacknowledged messages.
        token: of `Feeds.token`; or a function that returns a new one, called for each connection:
            a text ends after at most 5 minutes, and a connection after 2 hours.
        clock, rng: time and jitter; the machine's by default.

    Raises:
        InvalidInput: the URL is none of a WebSocket, or a topic or position is none.
        ModuleNotFoundError: extra `feeds` is not installed.

    Example:
        ```python
        with FeedClient(url, {"trades/btc": None}, lambda: fetch_token()) as client:
            for update in client:
                show(update.topic, update.messages, update.lost)
        ```
    """

    def __init__(
        self,
        url: str,
        topics: Mapping[str, int | None],
        token: str | Callable[[], str],
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._websockets = _websockets()
        try:
            self._websockets.uri.parse_uri(url)
        except self._websockets.InvalidURI:
            raise InvalidInput("url", "a URL of a WebSocket, as wss://host/stage") from None

        self._url = url
        self._token = token
        self._clock = clock or SystemClock()
        self._core = FeedPositions(topics, clock=self._clock, rng=rng or random.SystemRandom())
        self._positions = self._core.positions
        self._taken: deque[FeedUpdate] = deque()
        self._socket: Any = None
        self._open_at = 0.0
        self._refused = 0
        self._ended = threading.Event()

    @property
    def positions(self) -> dict[str, int | None]:
        """A copy of the position of each topic, behind the updates that were handed out."""
        return dict(self._positions)

    def __iter__(self) -> Iterator[FeedUpdate]:
        """Return `updates()`."""
        return self.updates()

    def updates(self, seconds: float | None = None) -> Iterator[FeedUpdate]:
        """Yield updates until `close`, or for so many seconds, or until all topics are refused.

        A second call goes on where the first has stopped.

        Raises:
            FeedRefused: the server refuses two tokens in a row, or all that is asked.
        """
        until = inf if seconds is None else self._clock.now() + seconds
        while not self._ended.is_set():
            if self._taken:
                update = self._taken.popleft()
                self._positions[update.topic] = update.position
                yield update
                continue

            self._positions = self._core.positions  # some move without an update
            if self._clock.now() >= until or self._core.due() == inf:
                return
            self._step(until)
        self._drop()  # `close` may have come while a socket was opened

    def close(self) -> None:
        """End the iteration, from any thread, and close the connection."""
        self._ended.set()
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()

    def _step(self, until: float) -> None:
        """Do the step that is due, or wait for it, for at most a moment."""
        due = self._open_at if self._socket is None else self._core.due()
        wait = max(0.0, min(due, until, self._clock.now() + _STEP) - self._clock.now())

        if self._socket is None:
            self._clock.sleep(wait) if wait else self._open()
            return

        # before it receives: frames that come all the time keep no request waiting
        if self._clock.now() >= self._core.due():
            self._act()
            return
        try:
            self._taken += self._core.received(self._socket.recv(timeout=wait, decode=True))
        except TimeoutError:
            return
        except self._websockets.ConnectionClosed:
            self._drop()

    def _act(self) -> None:
        request = self._core.act()
        if request is None:
            self._drop()
            return
        try:
            self._socket.send(request)
        except self._websockets.ConnectionClosed:
            self._drop()

    def _open(self) -> None:
        try:
            token = self._token if isinstance(self._token, str) else self._token()

            # entered by hand: not all releases take a connection that is not
            self._socket = self._websockets.sync.client.connect(
                self._url,
                subprotocols=[SUBPROTOCOL, f"token.{token.strip()}"],
                compression=None,
                ping_interval=None,  # API Gateway answers none: the check finds a dead socket
                close_timeout=_CLOSE_SECONDS,
                max_size=MAX_BYTES,
            ).__enter__()
        except (OSError, self._websockets.WebSocketException, Throttled, Unavailable) as error:
            # the last two come from the caller's function, which asks for a token
            status = getattr(getattr(error, "response", None), "status_code", None)
            # one refusal may be of a token that has just ended: only a second one in a row is told
            self._refused += status in _REFUSED
            if self._refused > 1:
                text = f"HTTP {status} for two tokens: look at their key, end and this clock"
                raise FeedRefused("not_allowed", text) from None

            self._drop()
        else:
            self._refused = 0
            self._core.opened()

    def _drop(self) -> None:
        """Give up the socket, if there is one; another is opened after a while."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
        self._open_at = self._clock.now() + self._core.closed()


def _websockets() -> Any:
    # imported where it is used: it is an extra
    try:
        import websockets.sync.client  # noqa: PLC0415
        import websockets.uri  # noqa: PLC0415
    except ModuleNotFoundError as error:
        text = "websockets is missing: install Fairbox with its extra 'feeds'"
        raise ModuleNotFoundError(text, name="websockets") from error
    return websockets
