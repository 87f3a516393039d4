"""Noun `dlq`: the dead letters."""

from __future__ import annotations

from typing import Annotated

import typer

from fairbox.cli.fields import body_fields, dead_fields, failures_fields
from fairbox.cli.session import Session
from fairbox.cli.verbs import Limit, noun, verb
from fairbox.errors import MessagesNotFound
from fairbox.messages import MessageRef

dlq = noun("Look at dead letters.")


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
