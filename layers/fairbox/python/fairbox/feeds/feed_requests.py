"""Requests of feeds' clients: `sync` and `leave`, over a connection or by long poll."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import FairboxError, InvalidInput
from fairbox.feeds.asking import Asking, ConnectionGone, Refusal, answer
from fairbox.feeds.tokens import TokenKeys, check_token
from fairbox.model.feed_types import MAX_TOPICS, is_number, split_topic
from fairbox.tables.feed_connections import Connection, FeedConnections, FeedPolls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.model.clock import Clock

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


class Requests:
    """Answers the text that a client sends."""

    def __init__(self, asking: Asking, connections: FeedConnections) -> None:
        self._asking = asking
        self._connections = connections

    def answer(self, connection_id: str, text: str) -> str:
        """Return the answer's text; for an invalid request, it names the error.

        Raises:
            Throttled, Unavailable, Unreadable: the client asks again, as it does without an answer.
        """
        request, wrong = parse(text)
        id_ = request.get("id") if is_number(request.get("id")) else None
        if wrong or id_ is None:
            return answer(id_, refused=[Refusal(None, "bad_request", wrong)])

        try:
            if request["op"] == "sync":
                return self._asking.sync(connection_id, id_, request["topics"])
        except ConnectionGone:
            return answer(id_, refused=[Refusal(None, "reconnect", "the connection has ended")])

        if request["topics"]:
            self._connections.leave(connection_id, set(request["topics"]))
        return f'{{"a":{id_}}}'


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


def parse(text: str) -> tuple[dict[str, Any], str]:
    """Return a request, and its error; empty: it is valid."""
    try:
        request = json.loads(text)
    except (ValueError, RecursionError):
        # it comes from anybody, so it may be no JSON, or nested too deep for the parser
        request = None
    if not isinstance(request, dict):
        return {}, "request: expected a JSON object"

    op, topics = request.get("op"), request.get("topics")
    if op not in ("sync", "leave"):
        wrong = "op: expected 'sync' or 'leave'"
    elif not is_number(request.get("id")):
        wrong = "id: expected a whole number from 0"
    elif not isinstance(topics, dict if op == "sync" else list):
        wrong = "topics: expected an object of positions for 'sync', a list of names for 'leave'"
    elif len(topics) > MAX_TOPICS:
        wrong = f"topics: expected at most {MAX_TOPICS}, got {len(topics)}"
    elif op == "leave" and not all(map(_is_topic, topics)):
        wrong = "topics: expected names 'feed/key'"
    else:
        wrong = ""
    return request, wrong


def _parse(text: str) -> tuple[dict[str, Any], str]:
    """Return a request, and its error; empty: it is valid."""
    request, wrong = parse(text)
    wait = request.get("wait", 0)
    if not wrong and request["op"] != "sync":
        wrong = "op: expected 'sync': a poll follows no topic that it could leave"
    elif not wrong and not (type(wait) in (int, float) and 0 <= wait <= MAX_WAIT):
        wrong = f"wait: expected 0 to {MAX_WAIT} seconds"
    return request, wrong


def _is_topic(name: object) -> bool:
    try:
        return isinstance(name, str) and bool(split_topic(name))
    except InvalidInput:
        return False
