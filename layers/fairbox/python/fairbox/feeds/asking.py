"""Asking: one request subscribes, resumes, acknowledges and repairs; answers are JSON text."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from fairbox.errors import InvalidInput, UnknownFeed
from fairbox.feeds.feed_messages import BUNDLE_BYTES, sent_bytes
from fairbox.model.feed_types import MAX_NUMBER, MAX_TOPICS, Feed, Kind, is_number, split_topic
from fairbox.tables.feed_connections import Connection, FeedConnections, FeedLeases, lease_sk
from fairbox.tables.feed_rows import FeedRows
from fairbox.tables.feed_topics import Bundle, FeedTopics, TopicState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairbox.tables.calls import Calls

ANSWER_BYTES: Final = 32 * 1024
"""Bytes that API Gateway meters as one; a larger message is answered alone."""
_AROUND_ENTRY: Final = 50  # bytes: brackets, two numbers of 16 digits, a note
Code = Literal["bad_request", "not_allowed", "unknown_feed", "too_many_topics", "reconnect"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Says that one topic of a request is no good; `topic` None: that the whole request is none."""

    topic: str | None
    code: Code
    text: str


@dataclass(slots=True)
class Entry:
    """The part of an answer about one topic: the messages behind a position.

    Attributes:
        topic: `feed/key`.
        after: the position that it follows.
        upto: the position behind it; a number in between that has no message is lost.
        messages: texts by number.
        note: `more` is there; or it begins anew (`reset`), for the position was none of the topic.
    """

    topic: str
    after: int
    upto: int
    messages: list[tuple[int, str]] = field(default_factory=list)
    note: Literal["", "more", "reset"] = ""

    def __str__(self) -> str:
        """Return its JSON."""
        messages = ",".join(f"[{number},{text}]" for number, text in self.messages)
        note = f',"{self.note}"' if self.note else ""
        return f"[{_json(self.topic)},{self.after},{self.upto},[{messages}]{note}]"


class ConnectionGone(Exception):
    """The connection has no row, or not the one that was read: its client is to connect anew."""


