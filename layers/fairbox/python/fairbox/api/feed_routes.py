"""The route of feeds: tokens for clients, from a service that signs its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from fairbox.api.base_models import In as Input
from fairbox.api.base_models import Out as Output
from fairbox.api.base_models import Whole
from fairbox.api.patterns import GRANT, Text
from fairbox.api.route import Answer, Route
from fairbox.feeds.tokens import MAX_TTL
from fairbox.model.feeds import MAX_TOPICS
from fairbox.problems import Refusal

if TYPE_CHECKING:
    from fairbox.api.context import Api
    from fairbox.api.request import Request


class TokenIn(Input):
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


class TokenOut(Output):
    """A token, with which a client connects."""

    token: str


def make_feed_token(api: Api, request: Request) -> Answer:
    """Make the token with which a client of feeds connects."""
    given = request.model(TokenIn)
    if api.feeds is None:
        raise Refusal("unknown-route", "There are no feeds: setting `feeds` is false.")
    return Answer(200, TokenOut(token=api.feeds.token(given.user, given.allow, given.ttl)))


FEED_ROUTES: Final = (Route("POST", "/feed-tokens", make_feed_token),)
