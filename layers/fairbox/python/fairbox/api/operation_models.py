"""Request and answer models of the operators' routes."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from fairbox.api.base_models import Milliseconds, Out, Query
from fairbox.api.content_models import ContentIn
from fairbox.model.messages import MAX_DELAY_SECONDS

MAX_PURGED: Final = 5000
MAX_NAMED: Final = 100


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
