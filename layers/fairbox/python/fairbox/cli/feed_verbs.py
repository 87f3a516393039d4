"""Noun `feed`: messages for people's screens, published and followed."""

from __future__ import annotations

import json
import math
from functools import partial
from itertools import chain
from typing import Annotated

import typer

from fairbox.cli.commands import Yes, noun, verb
from fairbox.cli.output_fields import feed_fields, feed_topic_fields, feed_update_lines
from fairbox.cli.session import FAILED, Session
from fairbox.cli.verb_input import calls_of, item_ids
from fairbox.model.feed_types import BUNDLE_MESSAGES, NUMBERS, SHARD_CLIENTS, Feed, Kind
from fairbox.settings import FEEDS_URL

feed = noun("Publish messages for people's screens, on topics named FEED/KEY, and follow them.")

FeedName = Annotated[str, typer.Argument(metavar="FEED", show_default=False, help="Its name.")]
Number = int | None


@verb(feed, "create", example="fairbox feed create trades --kind ring --size 64")
def create(
    session: Session,
    name: FeedName,
    kind: Annotated[Kind, typer.Option(help="It stays as it is.")] = "snapshot",
    *,
    size: Annotated[Number, typer.Option(help="Messages of a ring, 8 to 512.")] = None,
    history: Annotated[Number, typer.Option(help="Those that a newcomer gets.")] = None,
    limit: Annotated[
        Number, typer.Option(help="Of a private topic: unacknowledged messages, 1 to 10,000.")
    ] = None,
    window: Annotated[Number, typer.Option(help="Those of them on their way, 16 to 256.")] = None,
    keep: Annotated[Number, typer.Option(help="Seconds that messages stay, from 60.")] = None,
) -> None:
    """Create a feed, or change its numbers; one that is not given has its default."""
    given = {"size": size, "history": history, "limit": limit, "window": window, "keep": keep}
    made = Feed(name, kind, **{n: value for n, value in given.items() if value is not None})
    session.feeds.create(made)
    session.show(feed_fields(made))


@verb(feed, "list", example="fairbox feed list")
def list_feeds(session: Session) -> None:
    """List every feed, by name."""
    columns = ["name", "kind", *dict.fromkeys(chain.from_iterable(NUMBERS.values()))]
    session.table(columns, [feed_fields(one) for one in session.feeds.feeds()])


@verb(feed, "show", example="fairbox feed show trades btc")
def show(
    session: Session,
    name: FeedName,
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", show_default=False, help="A topic's.")
    ] = None,
) -> None:
    """Show a feed; or a topic of it: its newest number, and whether anybody follows it."""
    if key is None:
        session.show(feed_fields(session.feeds.feed(name)))
    else:
        session.show(feed_topic_fields(session.feeds.topic(name, key)))


@verb(feed, "delete", example="fairbox feed delete trades --yes")
def delete(session: Session, name: FeedName, *, yes: Yes = False) -> None:
    """Delete a feed, within 30 s. Messages stay for `keep`; made again, its numbers go on."""
    # a wrong name is refused before the question
    session.feeds.feed(name)
    session.confirm(f"Delete feed {name}? Its topics take no messages then.", yes=yes)
    session.feeds.delete(name)
    session.show({"feed": name, "deleted": True}, f"{name} is deleted")


