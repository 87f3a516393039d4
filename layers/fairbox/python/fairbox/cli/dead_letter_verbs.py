"""Noun `dlq`: dead letters are listed, put back and purged."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairbox.cli.commands import (
    AllPartitions,
    DryRun,
    Limit,
    OptionalLimit,
    Ref,
    Time,
    TopicName,
    Yes,
    noun,
    verb,
)
from fairbox.cli.output_fields import (
    body_fields,
    dead_fields,
    failures_fields,
    purge_fields,
    redrive_fields,
    told,
)
from fairbox.cli.progress import bar
from fairbox.cli.session import FAILED, Session
from fairbox.cli.verb_input import calls_of, headers_of, read_body
from fairbox.errors import DeadLettersUnreadable, InvalidInput, MessagesNotFound
from fairbox.model.messages import MessageRef

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.client.partitioned_queue import PartitionedQueue
    from fairbox.client.redrive import RedriveResult
    from fairbox.tables.dead_letters import DeadLetter

dlq = noun("Look at dead letters, put them back, purge them.")

_CALL = 25

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]", show_default=False, help="Ids or refs; all by default."),
]
MoreIds = Annotated[
    list[str] | None, typer.Option("--id", metavar="ID", help="As an argument; may be repeated.")
]
Subscriber = Annotated[str | None, typer.Option(help="It died for this one.")]
DeathReason = Annotated[str | None, typer.Option(help="Part of the reason.")]
PartitionKey = Annotated[str | None, typer.Option(help="As it was published.")]


@verb(dlq, "list", example="fairbox dlq list orders")
def list_dead(
    session: Session,
    topic: TopicName,
    limit: Limit = 100,
) -> None:
    """List a topic's dead letters with their reasons, by id."""
    letters = session.outbox.dead(topic, limit=limit)
    session.table(("ref", "died_at", "reason"), (dead_fields(letter) for letter in letters))


@verb(dlq, "show", example="fairbox dlq show $DEAD")
def show(
    session: Session,
    ref: Ref,
) -> None:
    """Show a dead letter: its failures by subscription, and its body."""
    wanted = MessageRef.parse(ref)
    letter = session.outbox.dead_letter(wanted)
    if letter is None:
        raise MessagesNotFound([wanted])
    fields = dead_fields(letter) | failures_fields(letter)
    if letter.stored is not None:
        fields |= body_fields(session.outbox.fetch(letter.stored).message)
    session.show(fields)


