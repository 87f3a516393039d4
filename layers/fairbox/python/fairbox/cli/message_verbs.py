"""Noun `message`: published, listed, shown, cancelled, skipped, taken from who holds it."""

from __future__ import annotations

import sys
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairbox.cli.commands import DryRun, FromFile, Limit, Ref, TopicName, Yes, noun, verb
from fairbox.cli.output_fields import (
    DELIVERY_COLUMNS,
    body_fields,
    dead_fields,
    delivery_fields,
    erasure_fields,
    failures_fields,
    receives_fields,
    stored_fields,
)
from fairbox.cli.session import FAILED, Session
from fairbox.cli.verb_input import headers_of, read_body
from fairbox.errors import MessagesNotFound
from fairbox.model.clock import milliseconds
from fairbox.model.messages import Message, MessageRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox.cli.output_fields import Fields
    from fairbox.client.reading import MessageReceives
    from fairbox.tables.stored_messages import StoredMessage

message = noun("Publish messages, list, show, edit, skip, cancel, release and delete them.")

State = Literal["outstanding", "held", "waiting", "dead", "delivered"]
Refs = Annotated[
    list[str],
    typer.Argument(metavar="REF", show_default=False, help="`topic/epoch/shard/id`."),
]
Reason = Annotated[str, typer.Option(help="Why; 200 characters are kept.")]


@verb(
    message, "send", example="fairbox message send orders '{\"id\": 7}' --partition-key customer-42"
)
def send(
    session: Session,
    topic: TopicName,
    body: Annotated[
        str | None, typer.Argument(show_default=False, help="Text; or give --body or --file.")
    ] = None,
    *,
    text: Annotated[str | None, typer.Option("--body", help="The same.")] = None,
    file: FromFile = None,
    partition_key: Annotated[str | None, typer.Option(help="One key, one shard.")] = None,
    content_type: Annotated[
        str, typer.Option(help="Media type of the body.")
    ] = "application/octet-stream",
    event_type: Annotated[
        str | None, typer.Option("--type", help="Type of the event, such as com.shop.order.placed.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Travels with the message.")
    ] = None,
    delay: Annotated[float, typer.Option(metavar="SECONDS", help="Until it is due.")] = 0,
    dedup_key: Annotated[
        str | None, typer.Option(help="Seen within the topic's window: the first one's ref.")
    ] = None,
    fairness_key: Annotated[str | None, typer.Option(help="The tenant it counts for.")] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="It goes before others, as a notice does.")
    ] = False,
    batch_item: Annotated[
        str | None, typer.Option(metavar="ITEM", help="The batch item that its delivery acks.")
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="An id that its own sorts above.")
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="UUID", help="Its own id, a UUIDv7.")
    ] = None,
) -> None:
    """Publish a message and print its ref."""
    given = [one for one in (body, text, file) if one is not None]
    if len(given) != 1:
        raise typer.BadParameter("give the body, --body or --file PATH, once")

    content = body if text is None else text
    made = Message(
        topic=topic,
        body=read_body(file) if content is None else content.encode(errors="surrogateescape"),
        partition_key=partition_key,
        content_type=content_type,
        type=event_type,
        headers=headers_of(header or []),
        delay=delay,
        dedup_key=dedup_key,
        fairness_key=fairness_key,
        direct=direct,
        batch_item=batch_item,
        after=after,
        id=message_id or session.new_id(after),
    )

    ref = session.outbox.add(made)
    session.show({"ref": str(ref)}, str(ref))


@verb(message, "list", example="fairbox message list orders --state outstanding")
def list_messages(
    session: Session,
    topic: TopicName,
    state: Annotated[
        State, typer.Option(help="`outstanding`: due and not yet delivered; `held`: by consumers.")
    ] = "outstanding",
    limit: Limit = 100,
) -> None:
    """List a topic's messages, without their bodies."""
    if state == "delivered":
        found = session.outbox.delivered(topic, limit=limit)
        session.table(DELIVERY_COLUMNS, (delivery_fields(d) for d in found))
    elif state == "dead":
        letters = session.outbox.dead(topic, limit=limit)
        session.table(("ref", "died_at", "reason"), (dead_fields(letter) for letter in letters))
    else:
        receives = ("receive_count", "held_until", "consumer")
        columns = ("ref", "state", "size", "due_at", *receives, "partition_key")
        session.table(columns, islice(_stored(session, topic, state), limit))