@verb(feed, "token", example="fairbox feed token u7 'trades/*' inbox/u7")
def token(
    session: Session,
    user: Annotated[str, typer.Argument(metavar="USER", show_default=False, help="The client's.")],
    allow: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC", show_default=False, help="FEED/KEY, or FEED/*, up to 100."),
    ],
    *,
    ttl: Annotated[int, typer.Option(metavar="SECONDS", help="To connect within, 1 to 300.")] = 60,
) -> None:
    """Print a token with which a client connects and follows these topics."""
    made = session.feeds.token(user, allow, ttl)
    session.show({"token": made}, made)


@verb(feed, "size", example="fairbox feed size --clients 10000")
def size(
    session: Session,
    *,
    clients: Annotated[
        int,
        typer.Option(
            min=1,
            max=250_000,
            metavar="N",
            help="Connected at a time, up to 250,000.",
            show_default=False,
        ),
    ],
    frames: Annotated[
        float, typer.Option(min=0, max=1e6, metavar="N", help="Frames to each, a second.")
    ] = 1.0,
    push_rate: Annotated[int, typer.Option(min=1, metavar="N", help="As the setting.")] = 5000,
) -> None:
    """Say which `audience_shards` so many clients need, and what their frames take.

    A shard is for 250 clients. A frame to all of them takes `seconds`. Where `push_rate` is below
    `frames_per_second`, clients get the newest messages, and are told how many they missed.
    """
    session.show(
        {
            "audience_shards": math.ceil(clients / SHARD_CLIENTS),
            "seconds": clients / push_rate,
            "frames_per_second": clients * frames,
            "enough": clients * frames <= push_rate,
        }
    )


@verb(feed, "publish", example="fairbox feed publish trades btc '{\"price\": 64012}'")
def publish(
    session: Session,
    name: FeedName,
    key: Annotated[str, typer.Argument(metavar="KEY", show_default=False, help="The topic's.")],
    bodies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BODY]",
            show_default=False,
            help="Texts; `-` or none is standard input, a message a line.",
        ),
    ] = None,
    *,
    content_type: Annotated[
        str, typer.Option(help="Media type of the bodies.")
    ] = "application/json",
    message_id: Annotated[
        str | None, typer.Option("--id", help="Of a single body; again it comes to clients once.")
    ] = None,
) -> None:
    """Publish messages to a topic, 16 a call, and print their numbers."""
    bodies = bodies or ["-"]
    if message_id is not None and (len(bodies) > 1 or bodies == ["-"]):
        raise typer.BadParameter("--id is of one message: give one BODY")
    ids, done = (None if message_id is None else [message_id]), 0
    for texts in calls_of(item_ids(bodies, None, "bodies"), BUNDLE_MESSAGES):
        # arguments of the shell may be any bytes, which go out as they came
        call = [text.encode(errors="surrogateescape") for text in texts]
        numbers = session.feeds.publish_many(name, key, call, content_type, ids=ids)
        session.lines(({"number": number}, str(number)) for number in numbers)
        done += len(numbers)
        session.done = {"published": done}


@verb(feed, "tail", example="fairbox feed tail trades/btc --seconds 60")
def tail(
    session: Session,
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC", show_default=False, help="FEED/KEY, up to 100.")
    ],
    *,
    begin: Annotated[
        int | None, typer.Option("--from", help="Begin behind this number; else as a newcomer.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="End after so long.")] = None,
    url: Annotated[str | None, typer.Option(help=f"Default: {FEEDS_URL}.")] = None,
    token: Annotated[str | None, typer.Option(help="A client's; else one is made.")] = None,
) -> None:
    """Follow topics until Ctrl-C: a line for each message, and for what is lost, reset or refused.

    It exits 1 if a topic is refused.
    """
    # imported where it is used: `fairbox --help` does without the library
    from fairbox.client.feed_client import FeedClient  # noqa: PLC0415

    where = url or session.clients.settings.required(FEEDS_URL)
    # made anew for each connection, because a token is good for a minute or so
    given = token or partial(session.feeds.token, "fairbox-cli", topics)

    refused = False
    positions = dict.fromkeys(topics, begin)
    with FeedClient(where, positions, given, clock=session.clock) as client:
        try:
            for update in client.updates(seconds):
                session.lines(feed_update_lines(update))
                refused |= update.error is not None
        finally:
            # also after Ctrl-C: with `--from` a later call goes on there
            session.note(f"positions: {json.dumps(client.positions)}")

    if refused:
        raise typer.Exit(FAILED)