@verb(dlq, "redrive", example="fairbox dlq redrive orders --reason 'no such account' --yes")
def redrive(
    session: Session,
    topic: TopicName,
    ids: Ids = None,
    *,
    more_ids: MoreIds = None,
    subscription: Subscriber = None,
    reason: DeathReason = None,
    partition_key: PartitionKey = None,
    died_from: Time = None,
    died_until: Time = None,
    limit: OptionalLimit = None,
    all_partitions: AllPartitions = False,
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="N", help="At most so many a second.")
    ] = None,
    body: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Of one id: its new body; `-` is standard input."),
    ] = None,
    content_type: Annotated[str | None, typer.Option(help="Of one id: its new media type.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of one id: all of its headers.")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Put dead letters back, oldest first, for what they died for; options narrow them down."""
    # imported where it is used: `fairbox --help` does without the library
    from fairbox.client.message_pages import condition_of  # noqa: PLC0415
    from fairbox.client.redrive import Content  # noqa: PLC0415

    where = condition_of(
        subscription, reason, partition_key, _milliseconds(died_from), _milliseconds(died_until)
    )
    named = [*(ids or []), *(more_ids or [])]
    content = Content(
        body=None if body is None else read_body(body),
        headers=None if header is None else headers_of(header),
        content_type=content_type,
    )

    if all_partitions:
        if named or content.given:
            raise InvalidInput("ids", "no ids and no new content for all partitions")
        _redrive_all(
            session, session.partitions(topic), where, limit, rate, yes=yes, dry_run=dry_run
        )
        return

    redriven = partial(
        session.outbox.redrive_found,
        topic,
        body=content.body,
        headers=content.headers,
        content_type=content.content_type,
    )

    # a dry run first: it refuses wrong ids, and counts what the question is about
    found = redriven(named or None, where=where, limit=limit, dry_run=True)
    if found.missing:
        raise MessagesNotFound(found.missing)
    if named and found.unreadable:
        raise DeadLettersUnreadable(found.unreadable)

    if dry_run:
        texts = [str(ref) for ref in found.refs]
        session.show(redrive_fields(found), "\n".join([*texts, f"{found.count} would be put back"]))
        return

    session.confirm(f"Put {found.count} dead letter(s) of topic {topic} back?", yes=yes)
    fields = _put_back(session, redriven, found, rate)
    session.show(fields, f"{fields['count']} put back")
    _tell_left(session, fields["left"])


def _redrive_all(
    session: Session,
    queue: PartitionedQueue,
    where: Callable[[DeadLetter], bool] | None,
    limit: int | None,
    rate: float | None,
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    """Put the dead letters of all partitions back; the limit and the rate are those of all."""
    chosen = 0

    def find(topic: str) -> RedriveResult:
        nonlocal chosen
        left = None if limit is None else limit - chosen
        found = session.outbox.redrive_found(topic, where=where, limit=left, dry_run=True)
        # partitions are asked one after the other, so the limit of all is never passed
        chosen += found.count
        return found

    def put_back(topic: str) -> dict[str, Any]:
        # a partition that could not be read is told; the others are put back
        if topic in found_by.errors:
            raise found_by.errors[topic]
        redriven = partial(session.outbox.redrive_found, topic)
        return _put_back(session, redriven, found_by.results[topic], rate)

    found_by = queue.each(find)
    # if no partition could be read, `told` raises the first one's error
    if dry_run or not found_by.results:
        fields = told(session, queue, found_by, redrive_fields)
        session.show(fields, "\n".join([*fields["refs"], f"{chosen} would be put back"]))
        return

    question = f"Put {chosen} dead letter(s) of {len(queue)} partitions of queue {queue.name} back?"
    session.confirm(question, yes=yes)
    fields = told(session, queue, queue.each(put_back), lambda done: done)
    session.show(fields, f"{fields['count']} put back")
    _tell_left(session, fields["left"])


@verb(dlq, "purge", example="fairbox dlq purge orders --reason 'no such account' --yes")
def purge(
    session: Session,
    topic: TopicName,
    ids: Ids = None,
    *,
    more_ids: MoreIds = None,
    subscription: Subscriber = None,
    reason: DeathReason = None,
    partition_key: PartitionKey = None,
    died_from: Time = None,
    died_until: Time = None,
    limit: OptionalLimit = None,
    note: Annotated[str, typer.Option(help="Why they are purged; the archive keeps it.")] = "",
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete dead letters for good; options narrow them down. Their batch items stay failed."""
    from fairbox.client.message_pages import condition_of  # noqa: PLC0415 - as above

    where = condition_of(
        subscription, reason, partition_key, _milliseconds(died_from), _milliseconds(died_until)
    )
    named = [*(ids or []), *(more_ids or [])] or None
    outbox = session.outbox

    # a dry run first: it refuses wrong ids, and counts what the question is about
    found = outbox.purge_found(topic, named, where=where, limit=limit, dry_run=True)
    if found.missing:
        raise MessagesNotFound(found.missing)

    if dry_run:
        lines = [*found.names, f"{found.count} would be purged"]
        session.show(purge_fields(found), "\n".join(lines))
        return

    session.confirm(f"Delete {found.count} dead letter(s) of topic {topic} for good?", yes=yes)
    with bar("purging", found.count) as advance:

        def told_so_far(count: int) -> None:
            session.done = {"purged": count}
            advance(count)

        # those that were found, and no others that died while somebody was asked
        chosen = frozenset(found.names)
        done = outbox.purge_found(
            topic,
            named,
            where=lambda letter: letter.name in chosen,
            reason=note,
            progress=told_so_far,
        )

    session.show(purge_fields(done) | {"more": found.more}, f"{done.count} purged")
    _tell_left(session, done.left)


def _tell_left(session: Session, left: Sequence[str]) -> None:
    if left:
        session.note(f"fairbox: {len(left)} left as they were; call again")
        raise typer.Exit(FAILED)


def _put_back(
    session: Session,
    redriven: Callable[[list[str]], RedriveResult],
    found: RedriveResult,
    rate: float | None,
) -> dict[str, Any]:
    """Put what was found back call by call; return the fields of what was, is left, and is gone."""
    before: Any = session.done.get("put back", 0)  # of other partitions
    refs: list[str] = []
    left: list[str] = []
    missing: list[str] = []
    # a second's worth in a call at most, so that a low rate is kept too
    size = _CALL if rate is None else max(1, min(_CALL, int(rate)))

    with bar("putting back", found.count) as advance:
        for call in calls_of((str(ref) for ref in found.refs), size):
            # before the first call as well, if another partition's came before it
            if rate is not None and session.done:
                session.clock.sleep(len(call) / rate)
            result = redriven(call)
            refs += [str(ref) for ref in result.refs]
            left += [str(ref) for ref in result.left]
            # gone since the dry run: somebody else put them back or purged them
            missing += [str(name) for name in result.missing]
            # after each call: an error in the next one still says what was done
            session.done = {"put back": before + len(refs)}
            advance(len(refs))

    done = {"count": len(refs), "refs": refs, "left": left, "missing": missing, "dry_run": False}
    return redrive_fields(found) | done


def _milliseconds(time: datetime | None) -> int | None:
    if time is None:
        return None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
