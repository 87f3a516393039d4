"""Request and answer models of the operators' routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from fairbox.api.field_types import (
    BodyEncoding,
    ContentType,
    Headers,
    In,
    Milliseconds,
    Out,
    Query,
    Whole,
)
from fairbox.api.publish_routes import body_bytes
from fairbox.client.redrive import Content
from fairbox.model.epochs import MAX_SHARDS
from fairbox.model.messages import MAX_DELAY_SECONDS

if TYPE_CHECKING:
    from fairbox.api.request import Request

MAX_REDRIVES: Final = 500
MAX_PURGED: Final = 5000
MAX_NAMED: Final = 100


class ContentIn(In):
    """Content of a message; null: as it is."""

    body: Any = Field(
        default=None,
        description="Text, read by `body_encoding`; or any other JSON value, which is stored as it"
        " was written.",
    )
    body_encoding: BodyEncoding = None
    headers: Headers | None = Field(default=None, description="All of them.")
    content_type: ContentType | None = Field(
        default=None, description="Else it stays, with a new body too."
    )

    def content(self, request: Request) -> Content:
        """Return the content that the request's body has.

        Raises:
            InvalidInput: a field is not what it takes.
        """
        body = None
        if self.body is not None:
            body, _ = body_bytes(self.body, self.body_encoding, request.body)
        return Content(body=body, headers=self.headers, content_type=self.content_type)


class EditIn(ContentIn):
    """The change of a waiting message: its content, or the time when it is due."""

    delay: float | None = Field(
        default=None,
        ge=0,
        le=MAX_DELAY_SECONDS,
        description="Seconds from now until it is due, alone: it may change the ref. Null: as it"
        " is.",
    )


class EditedOut(Out):
    """A message that was changed."""

    ref: str = Field(description="The ref that it has now.")


class RedriveWhereIn(In):
    """Filter of dead letters; every given condition must hold."""

    subscription: str | None = Field(default=None, description="It died for this one.")
    reason: str | None = Field(default=None, description="Part of the reason.")
    partition_key: str | None = Field(default=None, description="As it was published.")
    died_from: Whole | None = Field(
        default=None, description="Milliseconds since 1970 UTC, included."
    )
    died_until: Whole | None = Field(
        default=None, description="Milliseconds since 1970 UTC, excluded."
    )


class RedriveIn(ContentIn):
    """The dead letters to put back, oldest first; with content: one, edited on its way."""

    ids: list[str] | None = Field(
        default=None,
        max_length=MAX_REDRIVES,
        description="Message ids or refs; null: all of the topic.",
    )
    where: RedriveWhereIn | None = Field(default=None, description="Of these, only such.")
    limit: Whole = Field(default=100, ge=1, le=MAX_REDRIVES)
    dry_run: bool = Field(default=False, description="Change nothing, and say what would be done.")


class RedriveOut(Out):
    """The dead letters that were put back or, in a dry run, would be."""

    count: int
    refs: list[str] = Field(description="Oldest first.")
    left: list[str] = Field(
        description="As they were: others kept changing them, or their batch. Ask again."
    )
    unreadable: list[str] = Field(description="Passed over: nothing can read them.")
    more: bool = Field(description="The limit stopped it before another.")
    dry_run: bool


class PurgeQuery(Query):
    """Limit and reason of a purge."""

    reason: str = Field(default="", description="200 characters of it are kept in the archive.")
    limit: int = Field(default=2000, ge=1, le=MAX_PURGED)


class PurgedOut(Out):
    """The result of a purge."""

    count: int
    more: bool = Field(description="The limit was reached: ask again until it is false.")


class PurgeDeadQuery(Query):
    """Filter of the dead letters to delete; every given condition must hold."""

    ids: str | None = Field(
        default=None,
        max_length=8000,
        description=f"Message ids or refs, at most {MAX_NAMED}, with commas between them; without:"
        " all of the topic.",
    )
    subscription: str | None = Field(default=None, description="It died for this one.")
    reason: str | None = Field(default=None, description="Part of the reason of its death.")
    partition_key: str | None = Field(default=None, description="As it was published.")
    died_from: Milliseconds | None = Field(
        default=None, description="Milliseconds since 1970 UTC, included."
    )
    died_until: Milliseconds | None = Field(
        default=None, description="Milliseconds since 1970 UTC, excluded."
    )
    limit: int = Field(default=500, ge=1, le=MAX_PURGED)
    dry_run: bool = Field(default=False, description="Change nothing, and say what would be done.")
    note: str = Field(
        default="", description="Why: 200 characters of it are kept in the archive, as `reason`."
    )


class PurgedDeadOut(Out):
    """The dead letters that were deleted or, in a dry run, would be."""

    count: int
    names: list[str] = Field(description="`topic/epoch/shard/id` of each, ascending by id.")
    left: list[str] = Field(description="As they were: others kept changing them. Ask again.")
    more: bool = Field(description="The limit stopped it before another.")
    dry_run: bool


class DeleteTopicQuery(Query):
    """Whether more than a topic is deleted."""

    whole: bool = Field(
        default=False, description="Every partition of the queue whose logical name it is."
    )


class DeletingOut(Out):
    """A topic that is being deleted."""

    topic: str
    seconds: float = Field(
        description="After which it is to be asked for again: until then producers may work with"
        " copies of the topic."
    )


class QueueStatsQuery(Query):
    """Whether the messages in flight of an unordered topic are counted."""

    in_flight: bool = Field(default=False, description="Count them: the backlog is read.")


class QueueStatsOut(Out):
    """The figures of a topic, as counted from the stream; they trail by seconds."""

    topic: str
    outstanding: int
    ready: int = Field(description="Of these, added without delay.")
    later: int = Field(description="Of these, added with a delay.")
    dead: int
    in_flight: int | None = Field(
        description="Held by consumers at this moment; null: not counted (unordered topics, whose"
        " count reads the backlog: `in_flight=true`)."
    )
    visible: int | None = Field(
        description="Outstanding, and held by nobody; delayed ones too. Null: not known."
    )


class ResizeIn(In):
    """The shards that a topic is to have."""

    shards: Whole = Field(ge=1, le=MAX_SHARDS)


class ResizeOut(Out):
    """The newest epoch of a topic, as a resize left it."""

    topic: str
    epoch: int = Field(description="Its number, which refs of its messages name.")
    shards: int
    before: int = Field(description="Shards of the epoch before it.")
    begins_at: Milliseconds = Field(
        description="Messages whose ids are of this time or later go to it. Milliseconds since 1970"
        " UTC."
    )
    changed: bool = Field(description="Whether this request announced it.")


class EpochStatusOut(Out):
    """The state of an epoch and the messages in it, counted from the stream."""

    number: int
    shards: int
    since: Milliseconds
    phase: Literal["announced", "current", "draining", "closed"] = Field(
        description="`closed`: found empty; it takes no messages, and leaves the list."
    )
    ready: int
    later: int
    dead: int


class Epochs(Out):
    """The epochs of a topic, oldest first."""

    epochs: list[EpochStatusOut]
