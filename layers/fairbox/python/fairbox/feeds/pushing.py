"""Pushing: frames to the clients of an audience shard, and who does not take them is put out."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.parallel import Run, in_threads
from fairbox.errors import Unavailable, UnknownFeed
from fairbox.feeds.frames import Posting, Slice, frames_of, slices_of
from fairbox.feeds.ringing import Doorbell, News, Ringing, decode
from fairbox.model.feed_types import Feed, split_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from fairbox.tables.feed_connections import FeedConnections
    from fairbox.tables.feed_rows import FeedRows
    from fairbox.tables.feed_topics import Bundle, FeedTopics

LATE_SECONDS: Final = 10
"""Age from which doorbells are not played, but rung once more for the newest of their topics."""
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
        *,
        posting: Posting,
        ringing: Ringing,
        run: Run = in_threads,
    ) -> None:
        self._feeds = feeds
        self._topics = topics
        self._connections = connections
        self._posting = posting
        self._ringing = ringing
        self._clock = topics.calls.clock
        self._run = run

    def push(self, shard: int, doorbells: Iterable[Doorbell], deadline: float) -> Pushed:
        """Send the news of doorbells to the clients of a shard.

        Of a late doorbell, only the news of private topics is sent. For its other topics, one is
        rung behind all waiting doorbells; it brings the newest bundle, and clients ask for more.

        It costs 1 RRU for 4 KB of the clients' rows, or 1 for each named one where all is private;
        1 RRU for a private topic and for one that was late; and 1 WRU for each client that is gone
        or put out.

        Args:
            shard: the audience shard.
            doorbells: up to ten.
            deadline: no post begins after it (seconds since 1970 UTC).

        Raises:
            Throttled, Unavailable: the doorbells are to come again; clients drop known messages.
        """
        rung = list(doorbells)
        news: list[News] = []
        shed: dict[str, Bundle] = {}
        for doorbell in rung:
            late = self._clock.now() - doorbell.rung > LATE_SECONDS
            for one in decode(doorbell):
                if late and one.to is None and one.bundle is not None:
                    # the first one: the delay is told by the oldest
                    shed.setdefault(one.topic, one.bundle)
                else:
                    news.append(one)
        if shed:
            self._ringing.ring_again(shard, sorted(shed), rung)

        bundles = self._bundles(news)
        frames = self._frames(shard, news, bundles) if bundles else {}
        sent = self._posting.send(frames, deadline)

        # put out for an outage that is not theirs, all of them would connect anew at once
        outage = len(frames) >= OUTAGE and 2 * len(sent.failed) > len(frames)
        if outage and max(one.tries for one in rung) < OUTAGE_TRIES:
            failed = f"{len(sent.failed)} of {len(frames)} posts failed"
            raise Unavailable("post_to_connection", failed)
        self._run([partial(self._put_out, id_) for id_ in sent.failed])
        self._run([partial(self._connections.close, id_) for id_ in sent.gone])

        # what nobody follows any more is late for nobody
        brought = chain(shed.values(), *(bundles.values() if frames else ()))
        oldest = min((bundle.at for bundle in brought), default=inf) / 1000
        delay = max(0.0, self._clock.now() - oldest)
        return Pushed(len(frames), sent.frames, len(sent.failed), delay)

    def _put_out(self, id_: str) -> None:
        """Make a client that lacks a frame connect anew, with its positions."""
        told = {"connection": id_}
        logger.info("a client of feeds did not take a frame, and is put out", extra=told)
        # its socket first: a client that has a socket, but no row, would wait for frames
        self._posting.sockets.close(id_)
        self._connections.close(id_)

    def _bundles(self, news: Iterable[News]) -> dict[str, list[Bundle]]:
        """Return the bundles of each topic, each once and in order."""
        bundles: dict[str, dict[int, Bundle]] = defaultdict(dict)
        newest: dict[str, bool] = {}
        for one in news:
            if one.bundle is None:
                # none is private: `ring_again` rings for no such topic
                newest[one.topic] = False
            else:
                bundles[one.topic][one.bundle.first] = one.bundle

        for topic, state in self._topics.states(newest).items():
            if state.head.messages:
                bundles[topic][state.head.first] = state.head

        return {topic: [its[n] for n in sorted(its)] for topic, its in bundles.items()}

    def _frames(
        self, shard: int, news: Sequence[News], bundles: Mapping[str, Sequence[Bundle]]
    ) -> dict[str, list[bytes]]:
        """Return the frames of each client that something is for."""
        named = dict.fromkeys(id_ for one in news for id_ in one.to or ())
        # after the doorbells: whoever joins later reads the head later
        if all(one.to is not None for one in news):
            rows = self._connections.of_shard(shard, named)
        else:
            rows = self._connections.in_shard(shard)
        slices = self._slices(bundles, {one.topic for one in news if one.to is not None})

        # clients that follow the same of these topics get the same frames
        frames: dict[frozenset[str], list[bytes]] = {}
        by_client: dict[str, list[bytes]] = {}
        for id_, connection in rows.items():
            topics = frozenset(connection.topics & slices.keys())
            if not topics:
                continue
            if topics not in frames:
                its = (slices[topic] for topic in slices if topic in topics)
                frames[topics] = frames_of(chain.from_iterable(its))
            by_client[id_] = frames[topics]
        return by_client

    def _slices(
        self, bundles: Mapping[str, Sequence[Bundle]], private: Collection[str]
    ) -> dict[str, list[Slice]]:
        """Return the slices of each topic that may be sent, in order."""
        acknowledged = self._topics.acknowledged(private)
        slices: dict[str, list[Slice]] = {}
        for topic, its in bundles.items():
            feed, sendable = self._feed(topic), its
            if topic in private:
                # those that may be on their way; an acknowledgement fetches the others
                end = acknowledged[topic] + (0 if feed is None else feed.window)
                sendable = [one for one in its if one.last <= end]
            elif feed is not None and feed.kind == "snapshot":
                sendable = its[-1:]  # it has taken the place of the others
            if sendable:
                slices[topic] = list(slices_of(topic, sendable, private=topic in private))
        return slices

    def _feed(self, topic: str) -> Feed | None:
        try:
            return self._feeds.known(split_topic(topic)[0])
        except UnknownFeed:
            return None
