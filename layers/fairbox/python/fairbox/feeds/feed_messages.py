"""Messages of feeds as clients get them, made once, and their publication under numbers."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.cloudevents.writing import is_json_text
from fairbox.errors import BodyTooLarge, FeedFull, InvalidInput, Throttled
from fairbox.model.chunks import chunks
from fairbox.model.clock import milliseconds
from fairbox.model.event_attributes import is_json, is_media_type
from fairbox.model.feed_types import BUNDLE_MESSAGES, MAX_BODY, Feed
from fairbox.model.messages import MAX_KEY_BYTES, check_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairbox.tables.feed_topics import Bundle, FeedTopics, TopicState

BUNDLE_BYTES: Final = 24 * 1024
"""Bytes of a bundle as it is sent."""
MAX_NESTING: Final = 100
"""Of a JSON body: parsers of clients have limits of their own."""
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET: Final = re.compile(r"[][{}]")
_AROUND: Final = 20  # bytes: brackets, commas, and a number of 16 digits


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


def text_of(message_id: str, body: bytes, content_type: str) -> str:
    """Return the text that a client gets behind a message's number: `"id",body`.

    A body whose content type is not JSON follows in base64, and then `"b64"`.

    Raises:
        InvalidInput: the id is empty or too long, the body is not bytes or not the JSON that its
            content type says, or the content type is none.
        BodyTooLarge: it has over 90 KB.
    """
    if not message_id or check_text("id", message_id) is None:
        raise InvalidInput("id", f"1 to {MAX_KEY_BYTES} bytes of text")
    if not isinstance(body, bytes):
        raise InvalidInput("body", f"bytes, got {type(body).__name__}")
    if len(body) > MAX_BODY:
        raise BodyTooLarge(len(body), MAX_BODY)
    if not isinstance(content_type, str) or not is_media_type(content_type):
        raise InvalidInput("content_type", "a media type of at most 255 ASCII characters")

    named = json.dumps(message_id, ensure_ascii=False)
    if not is_json(content_type):
        return f'{named},"{base64.b64encode(body).decode()}","b64"'
    try:
        text = body.decode()
    except UnicodeDecodeError:
        # no JSON text is empty, so it is refused below
        text = ""
    if not is_json_text(text):
        raise InvalidInput("body", f"JSON in UTF-8, as content_type {content_type!r} says")
    if _nesting(text) > MAX_NESTING:
        raise InvalidInput("body", f"JSON that is nested at most {MAX_NESTING} deep")
    return f"{named},{text}"


def sent_bytes(text: str) -> int:
    """Return the bytes of a message as it is sent."""
    return len(text.encode()) + _AROUND


def bundles_of(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield texts in order, as many together as a bundle takes; a larger one is alone."""
    return chunks(
        texts,
        sent_bytes,
        items_most=BUNDLE_MESSAGES,
        bytes_most=BUNDLE_BYTES,
    )


def _nesting(text: str) -> int:
    """Return how deep arrays and objects are nested."""
    deepest = depth = 0
    # brackets inside of texts do not nest
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