class Asking:
    """Answers the requests of clients."""

    def __init__(self, calls: Calls, table: str, connections: FeedConnections) -> None:
        self._feeds = FeedRows(calls, table)
        self._topics = FeedTopics(calls, table)
        self._connections = connections
        self._leases = FeedLeases(calls, table)

    def sync(self, connection_id: str, request: int, positions: Mapping[str, object]) -> str:
        """Make a connection follow topics, acknowledge its positions, and return newer messages.

        It costs 1 RRU and 1 for a topic (2 for a private one) if they have up to 4 KB; 0.5 RRU and
        up to 2 WRU for a topic that the connection did not follow; 1 WRU for a private topic with
        a new acknowledgement; and the reads of the log.

        Args:
            connection_id: API Gateway's.
            request: its id.
            positions: by topic, the number of the last message that the client took; None: begin.

        Returns:
            The answer's JSON. If one topic is refused, the others are still answered.

        Raises:
            ConnectionGone: the connection has no row.
            Throttled, Unavailable, Unreadable: it may be asked again.
        """
        connection = self._connections.find(connection_id)
        if connection is None:
            raise ConnectionGone
        feeds, refused = self._admit(connection, positions)

        # whatever is published from here on is sent to this connection, or read below
        self._join(connection_id, [t for t in feeds if t not in connection.topics], feeds)

        return self._answer(feeds, refused, positions, request)[0]

    def poll(
        self, client: Connection, request: int, positions: Mapping[str, object]
    ) -> tuple[str, bool]:
        """Answer a client that has no connection, as `sync`; it follows nothing.

        Returns:
            The answer, and whether there is news: messages, refusals, resets or new topics.
        """
        feeds, refused = self._admit(client, positions)
        return self._answer(feeds, refused, positions, request)

    def _answer(
        self,
        feeds: Mapping[str, Feed],
        refused: Sequence[Refusal],
        positions: Mapping[str, object],
        request: int,
    ) -> tuple[str, bool]:
        """Return the answer about these topics, and whether it is news."""
        asked = {t: p for t, p in positions.items() if t in feeds and isinstance(p, int)}
        states = self._acknowledge(feeds, asked)
        readings = [self._reading(f, t, asked.get(t), states[t]) for t, f in feeds.items()]
        alone = _fill(readings, request)

        if alone is not None:
            return answer(request, [alone.entry], {alone.entry.topic: alone.feed.kind}), True
        kinds = {topic: feed.kind for topic, feed in feeds.items()}
        entries = [reading.entry for reading in readings]
        begins = len(asked) < len(feeds)
        news = bool(refused) or begins or any(one.messages or one.note for one in entries)
        return answer(request, entries, kinds, refused), news

    def _admit(
        self, connection: Connection, positions: Mapping[str, object]
    ) -> tuple[dict[str, Feed], list[Refusal]]:
        """Return the feed of each topic that the connection may ask for, and why of the others."""
        room = MAX_TOPICS - len(connection.topics)
        feeds: dict[str, Feed] = {}
        refused: list[Refusal] = []
        for topic, position in positions.items():
            feed = self._admitted(connection, topic, position)
            if isinstance(feed, Refusal):
                refused.append(feed)
            elif topic in connection.topics or room > 0:
                room -= topic not in connection.topics
                feeds[topic] = feed
            else:
                text = f"at most {MAX_TOPICS} topics a connection: leave others first"
                refused.append(Refusal(topic, "too_many_topics", text))

        return feeds, refused

    def _admitted(self, connection: Connection, topic: str, position: object) -> Feed | Refusal:
        try:
            name, _ = split_topic(topic)
        except InvalidInput as error:
            return Refusal(topic, "bad_request", str(error))
        if position is not None and not is_number(position):
            text = f"position: expected a whole number from 0 to {MAX_NUMBER}, or null"
            return Refusal(topic, "bad_request", text)

        if not connection.grants & {topic, f"{name}/*"}:
            return Refusal(topic, "not_allowed", "the token allows neither it nor its feed")
        try:
            feed = self._feeds.known(name)
        except UnknownFeed as error:
            return Refusal(topic, "unknown_feed", str(error))
        if feed.kind == "private" and topic not in connection.grants:
            text = "the token allows its feed, and of a private topic it must name the topic"
            return Refusal(topic, "not_allowed", text)
        return feed

    def _join(self, connection_id: str, new: Sequence[str], feeds: Mapping[str, Feed]) -> None:
        """Make a connection follow new topics: leases first, then its row."""
        if not new:
            return
        shard = self._connections.shard(connection_id)
        leases = {
            topic: lease_sk(shard, connection_id if feeds[topic].kind == "private" else None)
            for topic in new
        }
        self._leases.take(leases)
        # its row last: a connection must not follow a topic that nobody sends to its shard
        if not self._connections.join(connection_id, new, MAX_TOPICS):
            raise ConnectionGone

    def _acknowledge(
        self, feeds: Mapping[str, Feed], asked: Mapping[str, int]
    ) -> dict[str, TopicState]:
        """Acknowledge the positions in private topics; return the states of all topics after it."""
        states = self._topics.states({t: feed.kind == "private" for t, feed in feeds.items()})
        moved = [
            topic
            for topic, position in asked.items()
            if feeds[topic].kind == "private"
            and states[topic].acknowledged < position <= states[topic].head.last
        ]

        for topic in moved:
            self._topics.acknowledge(topic, asked[topic])
        if moved:
            # what was published in between was not sent where it was beyond the window
            states |= self._topics.states(dict.fromkeys(moved, True))

        return states

    def _reading(self, feed: Feed, topic: str, position: int | None, state: TopicState) -> _Reading:
        head = state.head
        known = position is not None and position <= head.last
        if position is not None and known:
            after = position
        elif feed.kind == "ring":
            after = max(0, head.last - feed.history)
        else:
            after = max(0, head.last - 1) if feed.kind == "snapshot" else state.acknowledged
        entry = Entry(
            topic, after, after, note="reset" if position is not None and not known else ""
        )

        if feed.kind == "snapshot":
            bundles = iter([head] if head.last > after else [])
        else:
            # what has left the ring is not answered, even while DynamoDB still has it
            since = max(after, head.last - feed.size) if feed.kind == "ring" else after
            # messages of a topic are of a size: so much of the log as an answer takes
            page = ANSWER_BYTES // (sum(map(sent_bytes, head.messages)) or ANSWER_BYTES) + 1
            bundles = self._topics.after(topic, since, head, page)
        return _Reading(feed, state, entry, bundles, anew=not known)


