"""Noun `feed`: every verb, for people and as JSON, over the application in memory."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from fairbox import Feed, UnknownFeed
from fairbox.aws.token_keys import SecretKeys
from fairbox.feeds.asking import Asking
from fairbox.feeds.feed_requests import Requests
from fairbox.feeds.tokens import check_token
from fairbox.tables.calls import Calls
from fairbox.tables.feed_connections import Connection, FeedConnections, FeedLeases, lease_sk
from fairbox.tables.feed_topics import FeedTopics
from fairbox.testing.application import FEEDS
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

from tests.functions.running import FakeSecrets
from tests.support.deployment import variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from websockets.sync.server import ServerConnection

    from tests.support.cli_runs import Cli


def test_create_takes_the_numbers_of_the_kind_and_shows_them(cli: Cli) -> None:
    made = cli.ok("feed", "create", "trades", "--kind", "ring", "--size", "128", "--json").json
    assert made == {"name": "trades", "kind": "ring", "size": 128, "history": 0, "keep": 86_400}
    assert cli.application.feeds.feed("trades") == Feed("trades", "ring", size=128)
    wrong = cli("feed", "create", "prices", "--size", "128")
    assert (wrong.code, wrong.err) == (
        2,
        "fairbox: size: expected no value: kind 'snapshot' has none\n",
    )


def test_feeds_are_listed_shown_and_deleted(cli: Cli) -> None:
    feeds = cli.application.feeds
    cli.ok("feed", "list")
    feeds.create(Feed("trades", "ring", size=8))
    feeds.create(Feed("inbox", "private"))
    inbox = {"name": "inbox", "kind": "private", "limit": 256, "window": 32, "keep": 86_400}
    assert cli.ok("feed", "list", "--json").objects[0] == inbox
    assert [line.split()[:2] for line in cli.ok("feed", "list").lines[1:]] == [
        ["inbox", "private"],
        ["trades", "ring"],
    ]
    assert cli.ok("feed", "show", "inbox", "--json").json == inbox

    assert cli("feed", "delete", "trades", stdin="n\n").code == 1
    assert cli.ok("feed", "delete", "trades", "--yes").lines == ["trades is deleted"]
    assert [feed.name for feed in feeds.feeds()] == ["inbox"]
    for verb in (("show", "trades"), ("delete", "trades"), ("show", "trades", "btc")):
        assert "there is no feed 'trades'" in cli("feed", *verb).err
    with pytest.raises(UnknownFeed):
        feeds.delete("trades")
    with pytest.raises(UnknownFeed):
        feeds.publish("trades", "btc", b"1")


def test_numbers_of_a_feed_that_is_made_again_go_on(cli: Cli) -> None:
    feeds = cli.application.feeds
    feeds.create(Feed("trades", "ring"))
    feeds.publish("trades", "btc", b"1")
    feeds.delete("trades")
    feeds.create(Feed("trades", "ring"))
    assert feeds.publish("trades", "btc", b"2") == 2


def test_show_says_how_a_topic_stands(cli: Cli) -> None:
    application = cli.application
    application.feeds.create(Feed("inbox", "private"))
    shown = {"topic": "inbox/u7", "kind": "private", "last": 0, "unacknowledged": 0}
    nothing = shown | {"published_at": None, "audience_shards": 0}
    assert cli.ok("feed", "show", "inbox", "u7", "--json").json == nothing

    calls = Calls(application.client, application.clock, application.rng)
    FeedLeases(calls, FEEDS).take({"inbox/u7": lease_sk(1, "c1"), "inbox/u8": lease_sk(0)})
    application.feeds.publish_many("inbox", "u7", [b"1", b"2"])
    FeedTopics(calls, FEEDS).acknowledge("inbox/u7", 1)
    found = cli.ok("feed", "show", "inbox", "u7", "--json").json
    now = application.clock.now()
    assert abs(found.pop("published_at") / 1000 - now) < 1
    assert found == shown | {"last": 2, "unacknowledged": 1, "audience_shards": 1}
    application.feeds.create(Feed("prices"))
    assert application.feeds.topic("prices", "eur").unacknowledged is None
    assert cli("feed", "show", "prices", "*").code == 2


def test_token_makes_one_that_connects(cli: Cli) -> None:
    keys = SecretKeys(FakeSecrets, variable("FAIRBOX_FEEDS_SECRET"), cli.clock)
    cli.application.feeds._keys = keys
    text = cli.ok("feed", "token", "u7", "trades/*", "inbox/u7", "--ttl", "30").lines[0]
    claims = check_token(keys, text, cli.clock.now() + 29)
    assert claims is not None
    assert (claims.user, claims.allow) == ("u7", ("trades/*", "inbox/u7"))
    assert check_token(keys, text, cli.clock.now() + 31) is None
    assert "allow: expected" in cli("feed", "token", "u7", "trades").err


def test_size_says_how_many_shards_clients_need(cli: Cli) -> None:
    size = ("feed", "size", "--json", "--clients")
    few = {"audience_shards": 1, "seconds": 0.05, "frames_per_second": 250.0, "enough": True}
    assert cli.ok(*size, "250").json == few
    assert cli.ok(*size, "5000").json["enough"]
    many = {"audience_shards": 41, "seconds": 1.0001, "frames_per_second": 20002.0, "enough": False}
    assert cli(*size, "250001").code == 2  # more than `audience_shards` may be
    assert cli.ok(*size, "10001", "--frames", "2", "--push-rate", "10000").json == many


def test_publish_takes_bodies_and_lines_and_prints_numbers(cli: Cli) -> None:
    cli.application.feeds.create(Feed("trades", "ring"))
    publish = ("feed", "publish", "trades", "btc")
    assert cli.ok(*publish, "1", '"two"').lines == ["1", "2"]
    lines = "\n".join(map(str, range(20)))
    assert cli.ok(*publish, stdin=lines).lines == [str(n) for n in range(3, 23)]
    assert cli.ok(*publish, "-", "--json", stdin="1").objects == [{"number": 23}]
    assert cli.ok(*publish, "x", "--content-type", "text/plain", "--id", "a").lines == ["24"]
    assert cli.ok(*publish, "x", "--content-type", "text/plain", "--id", "a").lines == ["24"]


def test_publish_refuses_what_is_wrong_and_says_what_was_done(cli: Cli) -> None:
    cli.application.feeds.create(Feed("trades", "ring"))
    publish = ("feed", "publish", "trades", "btc")
    for bodies in ((), ("-",), ("1", "2")):
        assert "--id" in cli(*publish, *bodies, "--id", "a", stdin="1").err
    run = cli(*publish, stdin="1\n" * 16 + "{")
    assert (run.code, len(run.lines)) == (2, 16)
    assert "body: expected JSON" in run.err
    assert "published: 16" in run.err
    cli.application.feeds.create(Feed("inbox", "private", limit=1))
    cli.ok("feed", "publish", "inbox", "u7", "1")
    for name, kind in (("none", "unknown-feed"), ("inbox", "feed-full")):
        run = cli("feed", "publish", name, "u7", "1", "--json")
        assert (run.code, json.loads(run.err)["type"]) == (1, f"urn:fairbox:problem:{kind}")


@contextmanager
def server(cli: Cli) -> Iterator[str]:
    """Answer clients from the application's table; yield the URL.

    A second passes while a client says nothing, and a day when it has taken what it was answered.
    """
    application = cli.application
    calls = Calls(application.client, application.clock, application.rng)
    connections = FeedConnections(calls, FEEDS, 4)
    requests = Requests(Asking(calls, FEEDS, connections), connections)
    grants = frozenset({"trades/*", "inbox/u7"})

    def handle(socket: ServerConnection) -> None:
        connections.open(str(socket.id), Connection("u7", grants))
        asked: dict[str, int] = {}
        with suppress(ConnectionClosed):
            while True:
                try:
                    text = str(socket.recv(timeout=0.05))
                except TimeoutError:
                    cli.clock.advance(1)
                    socket.send("{}")
                    continue
                positions = json.loads(text)["topics"]
                cli.clock.advance(86_400 if asked and positions != asked else 0)
                asked = positions
                socket.send(requests.answer(str(socket.id), text))

    with serve(handle, "127.0.0.1", 0, select_subprotocol=lambda *_: None) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{made.socket.getsockname()[1]}"
        made.shutdown()
        thread.join()


def test_tail_prints_messages_and_what_is_lost_reset_or_refused(cli: Cli) -> None:
    feeds = cli.application.feeds
    feeds.create(Feed("trades", "ring", size=8))
    feeds.create(Feed("inbox", "private"))
    for n in range(9):
        feeds.publish("trades", "btc", b"%d" % n, id=f"{n}")
    feeds.publish("trades", "btc", '{"price": "1,5 \u20ac"}'.encode(), id="json")
    feeds.publish("trades", "btc", b"\0\xff", "image/png", id="bytes")
    topics = ("trades/btc", "inbox/u7", "inbox/u8")
    given = ("feed", "tail", *topics, "--token", "t", "--seconds", "86400", "--from", "1", "--url")
    with server(cli) as url:
        run = cli(*given, url)
        shown = cli(*given, url, "--json").objects
    assert run.lines[:3] == [
        "inbox/u8 not_allowed: the token allows neither it nor its feed",
        "trades/btc lost 2",
        "trades/btc 4 3 3",
    ]
    assert run.lines[-3:] == [
        'trades/btc 10 json {"price":"1,5 \u20ac"}',
        'trades/btc 11 bytes "AP8="',
        "inbox/u7 reset",
    ]
    positions = '{"trades/btc": 11, "inbox/u7": 0, "inbox/u8": 1}'
    assert (run.code, run.err) == (1, f"positions: {positions}\n")
    assert shown[1] == {"topic": "trades/btc", "lost": 2}
    body = {"body": "AP8=", "body_encoding": "base64"}
    assert shown[-2] == {"topic": "trades/btc", "number": 11, "id": "bytes"} | body


def test_tail_names_what_it_lacks(cli: Cli) -> None:
    assert "FAIRBOX_FEEDS_URL" in cli("feed", "tail", "trades/btc", "--token", "t").err
    assert "FAIRBOX_FEEDS_SECRET" in cli("feed", "tail", "trades/btc", "--url", "wss://x").err
