"""Noun `feed`: every verb, for people and as JSON, over the application in memory."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Feed
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from websockets.sync.server import ServerConnection

    from tests.support.cli_runs import Cli

ENTRIES = [
    ["trades/btc", 5, 8, [[7, "a", {"price": "1,5 \u20ac"}], [8, "b", "AP8=", "b64"]]],
    ["inbox/u7", 1, 1, [], "reset"],
]
KINDS = {"trades/btc": "ring", "inbox/u7": "private"}


def test_create_takes_the_numbers_of_the_kind_and_shows_them(cli: Cli) -> None:
    made = cli.ok("feed", "create", "trades", "--kind", "ring", "--size", "128", "--json").json
    assert made == {"name": "trades", "kind": "ring", "size": 128, "history": 0, "keep": 86_400}
    assert cli.application.feeds.feed("trades") == Feed("trades", "ring", size=128)
    wrong = cli("feed", "create", "prices", "--size", "128")
    assert (wrong.code, wrong.err) == (
        2,
        "fairbox: size: expected no value: kind 'snapshot' has none\n",
    )


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
def server(cli: Cli, answer: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Run a server that answers once and lets a minute pass; yield its URL and what it is asked."""
    asked: list[Any] = []

    def handle(socket: ServerConnection) -> None:
        asked.append(socket.request and socket.request.headers["Sec-WebSocket-Protocol"])
        asked.append(json.loads(socket.recv()))
        socket.send(json.dumps({"a": 1, "kinds": KINDS, **answer}))
        cli.clock.advance(60)
        socket.send("{}")
        with pytest.raises(ConnectionClosed):
            socket.recv()

    with serve(handle, "127.0.0.1", 0, select_subprotocol=lambda *_: None) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{made.socket.getsockname()[1]}", asked
        made.shutdown()
        thread.join()


def test_tail_prints_messages_and_what_is_lost_or_reset(cli: Cli) -> None:
    given = ("feed", "tail", *KINDS, "--token", "t", "--seconds", "30", "--from", "5", "--url")
    with server(cli, {"t": ENTRIES}) as (url, asked):
        run = cli.ok(*given, url)
        assert run.lines == [
            "trades/btc lost 1",
            'trades/btc 7 a {"price":"1,5 \u20ac"}',
            'trades/btc 8 b "AP8="',
            "inbox/u7 reset",
        ]
        assert run.err == 'positions: {"trades/btc": 8, "inbox/u7": 1}\n'
        assert asked[0] == "fairbox.v1, token.t"
        assert asked[1]["topics"] == {"trades/btc": 5, "inbox/u7": 5}
        shown = cli.ok(*given, url, "--json").objects
    assert shown[0] == {"topic": "trades/btc", "lost": 1}
    assert shown[2] == {
        "topic": "trades/btc", "number": 8, "id": "b", "body": "AP8=", "body_encoding": "base64",
    }  # fmt: skip


def test_tail_names_what_it_lacks(cli: Cli) -> None:
    assert "FAIRBOX_FEEDS_URL" in cli("feed", "tail", "trades/btc", "--token", "t").err
    assert "FAIRBOX_FEEDS_SECRET" in cli("feed", "tail", "trades/btc", "--url", "wss://x").err
