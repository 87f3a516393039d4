"""Feeds: configured names of topics for people's screens."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal, get_args

from fairbox.errors import InvalidInput
from fairbox.model.messages import MAX_KEY_BYTES, check_text, check_topic

Kind = Literal["snapshot", "ring", "private"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
BUNDLE_MESSAGES: Final = 16
"""Messages of a bundle, at most."""
MAX_BODY: Final = 90 * 1024
"""Bytes of a body: in base64 it fits the 128 KB that API Gateway sends at once."""
SHARD_CLIENTS: Final = 250
"""Clients of an audience shard, as many as a visit serves in a fraction of a second."""
MAX_TOPICS: Final = 100
"""Topics of a client."""
MAX_NUMBER: Final = 2**53
"""Of a message: JavaScript's numbers are exact up to here."""
SUBPROTOCOL: Final = "fairbox.v1"
"""The WebSocket subprotocol of clients; beside it they offer `token.` with their token."""
DAY: Final = 86_400
NUMBERS: Final[dict[Kind, tuple[str, ...]]] = {
    "snapshot": (),
    "ring": ("size", "history", "keep"),
    "private": ("limit", "window", "keep"),
}
"""The numbers that each kind has."""
# a window that holds no whole bundle would never let one pass
RANGES: Final = {
    "size": (8, 512),
    "history": (0, 512),
    "limit": (1, 10_000),
    "window": (BUNDLE_MESSAGES, 256),
    "keep": (60, 30 * DAY),
}
"""The least and the most of each number."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A configured name of topics of one kind: topic `trades/btc` is key `btc` of feed `trades`.

    Attributes:
        name: up to 120 letters, digits, `.`, `_`, `-`.
        kind: `snapshot`: a topic keeps its last message; `ring`: its last `size` messages, and
            messages that a slow client missed count as lost; `private`: a queue for one person,
            which refuses messages when it is full and loses none of its messages before `keep` is
            over.
        size: messages of a ring, 8 to 512.
        history: messages of a ring that a newcomer gets, up to `size`.
        limit: unacknowledged messages at which a private topic is full, 1 to 10,000.
        window: unacknowledged messages of a private topic that may be on their way, 16 to 256.
        keep: seconds for which messages of rings and private topics stay, 60 s to 30 days.

    Raises:
        InvalidInput: a field has an invalid value, or belongs to another kind.
    """

    name: str
    kind: Kind = "snapshot"
    size: int = 64
    history: int = 0
    limit: int = 256
    window: int = 32
    keep: int = DAY

    def __post_init__(self) -> None:
        check_topic(self.name, field_name="feed")
        if self.kind not in KINDS:
            raise InvalidInput("kind", "'snapshot', 'ring' or 'private'")

        for field in fields(self)[2:]:
            value, (low, high) = getattr(self, field.name), RANGES[field.name]
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidInput(field.name, f"a whole number from {low} to {high}")
            # refused, not ignored: whoever gives it expects that it does something
            if field.name not in NUMBERS[self.kind] and value != field.default:
                raise InvalidInput(field.name, f"no value: kind {self.kind!r} has none")

        if self.history > self.size:
            raise InvalidInput("history", f"at most the size, {self.size}")


@dataclass(frozen=True, slots=True)
class FeedTopic:
    """A topic of a feed, as it stands.

    Attributes:
        feed, key: it is `feed/key`.
        kind: of its feed.
        last: the number of its newest message; 0: nothing was published.
        published_at: when, in ms since 1970 UTC; None: never.
        unacknowledged: messages of a private topic that its client has not acknowledged; None: the
            topic is of another kind.
        audience_shards: shards with clients that follow it, or have done so within three hours.
    """

    feed: str
    key: str
    kind: Kind
    last: int
    published_at: int | None
    unacknowledged: int | None
    audience_shards: int


def feed_topic(feed: str, key: str) -> str:
    """Return the name of a feed's topic, `feed/key`.

    Raises:
        InvalidInput: the feed's name is none; or the key is empty or too long, has control
            characters, or is `*`, which grants use for all keys.
    """
    check_topic(feed, field_name="feed")
    expected = f"1 to {MAX_KEY_BYTES} bytes of text, not '*'"
    if not isinstance(key, str) or key in ("", "*"):
        raise InvalidInput("key", expected)
    check_text("key", key)
    return f"{feed}/{key}"


def split_topic(topic: str) -> tuple[str, str]:
    """Return feed and key of a topic's name, `feed/key`.

    Raises:
        InvalidInput: it is none, as for `feed_topic`.
    """
    if not isinstance(topic, str):
        raise InvalidInput("topic", f"text 'feed/key', got {type(topic).__name__}")
    # keys may have slashes, names of feeds may not
    feed, _, key = topic.partition("/")
    feed_topic(feed, key)
    return feed, key


def is_number(value: object) -> bool:
    """Return whether this may be the number of a message, or 0."""
    # `True` is an int to `isinstance`
    return type(value) is int and 0 <= value <= MAX_NUMBER
