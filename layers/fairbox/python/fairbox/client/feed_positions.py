"""The positions of a feeds client: its requests, messages and counts, without I/O and threads.

Its caller opens sockets, waits and sends; see `fairbox.client.feed_client`.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from dataclasses import dataclass, field
from decimal import Decimal
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairbox.errors import FeedRefused, InvalidInput
from fairbox.model.feed_types import KINDS, MAX_NUMBER, MAX_TOPICS, Kind, is_number, split_topic

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from fairbox.model.clock import Clock

MAX_REQUEST: Final = 32 * 1024
"""Bytes of a request: API Gateway closes a socket that sends more at once."""
ANSWER_SECONDS: Final = 10.0
_UNANSWERED: Final = 2  # requests after which the socket counts as dead
_SOON: Final = (0.2, 1.0)  # seconds; these are bounds of random times
_CHECK: Final = (480.0, 540.0)
_LIFE: Final = (96 * 60.0, 114 * 60.0)
_BACKOFF: Final = (0.5, 60.0)
_IDS: Final = 64  # a topic, of messages that were taken last
# a number of over 4,300 digits is none of Python's, and one may be in a body
_JSON: Final = json.JSONDecoder(parse_int=lambda t: int(t) if len(t) < 4000 else Decimal(t))
_KINDS: Final = {kind: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class FeedMessage:
    """A message of a feed's topic.

    Attributes:
        number: counts the topic's messages from 1.
        id: as it was published.
        body: the JSON value; bytes where the content type is not JSON.
    """

    number: int
    id: str
    body: Any


@dataclass(frozen=True, slots=True)
class FeedUpdate:
    """News of one topic: its next messages, and how many the client will never get.

    Attributes:
        topic: `feed/key`.
        kind: the feed's; None with an error.
        messages: in the order of their numbers, each once.
        lost: number of messages up to `position` that no longer exist; those of a snapshot are
            conflated: newer ones took their place.
        reset: the position was none of the topic's (a restored table), and begins anew.
        position: number up to which all messages were taken or counted; None: it never began.
        error: code and text, if the server refuses the topic, which is no longer asked for.
    """

    topic: str
    kind: Kind | None
    messages: tuple[FeedMessage, ...] = ()
    lost: int = 0
    reset: bool = False
    position: int | None = None
    error: tuple[str, str] | None = None


class _Entry(NamedTuple):
    topic: str
    after: int
    upto: int
    messages: list[FeedMessage]
    flag: str


@dataclass(slots=True)
class _Topic:
    """State of a topic: `seen` is the greatest number that was shown since it was asked last."""

    position: int | None
    kind: Kind | None = None
    seen: int = 0
    acknowledged: int = 0
    refused: bool = False
    ids: deque[str] = field(default_factory=lambda: deque(maxlen=_IDS))

    @property
    def behind(self) -> bool:
        """Whether it is to be asked soon: it lacks messages, or has some to acknowledge."""
        position = self.position or 0
        unacknowledged = self.kind == "private" and position > self.acknowledged
        return not self.refused and (self.seen > position or unacknowledged)

    def remember(self, message_id: str) -> bool:
        """Return whether the id is none of the last that were taken; it is one from now on."""
        known = message_id in self.ids
        if not known:
            self.ids.append(message_id)
        return not known


class FeedPositions:
    """The state of one client: a position a topic, and one request under way.

    Call `opened` when there is a new socket, `act` when it is `due`, `received` with each message,
    and `closed` when the socket is gone.

    Args:
        topics: position by topic `feed/key`, 1 to 100 of them; None: begin.

    Raises:
        InvalidInput: a topic is none, a position is no whole number from 0, or they are too many.
    """

    def __init__(
        self, topics: Mapping[str, int | None], *, clock: Clock, rng: random.Random
    ) -> None:
        for name, position in topics.items():
            split_topic(name)
            if position is not None and not is_number(position):
                raise InvalidInput("topics", f"None or a whole number from 0 for {name!r}")
        # with the longest numbers: the request must fit when positions have grown, too
        longest = _sync(MAX_NUMBER, dict.fromkeys(topics, MAX_NUMBER))
        if not 1 <= len(topics) <= MAX_TOPICS or len(longest.encode()) > MAX_REQUEST:
            raise InvalidInput("topics", f"1 to {MAX_TOPICS}, which fit a request of 32 KB")

        self._clock = clock
        self._rng = rng
        self._topics = {name: _Topic(position) for name, position in topics.items()}
        self._requests = 0
        self._asked: dict[str, int | None] = {}
        self._failures = 0
        self.opened()

    @property
    def positions(self) -> dict[str, int | None]:
        """A copy of the position of each topic."""
        return {name: topic.position for name, topic in self._topics.items()}

    def opened(self) -> None:
        """Note a new socket: nothing is under way on it, and it asks at once."""
        self._waiting: int | None = None
        self._unanswered = 0
        self._next = self._clock.now()
        self._replace_at = self._next + self._rng.uniform(*_LIFE)

    def closed(self) -> float:
        """Note that there is no socket; return the seconds to wait before the next is opened."""
        least, most = _BACKOFF
        # ten doublings exceed the bound: after many more, no float would hold the number
        bound = min(most, least * 2 ** min(self._failures, 10))
        self._failures += 1
        return self._rng.uniform(0, bound)

    def due(self) -> float:
        """Return when to act next, in the clock's seconds; infinite: all topics are refused."""
        if all(topic.refused for topic in self._topics.values()):
            return inf
        return min(self._next, self._replace_at)

    def act(self) -> str | None:
        """Return the request to send now, at or after `due`; None: replace the socket."""
        now = self._clock.now()
        if self._waiting is not None:
            self._unanswered += 1
        if self._unanswered >= _UNANSWERED or now >= self._replace_at:
            return None

        self._requests += 1
        self._waiting = self._requests
        self._next = now + ANSWER_SECONDS
        asked = {name: topic for name, topic in self._topics.items() if not topic.refused}
        for topic in asked.values():
            topic.seen = 0  # the answer is read later than what a frame has shown so far
        self._asked = {name: topic.position for name, topic in asked.items()}
        return _sync(self._requests, self._asked)

    def received(self, text: str) -> list[FeedUpdate]:
        """Take a message of the socket and move the positions; return its news.

        A message that is neither frame nor answer, or has a malformed part, is ignored whole.

        Raises:
            FeedRefused: the server refuses all requests of this client.
        """
        try:
            frame = _JSON.decode(text)
            if not isinstance(frame, dict) or frame.keys().isdisjoint(("a", "t")):
                return []
            entries = [_entry(*parts) for parts in frame.get("t", ())]
            kinds = {name: _KINDS[kind] for name, kind in frame.get("kinds", {}).items()}
            errors = {topic: (str(code), str(text)) for topic, code, text in frame.get("err", ())}
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return []

        whole = errors.pop(None, None)
        if whole is not None and whole[0] != "reconnect":
            raise FeedRefused(*whole)
        if whole is not None:
            # its connection has no row any more, and only a new one gets a row
            self._replace_at = self._clock.now()
        # the answer to an earlier request is late: its entries count, but it ends no wait
        current = whole is None and self._waiting is not None and frame.get("a") == self._waiting
        if current:
            self._answered()
        for name in kinds.keys() & self._topics.keys():
            self._topics[name].kind = kinds[name]

        updates = [self._refused(name, error) for name, error in errors.items()]
        updates += [self._taken(entry, "a" in frame, current) for entry in entries]
        # at random: all clients of a topic see the same gap at the same time
        if self._waiting is None and any(topic.behind for topic in self._topics.values()):
            self._next = min(self._next, self._clock.now() + self._rng.uniform(*_SOON))
        return [update for update in updates if update is not None]

    def _answered(self) -> None:
        self._waiting = None
        self._unanswered = self._failures = 0
        self._next = self._clock.now() + self._rng.uniform(*_CHECK)
        # the positions that a request gives are what it acknowledges
        for name, position in self._asked.items():
            self._topics[name].acknowledged = position or 0

    def _refused(self, name: str, error: tuple[str, str]) -> FeedUpdate | None:
        """Stop asking for a topic."""
        topic = self._topics.get(name)
        if topic is None or topic.refused:
            return None
        topic.refused = True
        return FeedUpdate(name, None, position=topic.position, error=error)

    def _taken(self, entry: _Entry, answer: bool, current: bool) -> FeedUpdate | None:
        """Take the messages that follow the position, never messages behind a gap."""
        topic = self._topics.get(entry.topic)
        if topic is None:
            return None

        # a later request than the one that a late answer is to may have been reset already
        reset = current and entry.flag == "reset"
        if reset or (answer and topic.position is None):
            topic.position = entry.after
        position, snapshot = topic.position, topic.kind == "snapshot"
        if position is None or topic.kind is None or (entry.after > position and not snapshot):
            # behind a gap, or before the first answer: the greatest number makes the client ask
            topic.seen = max(topic.seen, entry.upto)
            return None

        new = [message for message in entry.messages if message.number > position]
        # numbers without a message: they have expired, or newer ones have taken their place
        lost = max(0, entry.upto - position) - len(new)
        topic.position = max(position, entry.upto)
        if answer and entry.flag in ("more", "reset"):
            # a number past the position lets the client ask again soon
            topic.seen = entry.upto + 1
        # a publisher that repeats a call may give one message two numbers, but not two ids
        messages = new if snapshot else [m for m in new if topic.remember(m.id)]
        if not (messages or lost or reset):
            return None
        return FeedUpdate(entry.topic, topic.kind, tuple(messages), lost, reset, topic.position)


def _sync(number: int, positions: Mapping[str, int | None]) -> str:
    request = {"op": "sync", "id": number, "topics": dict(positions)}
    return json.dumps(request, separators=(",", ":"), ensure_ascii=False)


def _entry(topic: str, after: int, upto: int, messages: list[Any], *flag: str) -> _Entry:
    """Return an entry; ValueError or TypeError: it is none."""
    found = [_message(*parts) for parts in messages]
    numbers = [after, *(message.number for message in found)]
    whole = all(type(number) is int for number in (upto, *numbers))
    if not (isinstance(topic, str) and whole and after >= 0 and numbers[-1] <= upto):
        raise ValueError(topic)
    if numbers != sorted(set(numbers)):
        raise ValueError(topic)
    return _Entry(topic, after, upto, found, flag[0] if flag else "")


def _message(number: int, message_id: str, body: Any, *coding: str) -> FeedMessage:
    if not isinstance(message_id, str) or coding not in ((), ("b64",)):
        raise ValueError(message_id)
    if coding:
        body = base64.b64decode(body, validate=True)
    return FeedMessage(number, message_id, body)
