"""The facade of feeds, for producers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from fairbox.aws.deployed_settings import settings_with
from fairbox.aws.token_keys import SecretKeys
from fairbox.errors import FairboxError, InvalidInput, MessagesNotWritten, NotConfigured
from fairbox.feeds.feed_messages import Publishing, text_of
from fairbox.feeds.tokens import TokenKeys, make_token
from fairbox.model.clock import Clock, SystemClock
from fairbox.model.feed_types import Feed, FeedTopic, feed_topic
from fairbox.model.ids import IdGenerator
from fairbox.model.messages import check_topic
from fairbox.sdk.clients import make_client
from fairbox.settings import FEEDS_SECRET, FEEDS_TABLE, Settings
from fairbox.tables.calls import Calls
from fairbox.tables.feed_connections import FeedLeases
from fairbox.tables.feed_rows import FeedRows
from fairbox.tables.feed_topics import FeedTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


JSON: Final = "application/json"


class Feeds:
    """Publishes messages for people's screens, on topics named `feed/key`.

    A topic is there from its first message on, and numbers its messages from 1.

    Args:
        dynamodb: boto3's DynamoDB client, or one that has its methods.
        table: name of the feeds table.
        clock, rng: time and jitter; the machine's by default.
        ids: makes UUIDv7 texts.
        keys: sign tokens; `from_env` has those of the deployment.

    Example:
        ```python
        feeds.create(Feed("trades", kind="ring", size=64))
        number = feeds.publish("trades", "btc", b'{"price": 64012}')
        ```
    """

    def __init__(
        self,
        dynamodb: Any,
        *,
        table: str,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        ids: IdGenerator | None = None,
        keys: TokenKeys | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self._clock = clock
        self._keys = keys
        self._ids = ids or IdGenerator(clock)
        calls = Calls(dynamodb, clock, rng or random.SystemRandom())
        self._rows = FeedRows(calls, table)
        self._topics, self._leases = FeedTopics(calls, table), FeedLeases(calls, table)
        self._publishing = Publishing(self._topics)

    @classmethod
    def from_env(
        cls, settings: Settings | None = None, *, client: Callable[[str], Any] = make_client
    ) -> Feeds:
        """Return the feeds that the environment names, over boto3; as `Outbox.from_env`.

        Args:
            settings: settings in place of the environment's.
            client: makes boto3 clients by service name.

        Raises:
            NotConfigured: `FAIRBOX_FEEDS_TABLE` is missing.
            Unavailable: the parameter cannot be read.
        """
        settings = settings_with((FEEDS_TABLE, FEEDS_SECRET), settings, client)
        secret = settings.optional(FEEDS_SECRET)
        keys = (
            SecretKeys(lambda: client("secretsmanager"), secret, SystemClock()) if secret else None
        )
        return cls(client("dynamodb"), table=settings.required(FEEDS_TABLE), keys=keys)

    def create(self, feed: Feed) -> None:
        """Create a feed, or change its numbers, which processes follow within 30 s (1 WRU).

        Raises:
            InvalidInput: it is there, and of another kind.
        """
        self._rows.save(feed)

    def feed(self, name: str) -> Feed:
        """Return a feed as it stands now.

        Raises:
            UnknownFeed: there is no such feed.
        """
        return self._rows.load(check_topic(name, field_name="feed"))

    def feeds(self) -> list[Feed]:
        """Return every feed as it stands now, by name (1 RRU for 4 KB)."""
        return self._rows.all()

    def delete(self, name: str) -> None:
        """Delete a feed, which processes follow within 30 s (1 WRU).

        Its topics take nothing then, and their clients are told when they ask. Messages stay for
        `keep`, and the newest of each topic for ever: so if you create the feed again, numbers go
        on.

        Raises:
            UnknownFeed: there is no such feed.
        """
        self._rows.delete(check_topic(name, field_name="feed"))

    def topic(self, feed: str, key: str) -> FeedTopic:
        """Return the state of a topic, with its last number and its audience (3 RRU).

        Raises:
            UnknownFeed: there is no such feed.
        """
        topic, kind = feed_topic(feed, key), self.feed(feed).kind
        state = self._topics.state(topic)
        audience = self._leases.audience(topic)

        return FeedTopic(
            feed=feed,
            key=key,
            kind=kind,
            last=state.head.last,
            published_at=state.head.at or None,
            unacknowledged=state.depth if kind == "private" else None,
            audience_shards=len(audience),
        )

    def publish(
        self,
        feed: str,
        key: str,
        body: bytes,
        content_type: str = JSON,
        id: str | None = None,  # noqa: A002 - as the message's own attribute is called
    ) -> int:
        """Publish a message to topic `feed/key`; return its number.

        A snapshot costs 1 WRU a KB, another kind 2 WRU a KB and 1 RRU.

        Args:
            feed: the feed's name.
            key: names the topic in the feed: 1 to 256 bytes of text, not `*`.
            body: at most 90 KB.
            content_type: if it is JSON, so must the body be; clients get other bodies in base64.
            id: of the message, 1 to 256 bytes of text; made here unless it is given. A client of a
                ring or a private topic drops a message whose id is among the last 64 that it got
                from the topic.

        Raises:
            UnknownFeed: there is no such feed.
            FeedFull: the private topic takes no message until its client acknowledges some.
            InvalidInput: a field has an invalid value.
            BodyTooLarge: the body has over 90 KB.
            Throttled, Unavailable: it may or may not be published; call again. With an `id` of
                yours, clients still get it once.
        """
        return self.publish_many(feed, key, [body], content_type, ids=id if id is None else [id])[0]

    def publish_many(
        self,
        feed: str,
        key: str,
        bodies: Iterable[bytes],
        content_type: str = JSON,
        ids: Iterable[str] | None = None,
    ) -> list[int]:
        """Publish messages to one topic, in order; return their numbers.

        Up to 16 messages and 24 KB as they are sent are written together, as a bundle: clients get
        all of it or nothing. A bundle costs as much as one message of its size. Of a snapshot the
        last message stays, and 1 WRU a KB of it is all that the call costs.

        Args:
            feed: the feed's name.
            key: names the topic, as for `publish`.
            bodies: at most 90 KB each.
            content_type: of all bodies, as for `publish`.
            ids: as many as there are bodies.

        Raises:
            MessagesNotWritten: the first bundles were published; `.missing` has the ids of the
                others, to be published again.
            FeedFull, UnknownFeed, InvalidInput, BodyTooLarge: as `publish`; nothing was published.
            Throttled, Unavailable: the first bundle may be published, or may not.
        """
        topic = feed_topic(feed, key)
        bodies = list(bodies)
        ids = [self._ids.next() for _ in bodies] if ids is None else list(ids)
        if len(ids) != len(bodies):
            raise InvalidInput("ids", f"{len(bodies)}, as many as there are bodies")
        texts = [text_of(*one, content_type) for one in zip(ids, bodies, strict=True)]

        numbers: list[int] = []
        try:
            for published in self._publishing.publish(self._rows.known(feed), topic, texts):
                numbers += published
        except FairboxError as error:
            if not numbers:
                raise
            # the bundles before it stay: the caller sends again only what the error names
            raise MessagesNotWritten(ids[len(numbers) :], error) from error

        return numbers

    def token(self, user: str, allow: Sequence[str], ttl: int = 60) -> str:
        """Return a token for a client's connection; your service gives it to clients that it knows.

        It is checked when the client connects; the connection lasts for at most two hours.

        Args:
            user: who the client is: 1 to 256 bytes of text.
            allow: the topics that it may follow, `feed/key`, 100 at most; `feed/*` is all topics
                of a feed. Private topics must be named.
            ttl: seconds for which it may connect, up to 300.

        Raises:
            InvalidInput: a field has an invalid value.
            NotConfigured: `FAIRBOX_FEEDS_SECRET` is missing, or package PyJWT
                (`fairbox[feeds]`).
            Unavailable: the secret cannot be read.
        """
        if self._keys is None:
            raise NotConfigured(FEEDS_SECRET)
        return make_token(self._keys, user, allow, ttl, self._clock.now())
