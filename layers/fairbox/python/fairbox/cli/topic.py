"""Noun `topic`: named streams of messages."""

from __future__ import annotations

from typing import Annotated

import typer

from fairbox.cli.fields import topic_fields
from fairbox.cli.session import Session
from fairbox.cli.verbs import noun, verb
from fairbox.topics import Ordering, RetryPolicy, Topic

topic = noun("Create topics and show them.")

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="Its name.")]
_RETRY = RetryPolicy()


@verb(topic, "create", example="fairbox topic create orders --shards 4 --ordering key")
def create(
    session: Session,
    name: TopicName,
    *,
    shards: Annotated[int, typer.Option(help="Units of order and of throughput.")] = 8,
    ordering: Annotated[
        Ordering, typer.Option(help="`key`: by partition key, in the order of ids.")
    ] = "none",
    dedup_window: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="Within it a deduplication key counts.")
    ] = None,
    retention: Annotated[
        int, typer.Option(metavar="SECONDS", help="How long the ledger keeps deliveries.")
    ] = 604800,
    max_attempts: Annotated[
        int, typer.Option(help="Attempts before a message is dead.")
    ] = _RETRY.max_attempts,
    base: Annotated[
        float, typer.Option(metavar="SECONDS", help="The first pause's upper bound.")
    ] = _RETRY.base,
    cap: Annotated[float, typer.Option(metavar="SECONDS", help="No pause is longer.")] = _RETRY.cap,
) -> None:
    """Create a topic; again with other retry, window or retention brings these up to date."""
    retry = RetryPolicy(max_attempts=max_attempts, base=base, cap=cap)
    wanted = Topic(
        name,
        shards=shards,
        ordering=ordering,
        retry=retry,
        dedup_window=dedup_window,
        retention=retention,
    )
    session.show(topic_fields(session.outbox.create_topic(wanted)))


@verb(topic, "list", example="fairbox topic list")
def list_topics(session: Session) -> None:
    """List every topic, by name."""
    columns = ("name", "shards", "ordering", "pushed")
    session.table(columns, (topic_fields(state) for state in session.outbox.topics()))


@verb(topic, "show", example="fairbox topic show orders")
def show(session: Session, name: TopicName) -> None:
    """Show a topic with its epochs and subscriptions."""
    session.show(topic_fields(session.outbox.topic(name)))