def _stored(session: Session, topic: str, state: State) -> Iterator[Fields]:
    now = milliseconds(session.clock)
    receives = session.outbox.receives()
    if state != "waiting":
        for stored in session.outbox.stored("ready", topic):
            if shown := _shown(receives, stored, state):
                yield shown

    for stored in session.outbox.stored("later", topic):
        waits = (stored.ref.due or 0) > now
        if waits and state != "waiting":
            return  # they come by due time
        if waits == (state == "waiting") and (shown := _shown(receives, stored, state)):
            yield shown


def _shown(receives: MessageReceives, stored: StoredMessage, wanted: State) -> Fields | None:
    """Return the fields of a message with its state; None: only held ones are wanted."""
    of = receives.of(stored)
    state = receives.state(stored, of)
    if wanted == "held" and state != wanted:
        return None
    return stored_fields(stored, state) | receives_fields(of)


@verb(message, "show", example="fairbox message show $REF")
def show(
    session: Session,
    ref: Ref,
    body: Annotated[bool, typer.Option("--body", help="Print the body's bytes alone.")] = False,
) -> None:
    """Show a message that is outstanding or dead, with its body."""
    wanted = MessageRef.parse(ref)
    stored = session.outbox.find(wanted)
    if stored is None:
        raise MessagesNotFound([wanted])
    stored = session.outbox.fetch(stored)

    if body:
        # bytes as they are: a text stream would encode and translate them
        sys.stdout.buffer.write(stored.message.body)
        sys.stdout.buffer.flush()
        return

    letter = session.outbox.dead_letter(wanted) if stored.lane == "dead" else None
    if letter is not None:
        fields = dead_fields(letter) | failures_fields(letter)
    else:
        receives = session.outbox.receives()
        of = receives.of(stored)
        fields = stored_fields(stored, receives.state(stored, of)) | receives_fields(of)

    session.show(fields | body_fields(stored.message))


