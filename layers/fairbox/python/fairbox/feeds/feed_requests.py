"""Requests of feeds' clients: `sync` and `leave`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fairbox.errors import InvalidInput
from fairbox.feeds.answers import Refusal, answer
from fairbox.feeds.asking import ConnectionGone
from fairbox.model.feed_types import MAX_TOPICS, is_number, split_topic

if TYPE_CHECKING:
    from fairbox.feeds.asking import Asking
    from fairbox.tables.feed_connections import FeedConnections


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


def _is_topic(name: object) -> bool:
    try:
        return isinstance(name, str) and bool(split_topic(name))
    except InvalidInput:
        return False
