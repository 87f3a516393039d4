"""Noun `topic`: named streams of messages."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from fairbox.cli.commands import Yes, noun, verb
from fairbox.cli.output_fields import (
    resize_fields,
    resize_text,
    seen,
    status_fields,
    subscription_fields,
    topic_fields,
)
from fairbox.cli.progress import watch_resize
from fairbox.cli.session import FAILED, Session
from fairbox.client.topic_load import Load, measured_load
from fairbox.errors import InvalidInput
from fairbox.model.topics import OnDead, Ordering, RetryPolicy, Topic

topic = noun("Create topics, show and delete them, and find how many shards one needs.")
SHARD_WCU = 700  # of the 1,000 that a partition takes
WCU_A_KB = 3  # in, and out with its marks

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="Its name.")]
_RETRY = RetryPolicy()


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@verb(topic, "create", example="fairbox topic create orders --shards 4 --ordering key")
def create(
    session: Session,
    name: TopicName,
    *,
    shards: Annotated[
        int | None, typer.Option(help="Units of order and of throughput; of a new topic 8.")
    ] = None,
    ordering: Annotated[
        Ordering | None, typer.Option(help="`key`: by partition key, in the order of ids.")
    ] = None,
    on_dead: Annotated[
        OnDead | None, typer.Option(help="Of a key whose message died: `block` lets it wait.")
    ] = None,
    dedup_window: Annotated[
        int | None,
        typer.Option(metavar="SECONDS", help="Within it a key counts once; 0: none."),
    ] = None,
    retention: Annotated[
        int | None,
        typer.Option(metavar="SECONDS", help="How long the ledger keeps deliveries; 7 days."),
    ] = None,
    message_retention: Annotated[
        int | None,
        typer.Option(metavar="SECONDS", help="Of a pulled topic: messages expire then; 0: never."),
    ] = None,
    max_outstanding: Annotated[
        int | None, typer.Option(metavar="N", help="Messages past which no more are taken; 0: any.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(help=f"Attempts before a message is dead; {_RETRY.max_attempts}.")
    ] = None,
    base: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help=f"The shortest pause; the first is up to twice as long; {_RETRY.base:g}.",
        ),
    ] = None,
    cap: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help=f"No pause is longer; {_RETRY.cap:g}."),
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Its share beside other topics; 1.")] = None,
    mini_batch: Annotated[
        int | None, typer.Option(help="Messages that it sends in one turn; 1.")
    ] = None,
    tenant_weight: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=WEIGHT", help="A tenant's share if not 1; none: all are."),
    ] = None,
) -> None:
    """Create a topic; of one that is there, what is given changes, and the rest stays."""
    policy = _given(max_attempts=max_attempts, base=base, cap=cap)
    weights = dict(_tenant_weight(text) for text in tenant_weight or [] if text != "none")

    settings = _given(
        shards=shards,
        ordering=ordering,
        on_dead=on_dead,
        retry=RetryPolicy(**policy) if policy else None,
        retention=retention,
        weight=weight,
        mini_batch=mini_batch,
        tenant_weights=weights if tenant_weight else None,
    )

    limits = _given(
        dedup_window=dedup_window,
        message_retention=message_retention,
        max_outstanding=max_outstanding,
    )
    # 0 takes a limit away
    settings |= {limit: value or None for limit, value in limits.items()}

    wanted = Topic(name, **settings)
    session.show(topic_fields(session.outbox.create_topic(wanted)))


def _tenant_weight(text: str) -> tuple[str, float]:
    tenant, _, weight = text.rpartition("=")
    try:
        return tenant, float(weight)
    except ValueError:
        raise typer.BadParameter(f"--tenant-weight {text!r}: expected KEY=WEIGHT") from None


@verb(topic, "list", example="fairbox topic list")
def list_topics(session: Session) -> None:
    """List every topic, by name."""
    columns = ["name", "shards", "ordering", "pushed"]
    found = [topic_fields(state) for state in session.outbox.topics()]
    # a column for queues of several partitions, if there is one
    if any("partition" in fields for fields in found):
        columns.append("partition")
    session.table(columns, found)


@verb(topic, "show", example="fairbox topic show orders")
def show(session: Session, name: TopicName) -> None:
    """Show a topic with its subscriptions and its epochs, and what lies in each."""
    state = session.outbox.topic(name)
    epochs = [status_fields(status) for status in session.outbox.epochs(name)]
    fields = topic_fields(state) | {"epochs": epochs}

    if session.json:
        session.show(fields)
        return
    session.show({n: v for n, v in fields.items() if n not in ("subscriptions", "epochs")})

    if state.subscriptions:
        typer.echo()
        found = (subscription_fields(s, state.status(s.name)) for s in state.subscriptions)
        session.table(("name", "state", "destination"), map(seen, found))
    typer.echo()
    rows = (epoch | {"since": epoch["since"] or None} for epoch in epochs)  # the first has none
    session.table(("number", "shards", "phase", "since", "ready", "later", "dead"), rows)


@verb(topic, "resize", example="fairbox topic resize orders 16")
def resize(
    session: Session,
    name: TopicName,
    count: Annotated[
        int | None, typer.Argument(metavar="SHARDS", show_default=False, help="1 to 1,000.")
    ] = None,
    *,
    option: Annotated[
        int | None, typer.Option("--shards", show_default=False, help="The same.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until nothing but dead letters is in old epochs.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Wait no longer.")
    ] = None,
) -> None:
    """Give a topic another number of shards, from a minute on, while messages flow."""
    shards = option if count is None else count
    if shards is None or None not in (count, option):
        raise typer.BadParameter("give the number of shards, once")

    result = session.outbox.resize(name, shards)
    if not wait:
        session.show(resize_fields(result), resize_text(result))
        return

    session.note(resize_text(result))
    fields = resize_fields(result)
    done = watch_resize(session, name, timeout)
    fields["epochs"] = [status_fields(status) for status in session.outbox.epochs(name)]
    session.show(fields, f"{name} has {shards} shards")

    if not done:
        session.note(f"fairbox: old epochs of {name} hold messages after {timeout:g} s")
        raise typer.Exit(FAILED)


@verb(topic, "delete", example="fairbox topic delete orders --yes")
def delete(
    session: Session,
    name: TopicName,
    *,
    whole: Annotated[
        bool, typer.Option("--whole", help="Every partition of the queue of this name.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Mark it, and say when to call again.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete a topic that holds nothing. It takes no messages from then on, and is gone in 60 s."""
    session.outbox.topic(name)
    session.confirm(f"Delete topic {name}{' with all its partitions' if whole else ''}?", yes=yes)
    # the mark first: what the topic still holds is refused before anybody waits
    left = session.outbox.delete_topic(name, whole=whole, wait=False)
    if left and not no_wait:
        session.note(f"{name} takes no messages any more; producers' copies end in {left:.0f} s")
        left = session.outbox.delete_topic(name, whole=whole)
    text = f"{name} is being deleted: call again in {left:.0f} s" if left else f"{name} is deleted"
    session.show({"topic": name, "deleted": not left, "seconds": left}, text)