@verb(message, "cancel", example="fairbox message cancel $REF --reason duplicate --yes")
def cancel(
    session: Session,
    refs: Refs,
    reason: Annotated[str, typer.Option(help="At most 256 bytes; the archive keeps it.")] = "",
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Take outstanding messages out of the outbox undelivered."""
    wanted = [MessageRef.parse(text) for text in refs]
    if dry_run:
        _try(session, wanted, "cancel", "cancelled")
        return
    session.confirm(f"Cancel {len(wanted)} message(s)?", yes=yes)
    session.outbox.cancel(wanted, reason=reason)
    session.show({"cancelled": [str(ref) for ref in wanted]}, f"{len(wanted)} cancelled")


@verb(message, "release", example="fairbox message release $REF")
def release(session: Session, refs: Refs, dry_run: DryRun = False) -> None:
    """Take messages from whoever holds them, or end their wait: due at once, no attempt counts."""
    _settle(session, refs, ("release", "released"), session.queue.release, dry_run)


@verb(message, "reset", example="fairbox message reset $REF")
def reset(session: Session, refs: Refs, dry_run: DryRun = False) -> None:
    """Release messages, and count none of their receives so far."""
    _settle(session, refs, ("reset", "reset"), session.queue.reset, dry_run)


@verb(message, "bury", example="fairbox message bury $REF --reason 'never ends' --yes")
def bury(
    session: Session, refs: Refs, reason: Reason = "", yes: Yes = False, dry_run: DryRun = False
) -> None:
    """Make messages dead letters, whoever holds them."""
    call = partial(session.queue.bury, reason=reason)
    _settle(session, refs, ("bury", "buried"), call, dry_run, yes=yes)


@verb(message, "delete", example="fairbox message delete $REF --reason duplicate --yes")
def delete(
    session: Session, refs: Refs, reason: Reason = "", yes: Yes = False, dry_run: DryRun = False
) -> None:
    """Take messages out of the outbox undelivered, whoever holds them."""
    call = partial(session.queue.delete, reason=reason)
    _settle(session, refs, ("delete", "deleted"), call, dry_run, yes=yes)


@verb(message, "erase", example="fairbox message erase --partition-key customer-42 --yes")
def erase(
    session: Session,
    *,
    partition_key: Annotated[
        str, typer.Option(metavar="KEY", help="As the messages were published.")
    ],
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Of this topic alone; all by default.")
    ] = None,
    reason: Annotated[
        str, typer.Option(help="At most 256 bytes; the archive keeps it: name nobody.")
    ] = "erased",
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Cancel all messages of a partition key and purge its dead letters, for good."""
    # imported where it is used: most verbs do without it
    from fairbox.client.erasure import KeyErasure  # noqa: PLC0415

    if not dry_run:
        session.confirm(f"Erase all messages of {partition_key!r} for good?", yes=yes)
    result = KeyErasure(session.outbox).erase(
        partition_key, topic=topic, reason=reason, dry_run=dry_run
    )

    counts = f"{len(result.cancelled)} cancelled, {len(result.purged)} purged"
    stays = [f"stays: {one}" for one in (*result.claimed, *result.left)]
    session.show(erasure_fields(result), "\n".join([*stays, counts]))
    if stays:
        raise typer.Exit(FAILED)


def _settle(
    session: Session,
    refs: list[str],
    names: tuple[str, str],
    call: Callable[[MessageRef], None],
    dry_run: bool,
    *,
    yes: bool = True,
) -> None:
    """Settle messages of pulled topics one by one, up to the first that fails."""
    (name, done), wanted = names, dict.fromkeys(MessageRef.parse(text) for text in refs)
    # a wrong topic is refused before anything is settled
    for ref in wanted:
        session.queue.topic(ref.topic)

    if dry_run:
        _try(session, list(wanted), name, done)
        return

    session.confirm(f"{name.capitalize()} {len(wanted)} message(s)?", yes=yes)
    settled: list[str] = []
    # the list grows with the loop: after an error it says what was done
    session.done = {done: settled}
    for ref in wanted:
        call(ref)
        settled.append(str(ref))

    session.show({done: settled}, f"{len(settled)} {done}")


def _try(session: Session, wanted: list[MessageRef], name: str, done: str) -> None:
    """Say which messages a verb would find; end with 1 if not all."""
    texts = [str(ref) for ref in wanted if _outstanding(session, ref)]
    session.show({done: [], f"would_{name}": texts}, "\n".join(texts))
    if len(texts) < len(wanted):
        raise typer.Exit(FAILED)


@verb(message, "skip", example="fairbox message skip $REF --subscription billing --yes")
def skip(
    session: Session,
    ref: Ref,
    *,
    subscription: Annotated[
        str, typer.Option(metavar="NAME", help="The subscription that goes without it.")
    ],
    reason: Annotated[str, typer.Option(help="At most 256 bytes; the archive keeps it.")] = "",
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Let one subscription go without a message; the others still get it."""
    wanted = MessageRef.parse(ref)
    fields: Fields = {"ref": str(wanted), "subscription": subscription}
    if dry_run:
        stored = session.outbox.find(wanted) if _outstanding(session, wanted) else None
        names = session.outbox.topic(wanted.topic).subscription_names
        lacks = stored is not None and subscription in stored.lacking(names)
        session.show(fields | {"would_skip": lacks})
        if not lacks:
            raise typer.Exit(FAILED)
        return

    session.confirm(f"Skip {wanted} for subscription {subscription}?", yes=yes)
    session.outbox.skip(wanted, subscription=subscription, reason=reason)
    session.show(fields, f"{wanted}: skipped for {subscription}")


@verb(message, "edit", example="fairbox message edit $REF '{\"id\": 8}' --due now")
def edit(
    session: Session,
    ref: Ref,
    body: Annotated[
        str | None, typer.Argument(show_default=False, help="Its new body; or give --file.")
    ] = None,
    *,
    file: FromFile = None,
    content_type: Annotated[
        str | None, typer.Option(help="Its new media type.", show_default=False)
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Its new headers: all of them.", show_default=False
        ),
    ] = None,
    due: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="`now`, or `+SECONDS` from now.", show_default=False),
    ] = None,
) -> None:
    """Change a message that nobody holds, or when it is due, and print the ref it has then."""
    if body is not None and file is not None:
        raise typer.BadParameter("give the body, or --file PATH, and not both")

    wait = None if due is None else _delay(due)
    content = read_body(file) if file else None if body is None else body.encode()
    headers = headers_of(header) if header else None
    wanted = MessageRef.parse(ref)
    if (content, content_type, headers, wait) == (None, None, None, None):
        raise typer.BadParameter("nothing to change: give a body, --due, or another option")

    if (content, content_type, headers) != (None, None, None):
        session.queue.edit(wanted, body=content, content_type=content_type, headers=headers)
        # if the second call fails, this says that the first one is done
        session.done = {"edited": str(wanted)}
    if wait is not None:
        wanted = session.queue.reschedule(wanted, wait)

    session.show({"ref": str(wanted)}, str(wanted))


def _delay(text: str) -> float:
    if text == "now":
        return 0
    if text.startswith("+"):
        try:
            return float(text[1:])
        except ValueError:
            pass
    raise typer.BadParameter(f"--due {text!r}: expected now or +SECONDS")


def _outstanding(session: Session, ref: MessageRef) -> bool:
    stored = session.outbox.find(ref)
    return stored is not None and stored.lane != "dead"
