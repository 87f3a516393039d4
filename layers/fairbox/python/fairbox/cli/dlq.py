"""Noun `dlq`: the dead letters, looked at and put back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from fairbox.cli.fields import body_fields, dead_fields, failures_fields, redrive_fields
from fairbox.cli.items import calls_of
from fairbox.cli.progress import progress
from fairbox.cli.session import FAILED, Session
from fairbox.cli.verbs import DryRun, Limit, OptionalLimit, Time, Yes, noun, verb
from fairbox.errors import DeadLettersUnreadable, MessagesNotFound
from fairbox.messages import MessageRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.redriving import RedriveResult
    from fairbox.stored import DeadLetter

dlq = noun("Look at dead letters, and put them back.")

_CALL = 25


@verb(dlq, "list", example="fairbox dlq list orders")
def list_dead(
    session: Session,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic's name.")
    ],
    limit: Limit = 100,
) -> None:
    """List a topic's dead letters with their reasons, by id."""
    letters = session.outbox.dead(topic, limit=limit)
    session.table(("ref", "died_at", "reason"), (dead_fields(letter) for letter in letters))


@verb(dlq, "show", example="fairbox dlq show $DEAD")
def show(
    session: Session,
    ref: Annotated[
        str, typer.Argument(metavar="REF", show_default=False, help="`topic/epoch/shard/id`.")
    ],
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
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic's name.")
    ],
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]", show_default=False, help="Ids or refs; all by default."),
    ] = None,
    *,
    subscription: Annotated[str | None, typer.Option(help="It died for this one.")] = None,
    reason: Annotated[str | None, typer.Option(help="Part of the reason.")] = None,
    partition_key: Annotated[str | None, typer.Option(help="As it was published.")] = None,
    died_from: Time = None,
    died_until: Time = None,
    limit: OptionalLimit = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="N", help="At most so many a second.")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Put dead letters back, oldest first, for what they died for; options narrow them down."""
    where = _where(
        subscription, reason, partition_key, _milliseconds(died_from), _milliseconds(died_until)
    )
    found = session.outbox.redrive_found(topic, ids or None, where=where, limit=limit, dry_run=True)
    if found.missing:
        raise MessagesNotFound(found.missing)
    if ids and found.unreadable:
        raise DeadLettersUnreadable(found.unreadable)
    if dry_run:
        texts = [str(ref) for ref in found.refs]
        session.show(redrive_fields(found), "\n".join([*texts, f"{found.count} would be put back"]))
        return
    session.confirm(f"Put {found.count} dead letter(s) of topic {topic} back?", yes=yes)
    refs, left, missing = _put_back(session, topic, found, rate)
    fields = redrive_fields(found) | {
        "count": len(refs),
        "refs": refs,
        "left": left,
        "missing": missing,
        "dry_run": False,
    }
    session.show(fields, f"{len(refs)} put back")
    if left:
        session.note(f"fairbox: {len(left)} left as they were; call again")
        raise typer.Exit(FAILED)


def _put_back(
    session: Session, topic: str, found: RedriveResult, rate: float | None
) -> tuple[list[str], list[str], list[str]]:
    """Put what was found back call by call; return what was, what is left, and what is gone."""
    refs: list[str] = []
    left: list[str] = []
    missing: list[str] = []
    size = _CALL if rate is None else max(1, min(_CALL, int(rate)))
    with progress("putting back", found.count) as tell:
        for call in calls_of((str(ref) for ref in found.refs), size):
            if rate is not None and refs:
                session.clock.sleep(len(call) / rate)
            result = session.outbox.redrive_found(topic, call)
            refs += [str(ref) for ref in result.refs]
            left += [str(ref) for ref in result.left]
            missing += [str(name) for name in result.missing]
            session.done = {"put back": len(refs)}
            tell(len(refs))
    return refs, left, missing


def _where(
    subscription: str | None,
    reason: str | None,
    partition_key: str | None,
    died_from: int | None,
    died_until: int | None,
) -> Callable[[DeadLetter], bool] | None:
    """Return whether all that is given holds of a dead letter; None: nothing is."""
    if (subscription, reason, partition_key, died_from, died_until) == (None,) * 5:
        return None

    def holds(letter: DeadLetter) -> bool:
        key = None if letter.message is None else letter.message.partition_key
        return (
            (subscription is None or subscription in letter.subscriptions)
            and (reason is None or reason in letter.reason)
            and (partition_key is None or partition_key == key)
            and (died_from is None or died_from <= letter.died_at)
            and (died_until is None or letter.died_at < died_until)
        )

    return holds


def _milliseconds(time: datetime | None) -> int | None:
    if time is None:
        return None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
