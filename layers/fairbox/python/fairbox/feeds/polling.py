"""Long poll: the same requests without a connection, where a network blocks WebSockets."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import FairboxError
from fairbox.feeds.answers import Refusal, answer
from fairbox.feeds.feed_requests import parse
from fairbox.feeds.tokens import check_token
from fairbox.model.feed_types import is_number
from fairbox.tables.feed_connections import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.feeds.asking import Asking
    from fairbox.feeds.tokens import TokenKeys
    from fairbox.model.clock import Clock
    from fairbox.tables.feed_polls import FeedPolls

MAX_WAIT: Final = 20
"""Seconds for which a poll is held."""
PAUSE: Final = 1
"""Seconds between two readings of a held poll."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, body and headers of an HTTP response."""

    status: int
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Polling:
    """Answers polls.

    Args:
        most: maximum number of polls held at a time, 0 to 200: the row has about 50 bytes of each.
    """

    def __init__(
        self, keys: TokenKeys, asking: Asking, polls: FeedPolls, clock: Clock, most: int
    ) -> None:
        self._keys = keys
        self._asking = asking
        self._polls = polls
        self._clock = clock
        self._most = most

    def poll(self, id_: str, authorization: str, text: str) -> Reply:
        """Answer a `sync` at once if there is news; else hold it for up to `wait` seconds.

        One answer costs as much as `sync` without the connection; a held poll costs this each
        second, and 2 WRU.

        Args:
            id_: of the poll, another one each time.
            authorization: header `Authorization`, `Bearer <token>`.
            text: the request.

        Returns:
            200 with an answer; 204 if there is no news, with `Retry-After` if the poll was not
            held because `most` others are; 400 or 401 with an answer that names the error.

        Raises:
            Throttled, Unavailable, Unreadable: it may be asked again.
        """
        now = self._clock.now()
        scheme, _, token = authorization.strip().partition(" ")
        claims = check_token(self._keys, token.strip(), now) if scheme.lower() == "bearer" else None
        if claims is None:
            refused = Refusal(None, "not_allowed", "Authorization: expected 'Bearer' and a token")
            return Reply(401, answer(None, refused=[refused]), {"WWW-Authenticate": "Bearer"})

        request, wrong = _parse(text)
        if wrong:
            number = request.get("id") if is_number(request.get("id")) else None
            return Reply(400, answer(number, refused=[Refusal(None, "bad_request", wrong)]))

        client = Connection(claims.user, frozenset(claims.allow))
        asked = (client, request["id"], request["topics"])
        body, news = self._asking.poll(*asked)
        if news:
            return Reply(200, body)
        end = now + request.get("wait", 0)
        if end == now:
            return Reply(204)

        # with its end: behind that, others may take its place, even if nobody releases it
        poll = f"{end:.0f} {id_}"
        if not self._polls.hold(poll, self._most):
            return Reply(204, headers={"Retry-After": str(MAX_WAIT)})
        try:
            while not news and (left := end - self._clock.now()) > 0:
                self._clock.sleep(min(PAUSE, left))
                body, news = self._asking.poll(*asked)
        finally:
            # where it fails, the poll counts a while longer
            with suppress(FairboxError):
                self._polls.release(poll)
        return Reply(200, body) if news else Reply(204)


def _parse(text: str) -> tuple[dict[str, Any], str]:
    """Return a request, and its error; empty: it is valid."""
    request, wrong = parse(text)
    wait = request.get("wait", 0)
    if not wrong and request["op"] != "sync":
        wrong = "op: expected 'sync': a poll follows no topic that it could leave"
    elif not wrong and not (type(wait) in (int, float) and 0 <= wait <= MAX_WAIT):
        wrong = f"wait: expected 0 to {MAX_WAIT} seconds"
    return request, wrong