@verb(topic, "size", example="fairbox topic size --rate 5000 --message-size 900")
def size(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]", show_default=False, help="Take the rate from its last deliveries."
        ),
    ] = None,
    *,
    rate: Annotated[
        float | None, typer.Option(min=0, max=1e9, metavar="N", help="Messages a second, at most.")
    ] = None,
    message_size: Annotated[
        int | None, typer.Option(min=0, metavar="BYTES", help="Of a body with its headers.")
    ] = None,
    wcu: Annotated[
        float | None,
        typer.Option(min=0, max=1e9, metavar="N", help="Write units a message; 3 a KB by default."),
    ] = None,
    minutes: Annotated[
        int, typer.Option(min=1, max=1440, help="Of a topic: how far back to measure.")
    ] = 60,
) -> None:
    """Say how many shards a topic needs: its write units a second, by 700 a shard.

    Of a topic the rate is that of its busiest minute, and the size the mean, by its deliveries in
    the ledger; what is given counts instead.
    """
    if name is None and rate is None:
        raise InvalidInput("rate", "messages a second, or a topic whose load is measured")

    load = Load(0, 0, 0, 0) if name is None else measured_load(session.outbox, name, minutes)
    kilobytes = load.kilobytes if message_size is None and load.messages else None
    each = wcu
    if each is None:
        each = WCU_A_KB * (kilobytes or max(1, math.ceil((message_size or 1024) / 1024)))

    second = load.rate if rate is None else rate
    fields: dict[str, object] = {
        "shards": max(1, math.ceil(second * each / SHARD_WCU)),
        "wcu_per_message": each,
        "wcu_per_second": second * each,
    }

    if name is not None:
        fields |= {
            "topic": name,
            "shards_now": session.outbox.topic(name).topic.shards,
            "measured_messages": load.messages,
            "measured_per_second": load.rate,
        }

    session.show(fields)