def answer(
    request: int | None,
    entries: Sequence[Entry] = (),
    kinds: Mapping[str, Kind] | None = None,
    refused: Sequence[Refusal] = (),
) -> str:
    """Return the JSON of an answer; `request` is the id of the request, None: it had none."""
    parts = [f'"a":{_json(request)}', f'"t":[{",".join(map(str, entries))}]']
    if kinds:
        parts.append(f'"kinds":{_json(kinds)}')
    if refused:
        # escaped, for what was asked may be no text that UTF-8 has
        errors = json.dumps([[one.topic, one.code, one.text] for one in refused])
        parts.append(f'"err":{errors}')
    return f"{{{','.join(parts)}}}"


def frame(entries: Sequence[bytes]) -> bytes:
    """Return the JSON of a frame that is pushed: entries, and no request that they answer."""
    return b'{"t":[%s]}' % b",".join(entries)


@dataclass(slots=True)
class _Reading:
    """A topic that is being read.

    Attributes:
        feed, state: of the topic.
        entry: its answer so far.
        bundles: its stored bundles, in order.
        anew: whether its client begins: messages that expired before are none of its losses.
    """

    feed: Feed
    state: TopicState
    entry: Entry
    bundles: Iterator[Bundle]
    anew: bool
    window_end: int | None = None

    def next(self) -> list[tuple[int, str]] | None:
        """Return the next messages, without taking them; None: there are none."""
        bundle = next(self.bundles, None)
        if bundle is not None and self.feed.kind == "private":
            if self.window_end is None:
                # what is missing before has expired: nobody will acknowledge it
                begin = max(self.state.acknowledged, bundle.first - 1)
                self.window_end = begin + self.feed.window
            if bundle.last > self.window_end:
                bundle = None  # the acknowledgement of what is before it fetches it
        if bundle is None:
            return None

        if self.anew and self.feed.kind == "ring" and not self.entry.messages:
            self.entry.after = self.entry.upto = max(self.entry.after, bundle.first - 1)
        numbered = enumerate(bundle.messages, bundle.last - len(bundle.messages) + 1)
        return [(number, text) for number, text in numbered if number > self.entry.after]

    def take(self, messages: list[tuple[int, str]]) -> None:
        """Answer these messages."""
        self.entry.messages += messages
        self.entry.upto = messages[-1][0]

    def cut(self) -> None:
        """Leave the rest to the next request."""
        if self.entry.upto < self.state.head.last and not self.entry.note:
            self.entry.note = "more"


def _fill(readings: Sequence[_Reading], request: int) -> _Reading | None:
    """Read topics in turn, a bundle at a time, as far as one answer goes.

    Each request begins with the next topic: so no busy topic keeps another one waiting.

    Returns:
        The reading whose one message is larger than an answer, and the only one to be answered.
    """
    used = sum(len(reading.entry.topic.encode()) + _AROUND_ENTRY for reading in readings)
    waiting = deque(readings)
    # a client counts its requests up: the next one begins with another topic
    waiting.rotate(-request)
    empty = True

    while waiting:
        reading = waiting.popleft()
        messages = reading.next()
        if not messages:
            continue
        size = sum(sent_bytes(text) for _, text in messages)
        # alone, since API Gateway sends 128 KB at most, and two such messages may have more
        if size > BUNDLE_BYTES and empty:
            reading.take(messages)
            reading.entry.note = reading.entry.note or "more"
            return reading

        if not empty and used + size > ANSWER_BYTES:
            for cut in (reading, *waiting):
                cut.cut()
            return None

        reading.take(messages)
        used, empty = used + size, False
        waiting.append(reading)

    return None


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
