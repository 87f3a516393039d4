"""Pushing: frames to the clients of an audience shard, and who does not take them is put out."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.calls import in_threads
from fairbox.errors import Unavailable, UnknownFeed
from fairbox.feeds.answers import Entry, frame
from fairbox.feeds.asking import ANSWER_BYTES
from fairbox.feeds.ringing import decode
from fairbox.model.chunks import chunks
from fairbox.model.deadline import NO_TIME
from fairbox.model.feeds import split_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairbox.aws.feed_sockets import FeedSockets, Posted
    from fairbox.dispatch.calls import Run
    from fairbox.feeds.ringing import News
    from fairbox.model.clock import Clock
    from fairbox.tables.feed_connections import FeedConnections
    from fairbox.tables.feed_topics import FeedTopics
    from fairbox.tables.feeds import FeedRows

RETRY_SECONDS: Final = 0.2
"""From a post that failed to its second and last try."""
OUTAGE: Final = 10
"""Clients of a visit, of which more than half did not take a frame: it is not their fault."""
OUTAGE_TRIES: Final = 3
"""Visits for the same doorbells in which nobody is put out after an outage, but in the last."""

logger = logging.getLogger("fairbox")


@dataclass(slots=True)
class Pushed:
    """The result of a visit.

    Attributes:
        clients: that there was something for.
        frames: that they took.
        put_out: clients that did not take a frame, and connect anew.
        delay: seconds from the oldest publish to the end of the visit.
    """

    clients: int = 0
    frames: int = 0
    put_out: int = 0
    delay: float = 0.0


class Pushing:
    """Visits audience shards, one visit of a shard at a time."""

    def __init__(
        self,
        feeds: FeedRows,
        topics: FeedTopics,
        connections: FeedConnections,
        sockets: FeedSockets,
        run: Run = in_threads,
    ) -> None:
        self._feeds = feeds
        self._topics = topics
        self._connections = connections
        self._sockets = sockets
        self._clock = topics.calls.clock
        self._run = run

    def push(
        self, shard: int, doorbells: Iterable[str], *, tries: int = 1, deadline: float
    ) -> Pushed:
        """Send what doorbells bring to the clients of a shard.

        It costs 1 RRU for 4 KB of their rows, or 1 for each named one where all is private; 1 RRU
        for a private topic; and 1 WRU for each client that is gone or put out.

        Args:
            shard: the audience shard.
            doorbells: up to ten.
            tries: how often they came, this time included.
            deadline: no post begins after it (seconds since 1970 UTC).

        Raises:
            Throttled, Unavailable: the doorbells are to come again; clients drop what they have.
        """
        # what came twice is sent once
        brought = chain.from_iterable(map(decode, doorbells))
        news = {(one.topic, one.bundle.first): one for one in brought}
        frames = self._frames(shard, list(news.values()))
        posting = _Posting(self._sockets, self._clock, deadline)
        self._run([partial(posting.send, id_, texts) for id_, texts in frames.items()])

        failed, gone = posting.ended("failed"), posting.ended("gone")
        outage = len(frames) >= OUTAGE and 2 * len(failed) > len(frames)
        if outage and tries < OUTAGE_TRIES:
            raise Unavailable("post_to_connection", f"{len(failed)} of {len(frames)} posts failed")
        self._run([partial(self._put_out, id_) for id_ in failed])
        self._run([partial(self._connections.close, id_) for id_ in gone])

        oldest = min((one.bundle.at for one in news.values()), default=inf) / 1000
        delay = max(0.0, self._clock.now() - oldest)
        return Pushed(len(frames), posting.taken(), len(failed), delay)

    def _put_out(self, id_: str) -> None:
        """Let a client that lacks a frame connect anew, with its positions."""
        told = {"connection": id_}
        logger.info("a client of feeds did not take a frame, and is put out", extra=told)
        # its socket first: a client that has a socket, but no row, would wait for frames
        self._sockets.close(id_)
        self._connections.close(id_)

    def _frames(self, shard: int, news: Sequence[News]) -> dict[str, list[bytes]]:
        """Return the frames of each client that something is for."""
        named = dict.fromkeys(id_ for one in news for id_ in one.to or ())
        # after the doorbells: whoever joins later reads the head later
        if all(one.to is not None for one in news):
            rows = self._connections.of_shard(shard, named)
        else:
            rows = self._connections.in_shard(shard)
        followers: dict[str, list[str]] = {one.topic: [] for one in news}
        for id_, connection in rows.items():
            for topic in connection.topics & followers.keys():
                followers[topic].append(id_)

        entries: dict[str, list[bytes]] = defaultdict(list)
        for one in self._within_windows(news):
            entry = _entry(one)
            for id_ in followers[one.topic]:
                entries[id_].append(entry)
        return {id_: _packed(its) for id_, its in entries.items()}

    def _within_windows(self, news: Sequence[News]) -> list[News]:
        """Return what may be sent, private topics first, each topic in its order."""
        private = {one.topic for one in news if one.to is not None}
        ends = {
            topic: acknowledged + self._window(topic)
            for topic, acknowledged in self._topics.acknowledged(private).items()
        }
        # an acknowledgement fetches the others
        sendable = [one for one in news if one.to is None or one.bundle.last <= ends[one.topic]]
        return sorted(sendable, key=lambda one: (one.to is None, one.topic, one.bundle.first))

    def _window(self, topic: str) -> int:
        try:
            return self._feeds.known(split_topic(topic)[0]).window
        except UnknownFeed:
            return 0


class _Posting:
    """The posts of one visit."""

    def __init__(self, sockets: FeedSockets, clock: Clock, deadline: float) -> None:
        self._sockets = sockets
        self._clock = clock
        self._deadline = deadline
        self._posts: dict[str, list[Posted]] = defaultdict(list)

    def ended(self, how: Posted) -> list[str]:
        """Return the clients whose last post ended so."""
        return [id_ for id_, posts in self._posts.items() if posts[-1] == how]

    def taken(self) -> int:
        """Return how many frames were taken."""
        return sum(posts.count("taken") for posts in self._posts.values())

    def send(self, id_: str, frames: Iterable[bytes]) -> None:
        """Send a client its frames in order, up to one that it does not take."""
        for one in frames:
            posted = self._post(id_, one)
            if posted == "failed":
                self._clock.sleep(RETRY_SECONDS)
                posted = self._post(id_, one)
            self._posts[id_].append(posted)
            if posted != "taken":
                return

    def _post(self, id_: str, one: bytes) -> Posted:
        if self._clock.now() >= self._deadline:
            raise Unavailable("post_to_connection", NO_TIME)
        return self._sockets.post(id_, one)


def _entry(news: News) -> bytes:
    bundle = news.bundle
    numbered = enumerate(bundle.messages, bundle.first)
    return str(Entry(news.topic, bundle.first - 1, bundle.last, list(numbered))).encode()


def _packed(entries: Sequence[bytes]) -> list[bytes]:
    """Return the frames that carry entries in order, each up to what API Gateway meters as one."""
    room = ANSWER_BYTES - len(frame(()))
    parts = chunks(entries, lambda entry: len(entry) + 1, items_most=1000, bytes_most=room)
    return [frame(part) for part in parts]
