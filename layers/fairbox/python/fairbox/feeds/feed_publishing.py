"""Publishing to a topic: numbers without holes, nothing twice, also with concurrent publishers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairbox.errors import FeedFull, Throttled
from fairbox.feeds.feed_messages import bundles_of
from fairbox.model.clock import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairbox.model.feed_types import Feed
    from fairbox.tables.feed_topics import Bundle, FeedTopics, TopicState


class Publishing:
    """Writes the messages of topics."""

    def __init__(self, topics: FeedTopics) -> None:
        self._topics = topics
        self._clock = topics.calls.clock

    def publish(self, feed: Feed, topic: str, texts: Sequence[str]) -> Iterator[range]:
        """Publish messages a bundle at a time; yield the numbers of each bundle.

        A bundle of a ring or a private topic costs 2 WRU a KB and 1 RRU; the messages of a
        snapshot, of which the last one stays, 1 WRU together.

        Raises:
            FeedFull: the private topic is full.
            Throttled, Unavailable: the next bundle may be published, or may not.
        """
        if feed.kind == "snapshot":
            if texts:
                now = milliseconds(self._clock)
                last = self._topics.count_up(topic, texts[-1], len(texts), now)
                yield range(last - len(texts) + 1, last + 1)
            return

        state: TopicState | None = None
        for bundle in bundles_of(texts):
            state = self._append(feed, topic, bundle, state)
            yield range(state.head.first, state.head.last + 1)

    def _append(
        self, feed: Feed, topic: str, texts: Sequence[str], state: TopicState | None
    ) -> TopicState:
        """Publish one bundle; return the topic as this leaves it.

        `state` is the topic as the bundle before has left it; None: it is read.
        """
        now = milliseconds(self._clock)
        mine: Bundle | None = None
        for _ in self._topics.calls.tries():
            state = state or self._topics.state(topic)

            # the answer to a try was lost, or the caller publishes the same once more
            if state.head.messages == tuple(texts):
                return state
            if mine is not None and self._topics.filed(topic, mine.first) == mine:
                return replace(state, head=mine)

            if feed.kind == "private":
                state = self._with_room(feed, topic, state)
            # before the head is replaced: a writer that stops behind this leaves no hole
            if state.head.messages:
                self._topics.file(topic, state.head, feed.keep)
            mine = state.head.follower(texts, now)
            if self._topics.replace(topic, mine, state.head):
                return replace(state, head=mine)
            # the head is another writer's now
            state = None
        raise Throttled(f"publishing to {topic!r}")

    def _with_room(self, feed: Feed, topic: str, state: TopicState) -> TopicState:
        """Return a private topic's state with room for a bundle, past messages that expired.

        Raises:
            FeedFull: its oldest message is still to be kept.
        """
        while state.depth >= feed.limit:
            first = state.acknowledged + 1
            oldest = self._topics.oldest(topic, first, state.head)
            if oldest.first > first:  # what was before has expired, and DynamoDB deleted it
                upto = oldest.first - 1
            elif oldest.at + feed.keep * 1000 <= milliseconds(self._clock):
                upto = oldest.last
            else:
                raise FeedFull(topic, state.depth, feed.limit)
            state = replace(state, acknowledged=self._topics.acknowledge(topic, upto))
        return state
