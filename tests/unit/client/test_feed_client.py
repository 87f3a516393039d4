"""The client of feeds over a WebSocket, with a server in the test that plays its part."""

from __future__ import annotations

import json
import random
import sys
import threading
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import FeedClient, FeedRefused, InvalidInput, Unavailable
from fairbox.testing import ManualClock
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve
from websockets.typing import Subprotocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from websockets.http11 import Request, Response
    from websockets.sync.server import ServerConnection

RING, SNAP = "trades/btc", "prices/eur"
KINDS = {RING: "ring", SNAP: "snapshot"}
NUDGE = '{"message": "Internal server error", "connectionId": "x"}'


class Stage:
    """A server whose connections each run the next part: an HTTP status, or a function."""

    def __init__(self, *parts: int | Callable[[ServerConnection], None]) -> None:
        self.clock = ManualClock()
        self.parts = list(parts)
        self.offers: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.tokens = (f"t{n}" for n in count())

    def client(self, url: str, **topics: int | None) -> FeedClient:
        asked = {t: topics[t.partition("/")[0]] for t in KINDS if t.partition("/")[0] in topics}
        token = self.tokens.__next__
        return FeedClient(url, asked, token, clock=self.clock, rng=random.Random(7))

    def check(self, socket: ServerConnection, request: Request) -> Response | None:
        self.offers.append(request.headers["Sec-WebSocket-Protocol"])
        part = self.parts[0]
        if not isinstance(part, int):
            return None
        del self.parts[0]
        return socket.respond(part, "")

    def handle(self, socket: ServerConnection) -> None:
        part = self.parts.pop(0)
        assert not isinstance(part, int)
        try:
            part(socket)
        except ConnectionClosed:
            return

    def request(self, socket: ServerConnection) -> dict[str, Any]:
        self.asked.append(json.loads(socket.recv()))
        return self.asked[-1]

    def answer(self, socket: ServerConnection, *entries: Any, **others: Any) -> None:
        answer = {"a": self.request(socket)["id"], "t": entries, "kinds": KINDS}
        socket.send(json.dumps(answer | others))

    def pass_time(self, socket: ServerConnection, seconds: float) -> None:
        self.clock.advance(seconds)
        socket.send(NUDGE)

    @contextmanager
    def run(self, **topics: int | None) -> Iterator[FeedClient]:
        with serve(
            self.handle,
            "127.0.0.1",
            0,
            process_request=self.check,
            subprotocols=[Subprotocol("fairbox.v1")],
        ) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
                with self.client(url, **topics) as client:
                    yield client
            finally:
                server.shutdown()
                thread.join()


def entry(number: int, body: Any = None) -> list[Any]:
    return [RING, number - 1, number, [[number, f"id-{number}", body]]]


def test_it_offers_its_token_asks_and_yields_what_comes() -> None:
    def part(socket: ServerConnection) -> None:
        stage.answer(socket, entry(6, {"price": 1}), [SNAP, 3, 3, []])
        socket.send(json.dumps({"t": [entry(7, "x" * 130_000)]}))
        with pytest.raises(ConnectionClosed):
            socket.recv()
        gone.set()

    stage, gone = Stage(part), threading.Event()
    with stage.run(trades=5, prices=None) as client:
        updates = iter(client)
        [message] = next(updates).messages
        assert (message.number, message.body) == (6, {"price": 1})
        assert next(updates).messages[0].number == 7
        assert client.positions == {RING: 7, SNAP: 3}
        client.close()
        assert gone.wait(60)
    assert stage.offers == ["fairbox.v1, token.t0"]
    assert stage.asked == [{"op": "sync", "id": 1, "topics": {RING: 5, SNAP: None}}]


def test_it_comes_back_with_its_position_and_a_new_token_whatever_breaks() -> None:
    def first(socket: ServerConnection) -> None:
        stage.answer(socket, entry(6))

    def lost(socket: ServerConnection) -> None:
        stage.request(socket)
        assert socket.socket is not None
        socket.socket.close()

    def last(socket: ServerConnection) -> None:
        stage.answer(socket, entry(7))
        socket.recv()

    stage = Stage(401, first, 500, 429, lost, 401, last)
    with stage.run(trades=5) as client:
        updates = iter(client)
        assert [next(updates).position, next(updates).position] == [6, 7]
    assert [asked["topics"] for asked in stage.asked] == [{RING: 5}, {RING: 6}, {RING: 6}]
    assert [offer[-2:] for offer in stage.offers] == [f"t{n}" for n in range(7)]


def test_it_replaces_a_socket_that_leaves_two_requests_unanswered() -> None:
    def silent(socket: ServerConnection) -> None:
        for _ in range(2):
            stage.request(socket)
            stage.pass_time(socket, 10)
        socket.recv()

    def last(socket: ServerConnection) -> None:
        stage.answer(socket, entry(6))
        socket.recv()

    stage = Stage(silent, last)
    with stage.run(trades=5) as client:
        assert next(iter(client)).position == 6
    assert [asked["id"] for asked in stage.asked] == [1, 2, 3]


@pytest.mark.parametrize("status", [401, 403])
def test_two_tokens_refused_in_a_row_are_an_error(status: int) -> None:
    stage = Stage(status, 500, status)
    with stage.run(trades=5) as client, pytest.raises(FeedRefused, match=str(status)) as refused:
        next(iter(client))
    assert refused.value.code == "not_allowed"
    assert len(stage.offers) == 3


def test_where_no_server_or_token_is_to_be_had_it_tries_on_with_ever_longer_waits() -> None:
    stage, tries = Stage(), count()

    def token() -> str:
        if next(tries) % 2:
            raise Unavailable("the secret", "no answer")
        return "t"

    client = FeedClient("ws://127.0.0.1:1", {RING: 5}, token, clock=stage.clock)
    assert list(client.updates(3600)) == []
    assert 60 < next(tries) < 600


def test_positions_are_behind_what_was_handed_out_and_the_rest_comes_next() -> None:
    def part(socket: ServerConnection) -> None:
        stage.answer(socket, entry(6), [SNAP, 8, 9, [[9, "id", 0]]])
        socket.recv()

    stage = Stage(part)
    with stage.run(trades=5, prices=8) as client:
        for _ in client:
            break
        assert client.positions == {RING: 6, SNAP: 8}
        rest = client.updates(30)
        assert next(rest).topic == SNAP
        stage.clock.advance(30)
        assert list(rest) == []
        assert client.positions == {RING: 6, SNAP: 9}


def test_close_ends_the_iteration_from_another_thread() -> None:
    def part(socket: ServerConnection) -> None:
        stage.request(socket)
        client.close()

    stage = Stage(part)
    with stage.run(trades=5) as client:
        assert list(client) == []


def test_it_ends_when_all_topics_are_refused() -> None:
    def part(socket: ServerConnection) -> None:
        stage.answer(socket, err=[[RING, "unknown_feed", "there is no feed 'trades'"]])
        socket.recv()

    stage = Stage(part)
    with stage.run(trades=5) as client:
        [update] = client
        assert update.error == ("unknown_feed", "there is no feed 'trades'")


@pytest.mark.parametrize("url", ["", "https://example.com", "wss://", "example.com"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as wrong:
        FeedClient(url, {RING: None}, "token")
    assert wrong.value.field == "url"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets.sync.client", None)
    with pytest.raises(ModuleNotFoundError, match="with its extra 'feeds'") as missing:
        FeedClient("wss://example.com", {RING: None}, "token")
    assert missing.value.name == "websockets"
