"""Noun `queue`: messages of pulled topics, received, settled, counted, purged."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from fairbox.cli.commands import AllPartitions, DryRun, FromFile, Yes, noun, verb
from fairbox.cli.output_fields import received_fields, stats_fields, told, width_fields, width_text
from fairbox.cli.progress import bar
from fairbox.cli.session import Session
from fairbox.cli.verb_input import calls_of, item_ids
from fairbox.errors import StaleReceipt

if TYPE_CHECKING:
    from fairbox.client.partitioned_queue import PartitionedQueue
    from fairbox.model.messages import MessageRef

queue = noun("Receive messages of pulled topics, settle them, and look after their queues.")

CALL_RECEIPTS = 100

TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", show_default=False, help="A pulled topic.")
]
OneReceipt = Annotated[
    str, typer.Argument(metavar="RECEIPT", show_default=False, help="As `receive` printed it.")
]
Receipts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECEIPT]", show_default=False, help="As `receive` printed them; `-`: one a line."
    ),
]


@verb(queue, "receive", example="fairbox queue receive jobs --max-messages 5 --wait 2")
def receive(
    session: Session,
    topic: TopicName,
    *,
    max_messages: Annotated[int, typer.Option("--max-messages", "-n", help="1 to 100.")] = 10,
    visibility_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Until others may receive them.")
    ] = 30,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="For the first message.")] = 0,
    consumer: Annotated[
        str, typer.Option(metavar="NAME", help="Shown with what it holds (unordered topics).")
    ] = "",
    max_per_key: Annotated[
        int, typer.Option(help="Messages of one key at most, in order (ordered topics).")
    ] = 1,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters; `ack` purges them.")] = False,
) -> None:
    """Receive messages with their bodies, and hold them; an attempt counts, settled or not."""
    # imported where it is used: `fairbox --help` does without
    from fairbox.model.receipts import Receipt  # noqa: PLC0415

    found = session.queue.receive(
        topic,
        max_messages,
        visibility_timeout,
        wait=wait,
        consumer=consumer,
        max_per_key=max_per_key,
        dead=dead,
    )

    session.details(
        ("ref", "receive_count", "visible_at", "size", "receipt", *(["reason"] if dead else [])),
        [received_fields(one, str(Receipt.parse(one.receipt).ref)) for one in found],
    )


@verb(queue, "ack", example="fairbox queue ack $RECEIPT")
def ack(session: Session, receipts: Receipts = None, file: FromFile = None) -> None:
    """Acknowledge messages: they are done, and leave."""
    _settle(session, "acked", receipts, file)


@verb(queue, "reset", example="fairbox queue reset $RECEIPT")
def reset(session: Session, receipts: Receipts = None, file: FromFile = None) -> None:
    """Give messages back as if they had not been received: due at once, and no attempt counts."""
    _settle(session, "released", receipts, file)


def _settle(session: Session, done: str, receipts: Receipts, file: FromFile) -> None:
    """Settle receipts call by call; those that are stale are named at the end."""
    settle = session.queue.ack if done == "acked" else session.queue.release
    count = 0
    stale: list[tuple[str, MessageRef]] = []
    session.done = {done: 0}

    for call in calls_of(item_ids(receipts, file, "receipts"), CALL_RECEIPTS):
        try:
            settle(call)
        except StaleReceipt as error:
            # the other receipts of the call are settled
            stale += zip(error.receipts, error.refs, strict=True)
            count -= len(error.receipts)
        count += len(call)
        session.done = {done: count}

    if stale:
        # at the end: one stale receipt stops no call behind it
        raise StaleReceipt([receipt for receipt, _ in stale], [ref for _, ref in stale])
    session.show({done: count}, f"{count} {done}")


@verb(queue, "nack", example="fairbox queue nack $RECEIPT --delay 60 --reason 'no such account'")
def nack(
    session: Session,
    receipt: OneReceipt,
    *,
    delay: Annotated[
        float, typer.Option(metavar="SECONDS", help="Until it may be received again.")
    ] = 0,
    backoff: Annotated[
        bool, typer.Option("--backoff", help="As the topic's retry policy says, not --delay.")
    ] = False,
    dead: Annotated[bool, typer.Option("--dead", help="Give it up: to the dead letters.")] = False,
    reason: Annotated[str, typer.Option(help="Why; 200 characters are kept with it.")] = "",
) -> None:
    """Give a message back that failed: received again or, after its last attempt, dead."""
    if dead:
        session.queue.bury(receipt, reason)
    else:
        session.queue.nack(receipt, None if backoff else delay, reason)
    done = "dead" if dead else "given back"
    session.show({"receipt": receipt, "dead": dead}, done)


@verb(queue, "extend", example="fairbox queue extend $RECEIPT 120")
def extend(
    session: Session,
    receipt: OneReceipt,
    seconds: Annotated[float, typer.Argument(show_default=False, help="From now, up to 12 hours.")],
) -> None:
    """Hold a message for so many seconds from now."""
    session.queue.extend(receipt, seconds)
    session.show({"receipt": receipt, "seconds": seconds}, f"held for {seconds:g} s")


@verb(queue, "stats", example="fairbox queue stats jobs")
def stats(
    session: Session,
    topic: TopicName,
    *,
    in_flight: Annotated[
        bool,
        typer.Option("--in-flight", help="Count those of an unordered topic: its backlog is read."),
    ] = False,
    all_partitions: AllPartitions = False,
) -> None:
    """Show a queue's figures, which trail by half a minute; its backlog is not read."""
    figures = partial(session.queue.stats, count_in_flight=in_flight)
    if not all_partitions:
        session.show(stats_fields(figures(topic)))
        return

    queue = session.partitions(topic)
    fields = told(session, queue, parts := queue.each(figures), stats_fields)
    if session.json:
        session.show(fields)
    else:
        rows = [*map(stats_fields, parts.results.values()), fields | {"topic": "all"}]
        session.table(list(rows[0]), rows)


