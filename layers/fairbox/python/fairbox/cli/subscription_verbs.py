"""Noun `subscription`: where a topic's messages go."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from fairbox.cli.commands import DryRun, Limit, TopicName, Yes, noun, verb
from fairbox.cli.output_fields import Fields, seen, subscription_fields
from fairbox.cli.session import Session
from fairbox.errors import UnknownSubscription
from fairbox.model.topics import Subscription

subscription = noun("Add destinations to topics; list, show, pause, resume, skip and remove them.")

_COUNTED: Final = 1000

Name = Annotated[
    str, typer.Argument(metavar="NAME", show_default=False, help="The subscription's own name.")
]


@verb(
    subscription,
    "add",
    example="fairbox subscription add orders billing"
    " sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/billing",
)
def add(
    session: Session,
    topic: TopicName,
    name: Name,
    destination: Annotated[
        str,
        typer.Argument(
            show_default=False,
            help="`sqs:<queue url>`, `sns:<arn>`, `events:<bus>`, `kinesis:<arn>`, `lambda:<arn>`,"
            " `https://...`, `topic:<name>` or `feed:<name>`.",
        ),
    ],
    *,
    max_attempts: Annotated[
        int | None, typer.Option(help="Attempts before a message is dead; the topic's by default.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="For one call, 1 to 14.")
    ] = 10.0,
    weight: Annotated[
        float | None, typer.Option(help="Its share of the destination; the topic's by default.")
    ] = None,
    max_in_flight: Annotated[
        int | None,
        typer.Option(help="Messages in the destination's hands at a time; as many as there are."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Messages a second; as fast as they come.")
    ] = None,
) -> None:
    """Add or replace a subscription; it is in force when this returns, after 2 s."""
    wanted = Subscription(
        topic,
        name,
        destination,
        max_attempts=max_attempts,
        timeout=timeout,
        weight=weight,
        max_in_flight=max_in_flight,
        rate=rate,
    )

    session.outbox.add_subscription(wanted)
    if wanted.scheme in ("http", "https"):
        session.note(
            f"requests are signed only if webhook_secrets has a key for {topic}/{name}:"
            " docs/how-to/receive-webhooks.md"
        )

    session.show(subscription_fields(wanted), f"{topic}: {name} is in force")


@verb(
    subscription, "pause", example='fairbox subscription pause orders billing --reason "new system"'
)
def pause(
    session: Session,
    topic: TopicName,
    name: Name,
    reason: Annotated[str, typer.Option(help="Shown with the subscription.")] = "",
) -> None:
    """Send nothing to a subscription until it is resumed; in force when this returns, after 2 s."""
    session.outbox.pause_subscription(topic, name, reason=reason)
    session.show(_fields(session, topic, name), f"{topic}: {name} is paused")


@verb(subscription, "resume", example="fairbox subscription resume orders billing")
def resume(session: Session, topic: TopicName, name: Name) -> None:
    """Send to a subscription again, what waited first; an open circuit is closed too."""
    session.outbox.resume_subscription(topic, name)
    session.show(_fields(session, topic, name), f"{topic}: {name} is resumed")


def _fields(session: Session, topic: str, name: str) -> Fields:
    state = session.outbox.topic(topic)
    there = {s.name: s for s in state.subscriptions}
    if name not in there:
        raise UnknownSubscription(topic, name)
    return subscription_fields(there[name], state.status(name))


@verb(subscription, "list", example="fairbox subscription list orders")
def list_subscriptions(
    session: Session,
    topic: Annotated[
        str | None, typer.Argument(show_default=False, help="The topic; all by default.")
    ] = None,
) -> None:
    """List subscriptions by topic and name, and how each stands: its circuit, or paused."""
    states = session.outbox.topics() if topic is None else [session.outbox.topic(topic)]
    found = (
        subscription_fields(s, state.status(s.name))
        for state in states
        for s in state.subscriptions
    )
    session.table(
        ("topic", "name", "state", "destination"), found if session.json else map(seen, found)
    )


@verb(subscription, "show", example="fairbox subscription show orders billing")
def show(session: Session, topic: TopicName, name: Name) -> None:
    """Show a subscription, how it stands, and how many messages wait for it, up to 1,000."""
    fields = _fields(session, topic, name)
    # bounded: the messages are read, and a backlog may have millions
    count = session.outbox.lacking_count(topic, name, limit=_COUNTED)
    more = count > _COUNTED
    fields |= {"waiting": min(count, _COUNTED), "more": more}
    session.show(fields if session.json else seen(fields))


@verb(
    subscription, "skip", example="fairbox subscription skip orders billing --older-than 3600 --yes"
)
def skip_outstanding(
    session: Session,
    topic: TopicName,
    name: Name,
    *,
    older_than: Annotated[
        float, typer.Option(metavar="SECONDS", help="Minimum age of the messages.")
    ] = 0,
    limit: Limit = 100_000,
    after: Annotated[str, typer.Option(help="Where an earlier call says to go on.")] = "",
    reason: Annotated[str, typer.Option(help="At most 256 bytes; the archive keeps it.")] = "",
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Let a subscription go without what waits for it; other subscriptions still get it."""
    if not dry_run:
        session.confirm(f"Skip what waits for subscription {name} of topic {topic}?", yes=yes)

    result = session.outbox.skip_outstanding(
        topic,
        name,
        older_than=older_than,
        limit=limit,
        after=after,
        reason=reason,
        dry_run=dry_run,
    )

    done = "would be skipped" if dry_run else "skipped"
    more = f"; go on with --after {result.after}" if result.after else ""
    session.show(
        {"skipped": result.count, "after": result.after, "dry_run": dry_run},
        f"{result.count} {done}{more}",
    )


@verb(subscription, "remove", example="fairbox subscription remove orders billing --yes")
def remove(
    session: Session, topic: TopicName, name: Name, yes: Yes = False, dry_run: DryRun = False
) -> None:
    """Remove a subscription; it is out of force when this returns, after 2 s."""
    there = {s.name: s for s in session.outbox.topic(topic).subscriptions}
    if name not in there:
        raise UnknownSubscription(topic, name)
    fields = _fields(session, topic, name)
    if dry_run:
        session.show(fields, f"{topic}: {name} is in force, and not removed")
        return
    session.confirm(f"Remove subscription {name} of topic {topic}?", yes=yes)
    session.outbox.remove_subscription(topic, name)
    session.show(fields, f"{topic}: {name} is removed")
