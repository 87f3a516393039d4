"""The routes of feeds: feeds, their topics, and tokens for clients."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import unquote

from pydantic import Field

from fairbox.api.field_types import (
    GRANT,
    WHOLE,
    BodyEncoding,
    ContentType,
    In,
    Milliseconds,
    Out,
    Text,
    Whole,
)
from fairbox.api.publish_routes import body_bytes
from fairbox.api.route import Answer, Api, Route
from fairbox.errors import UnknownFeed
from fairbox.feeds.tokens import MAX_TTL
from fairbox.model.feed_types import MAX_TOPICS, NUMBERS, RANGES, Feed, Kind
from fairbox.problems import Refusal

if TYPE_CHECKING:
    from fairbox.api.request import Request
    from fairbox.client.feeds import Feeds


def _number(name: str, description: str) -> Any:
    low, high = RANGES[name]
    return Field(default=None, ge=low, le=high, description=description)


class FeedIn(In):
    """A feed as it should be; a number that is not given has its default, if its kind has it."""

    kind: Kind = Field(default="snapshot", description="It stays as it is.")
    size: Annotated[int | None, WHOLE] = _number("size", "Messages of a ring.")
    history: Annotated[int | None, WHOLE] = _number("history", "Those that a newcomer gets.")
    limit: Annotated[int | None, WHOLE] = _number(
        "limit", "Messages of a private topic that are not acknowledged: it takes no more."
    )
    window: Annotated[int | None, WHOLE] = _number("window", "Those of them on their way.")
    keep: Annotated[int | None, WHOLE] = _number("keep", "Seconds that messages stay.")


class FeedOut(Out):
    """A feed, with the numbers of its kind; null: its kind has no such number."""

    name: str
    kind: Kind
    size: int | None = None
    history: int | None = None
    limit: int | None = None
    window: int | None = None
    keep: int | None = None


class FeedMessageIn(In):
    """A message for the clients of a topic."""

    body: Any = Field(
        description="Text, read by `body_encoding`; or any other JSON value. Clients get JSON, and"
        " what is none in base64."
    )
    body_encoding: BodyEncoding = None
    content_type: ContentType | None = Field(
        default=None, description="By default as of a message of a topic of the outbox."
    )
    id: Text | None = Field(
        default=None,
        json_schema_extra={"minLength": 1},
        description="Made here unless it is given. Published again with it, clients of rings and"
        " private topics get the message once.",
    )


class NumberOut(Out):
    """The number of a message in its topic."""

    number: int


class FeedTopicOut(Out):
    """A topic of a feed, as it stands."""

    feed: str
    key: str
    kind: Kind
    last: int = Field(description="The number of its newest message; 0: nothing was published.")
    published_at: Milliseconds | None
    unacknowledged: int | None = Field(description="Null: the topic is not private.")
    audience_shards: int = Field(
        description="Shards with clients that follow it, or have done so within three hours."
    )


class TokenIn(In):
    """The client that a token is for."""

    user: Text = Field(
        json_schema_extra={"minLength": 1}, description="Who the client is; at most 256 bytes."
    )
    allow: list[Annotated[str, Field(json_schema_extra=GRANT)]] = Field(
        min_length=1,
        max_length=MAX_TOPICS,
        description="Topics that it may follow, `feed/key`; `feed/*`: all topics of a feed that is"
        " not private.",
    )
    ttl: Whole = Field(
        default=60, ge=1, le=MAX_TTL, description="Seconds for which the client may connect."
    )


class TokenOut(Out):
    """A token, with which a client connects."""

    token: str


def put_feed(api: Api, request: Request) -> Answer:
    """Create a feed, or change its numbers; processes follow within 30 s."""
    given = request.model(FeedIn, required=False)
    numbers = given.model_dump(exclude={"kind"}, exclude_none=True)
    feed, feeds = Feed(request.params["feed"], given.kind, **numbers), _feeds(api)
    # asked before the call: afterwards the feed is there in either case
    status = 200
    try:
        feeds.feed(feed.name)
    except UnknownFeed:
        status = 201
    feeds.create(feed)
    return Answer(status, _shown(feed))


def show_feed(api: Api, request: Request) -> Answer:
    """Show a feed."""
    return Answer(200, _shown(_feeds(api).feed(request.params["feed"])))


def delete_feed(api: Api, request: Request) -> Answer:
    """Delete a feed, within 30 s. Messages stay for `keep`; put again, its numbers go on."""
    _feeds(api).delete(request.params["feed"])
    return Answer(204)


def show_feed_topic(api: Api, request: Request) -> Answer:
    """Show how a topic of a feed stands."""
    return Answer(200, FeedTopicOut(**asdict(_feeds(api).topic(*_topic(request)))))


def publish_to_feed(api: Api, request: Request) -> Answer:
    """Publish a message to the clients of a topic."""
    given, feeds = request.model(FeedMessageIn), _feeds(api)
    body, made = body_bytes(given.body, given.body_encoding, request.body)
    media_type = made if given.content_type is None else given.content_type
    number = feeds.publish(*_topic(request), body, media_type, id=given.id)
    return Answer(200, NumberOut(number=number))


def make_feed_token(api: Api, request: Request) -> Answer:
    """Make the token with which a client of feeds connects."""
    given = request.model(TokenIn)
    return Answer(200, TokenOut(token=_feeds(api).token(given.user, given.allow, given.ttl)))


def _feeds(api: Api) -> Feeds:
    if api.feeds is None:
        # every deployment has the routes; without the setting they look as if there were none
        raise Refusal("unknown-route", "There are no feeds: setting `feeds` is false.")
    return api.feeds


def _topic(request: Request) -> tuple[str, str]:
    return request.params["feed"], unquote(request.params["key"])


def _shown(feed: Feed) -> FeedOut:
    numbers = {name: getattr(feed, name) for name in NUMBERS[feed.kind]}
    return FeedOut(name=feed.name, kind=feed.kind, **numbers)


FEED_ROUTES: Final = (
    Route("PUT", "/feeds/{feed}", put_feed),
    Route("GET", "/feeds/{feed}", show_feed),
    Route("DELETE", "/feeds/{feed}", delete_feed),
    Route("GET", "/feeds/{feed}/{key+}", show_feed_topic),
    Route("POST", "/feeds/{feed}/{key+}", publish_to_feed),
    Route("POST", "/feed-tokens", make_feed_token),
)