@verb(queue, "purge", example="fairbox queue purge jobs --yes")
def purge(
    session: Session,
    topic: TopicName,
    *,
    reason: Annotated[str, typer.Option(help="The archive keeps it.")] = "",
    all_partitions: AllPartitions = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete every message of a pulled topic, held ones too; dead letters stay."""
    if all_partitions:
        _purge_all(session, session.partitions(topic), reason, yes=yes, dry_run=dry_run)
        return

    # before the question: what cannot be purged need not be asked about
    count = _purgeable(session, topic, count=dry_run)
    if dry_run:
        session.show({"purged": 0, "would_purge": count}, f"{count} would be purged")
        return

    session.confirm(f"Purge topic {topic}?", yes=yes)
    with bar("purging") as advance:

        def report(count: int) -> None:
            session.done = {"purged": count}
            advance(count)

        count = session.queue.purge(topic, reason=reason, progress=report)
    session.show({"purged": count}, f"{count} purged")


def _purgeable(session: Session, topic: str, *, count: bool = True) -> int:
    """Refuse a topic that cannot be purged; return the number of its messages if it is asked."""
    from fairbox.client.queue_operations import check_purgeable  # noqa: PLC0415 - loads the SDK

    check_purgeable(session.outbox.topic(topic))
    return session.outbox.outstanding_count(topic) if count else 0


def _purge_all(
    session: Session, queue: PartitionedQueue, reason: str, *, yes: bool, dry_run: bool
) -> None:
    if dry_run:
        found = queue.each(partial(_purgeable, session))
        fields = told(session, queue, found, lambda count: {"purged": 0, "would_purge": count})
        session.show(fields, f"{fields['would_purge']} would be purged")
        return

    session.confirm(f"Purge all {len(queue)} partitions of queue {queue.name}?", yes=yes)
    counts: dict[str, int] = {}
    with bar("purging") as advance:

        def report(topic: str, count: int) -> None:
            counts[topic] = count
            session.done = {"purged": sum(counts.values())}
            advance(sum(counts.values()))

        done = queue.purge(session.queue, reason=reason, progress=report)

    fields = told(session, queue, done, lambda count: {"purged": count})
    session.show(fields, f"{fields['purged']} purged")


@verb(queue, "resize", example="fairbox queue resize email --partitions 8")
def resize(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="QUEUE", show_default=False, help="Its logical name.")
    ],
    partitions: Annotated[int, typer.Option(show_default=False, help="1 to 1,000.")],
) -> None:
    """Give a partitioned queue another number of partitions, while messages flow."""
    result = session.outbox.resize_queue(name, partitions)
    session.show(width_fields(result), width_text(result))


@verb(queue, "pause", example="fairbox queue pause jobs")
def pause(session: Session, topic: TopicName, all_partitions: AllPartitions = False) -> None:
    """Let receiving give nothing; in force when this returns, 2 s later."""
    _set_paused(session, topic, all_partitions, paused=True)


@verb(queue, "resume", example="fairbox queue resume jobs")
def resume(session: Session, topic: TopicName, all_partitions: AllPartitions = False) -> None:
    """Let receiving give messages again, within 2 s."""
    _set_paused(session, topic, all_partitions, paused=False)


def _set_paused(session: Session, topic: str, all_partitions: bool, *, paused: bool) -> None:
    text = "paused" if paused else "resumed"
    if not all_partitions:
        (session.outbox.pause_topic if paused else session.outbox.resume_topic)(topic)
        session.show({"topic": topic, "paused": paused}, f"{topic} is {text}")
        return

    queue = session.partitions(topic)
    done = (queue.pause if paused else queue.resume)(session.outbox)
    fields = told(session, queue, done, lambda _: {"paused": paused})
    session.show(fields, f"{len(done.results)} partitions of queue {queue.name} are {text}")
