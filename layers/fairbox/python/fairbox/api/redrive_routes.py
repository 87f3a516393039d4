"""`POST /topics/{topic}/redrive`: dead letters back, named, filtered or all, checked first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import Field

from fairbox.api.base_models import In as Input
from fairbox.api.base_models import Out as Output
from fairbox.api.base_models import Whole
from fairbox.api.content_models import ContentIn
from fairbox.errors import DeadLettersUnreadable, MessagesNotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.client.outbox import Outbox
    from fairbox.client.redrive import Content, RedriveResult
    from fairbox.tables.dead_letters import DeadLetter

MAX_REDRIVES: Final = 500


class RedriveWhereIn(Input):
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

    def accepts(self, letter: DeadLetter) -> bool:
        """Whether a dead letter that can be read is one of these."""
        key = None if letter.message is None else letter.message.partition_key
        return (
            (self.subscription is None or self.subscription in letter.subscriptions)
            and (self.reason is None or self.reason in letter.reason)
            and (self.partition_key is None or self.partition_key == key)
            and (self.died_from is None or self.died_from <= letter.died_at)
            and (self.died_until is None or letter.died_at < self.died_until)
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


class RedriveOut(Output):
    """The dead letters that were put back or, in a dry run, would be."""

    count: int
    refs: list[str] = Field(description="Oldest first.")
    left: list[str] = Field(
        description="As they were: others kept changing them, or their batch. Ask again."
    )
    unreadable: list[str] = Field(description="Passed over: nothing can read them.")
    more: bool = Field(description="The limit stopped it before another.")
    dry_run: bool


def redrive(outbox: Outbox, topic: str, given: RedriveIn, content: Content) -> RedriveOut:
    """Put dead letters back; ids that are none of them refuse the whole request.

    Raises:
        MessagesNotFound, DeadLettersUnreadable: some ids; nothing has changed.
        FairboxError: as `Outbox.redrive`.
    """
    where: Callable[[DeadLetter], bool] | None = given.where.accepts if given.where else None

    def found(*, dry_run: bool) -> RedriveResult:
        return outbox.redrive_found(
            topic,
            given.ids,
            where=where,
            limit=given.limit,
            dry_run=dry_run,
            body=content.body,
            headers=content.headers,
            content_type=content.content_type,
        )

    # with ids a dry run comes first: one that is no dead letter refuses all of them
    dry_run = given.dry_run or given.ids is not None
    result = found(dry_run=dry_run)

    if given.ids is not None:
        if result.missing:
            raise MessagesNotFound(result.missing)
        if result.unreadable:
            raise DeadLettersUnreadable(result.unreadable)
        if not given.dry_run:
            result = found(dry_run=False)

    return RedriveOut(
        count=result.count,
        refs=[str(ref) for ref in result.refs],
        left=[str(ref) for ref in result.left],
        unreadable=list(result.unreadable),
        more=result.more,
        dry_run=given.dry_run,
    )
