"""Long poll: what is answered at once, what is held and for how long, and who is let in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from fairbox import Feed, FeedFull
from fairbox.feeds.asking import Asking
from fairbox.feeds.feed_requests import Polling
from fairbox.feeds.tokens import make_token
from fairbox.tables.calls import Calls
from fairbox.tables.feed_connections import FeedConnections, FeedPolls
from fairbox.testing import CostMeter
from fairbox.testing.application import FEEDS, MemoryApplication

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.feeds.feed_requests import Reply

BTC, INBOX = "trades/btc", "inbox/u7"


class Key:
    """The one key of tokens."""

    def current(self) -> tuple[str, str]:
        return "k", "k" * 64

    def find(self, id_: str) -> str | None:
        return "k" * 64 if id_ == "k" else None


class Pauses:
    """A clock on which something happens in a pause, by its number."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.count = 0
        self.events: dict[int, Callable[[], object]] = {}

    def now(self) -> float:
        return float(self.clock.now())

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.count += 1
        self.events.get(self.count, lambda: None)()


class Poller:
    """A client of feeds in memory, where two polls may be held."""

    def __init__(self) -> None:
        self.app = MemoryApplication(wrap=CostMeter)
        self.app.feeds.create(Feed("trades", "ring", history=2))
        self.app.feeds.create(Feed("inbox", "private", window=16, limit=20))
        calls = Calls(self.app.client, self.app.clock, self.app.rng)
        asking = Asking(calls, FEEDS, FeedConnections(calls, FEEDS, 4))
        self.polls = FeedPolls(calls, FEEDS)
        self.pauses = Pauses(self.app.clock)
        self.polling = Polling(Key(), asking, self.polls, self.pauses, 2)
        self.token = make_token(Key(), "u7", ["trades/*", INBOX], 300, self.app.clock.now())
        self.publish()

    def publish(self, feed: str = "trades", key: str = "btc", count: int = 1) -> None:
        self.app.feeds.publish_many(feed, key, [b"1"] * count)

    def poll(self, topics: dict[str, Any], wait: Any = 0, **more: Any) -> Reply:
        request = {"op": "sync", "id": 7, "topics": topics, "wait": wait} | more
        return self.polling.poll("p1", f"Bearer {self.token}", json.dumps(request))

    def entries(self, topics: dict[str, Any], wait: float = 0) -> list[Any]:
        reply = self.poll(topics, wait)
        assert reply.status == 200
        answer = json.loads(reply.body)
        assert answer["a"] == 7
        return [
            [topic, after, upto, [number for number, *_ in messages], *note]
            for topic, after, upto, messages, *note in answer["t"]
        ]


@pytest.fixture
def poller() -> Poller:
    return Poller()


def test_news_and_a_beginner_are_answered_at_once_and_nothing_is_followed(poller: Poller) -> None:
    before = poller.app.engine.items(FEEDS)
    assert poller.entries({BTC: None}, 20) == [[BTC, 0, 1, [1]]]
    assert poller.entries({"trades/new": None}, 20) == [["trades/new", 0, 0, []]]
    assert poller.entries({BTC: 0}, 20) == [[BTC, 0, 1, [1]]]
    assert poller.entries({"trades/new": 9}, 20) == [["trades/new", 0, 0, [], "reset"]]
    refused = json.loads(poller.poll({BTC: 1, "none/k": 1}, 20).body)["err"]
    assert [topic for topic, *_ in refused] == ["none/k"]
    assert poller.app.engine.items(FEEDS) == before

    poller.app.feeds.publish("trades", "btc", b'"%s"' % (b"x" * 40_000))  # answered alone
    assert poller.entries({BTC: 1, "trades/eth": 0}, 20) == [[BTC, 1, 2, [2], "more"]]
    assert poller.pauses.count == 0


def test_long_poll_without_news_is_answered_at_once_or_held_until_there_is_some(
    poller: Poller,
) -> None:
    poller.app.client.reset()
    assert poller.poll({BTC: 1}).status == 204
    assert (poller.pauses.count, poller.app.client.reading().wru) == (0, 0)

    poller.pauses.events[3] = poller.publish
    poller.app.client.reset()
    assert poller.entries({BTC: 1, "trades/eth": 0}, 20)[0] == [BTC, 1, 2, [2]]
    assert poller.pauses.count == 3
    reading = poller.app.client.reading()
    # two heads at once and in each of three seconds, and the log; the publish takes half the writes
    assert (reading.rru, reading.wru) == (9, 4)


def test_a_held_poll_ends_when_its_wait_is_over_and_then_another_one_may(poller: Poller) -> None:
    for wait, pauses in ((20, 20), (0.5, 21), (2, 23)):
        began = poller.app.clock.now()
        reply = poller.poll({BTC: 1}, wait)
        assert poller.app.clock.now() == began + wait
        assert (reply.status, reply.headers, poller.pauses.count) == (204, {}, pauses)


def test_one_more_than_may_be_held_is_answered_at_once(poller: Poller) -> None:
    now = poller.app.clock.now()
    for other in ("a", "b"):
        assert poller.polls.hold(f"{now + 30:.0f} {other}", 2)
    reply = poller.poll({BTC: 1}, 5)
    assert (reply.status, reply.headers, poller.pauses.count) == (204, {"Retry-After": "20"}, 0)
    assert poller.poll({BTC: 0}, 5).status == 200

    # those that were killed count until their time has passed
    poller.app.clock.advance(31)
    assert (poller.poll({BTC: 1}, 5).headers, poller.pauses.count) == ({}, 5)
    assert poller.polls.hold("9 c", 1)


def test_none_is_held_where_none_may_be(poller: Poller) -> None:
    assert not poller.polls.hold("9 a", 0)


def test_a_poll_that_fails_is_held_no_more(poller: Poller) -> None:
    poller.pauses.events[1] = lambda: 1 / 0
    for _ in range(3):
        poller.pauses.count = 0
        with pytest.raises(ZeroDivisionError):
            poller.poll({BTC: 1}, 20)


def test_a_poll_whose_place_cannot_be_given_back_is_answered(
    poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def throttled(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, "UpdateItem")

    engine = poller.app.engine
    poller.pauses.events[2] = lambda: monkeypatch.setattr(engine, "update_item", throttled)
    assert poller.poll({BTC: 1}, 2).status == 204


def test_a_poll_acknowledges_a_private_topic(poller: Poller) -> None:
    poller.publish("inbox", "u7", 20)
    assert poller.entries({INBOX: 0}) == [[INBOX, 0, 16, [*range(1, 17)]]]
    with pytest.raises(FeedFull):
        poller.publish("inbox", "u7")
    assert poller.entries({INBOX: 16}) == [[INBOX, 16, 20, [17, 18, 19, 20]]]
    poller.publish("inbox", "u7", 16)  # room for those that are acknowledged


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer x.y.z", "Basic {}", "{}"])
def test_without_a_token_it_is_not_allowed(poller: Poller, header: str) -> None:
    text = json.dumps({"op": "sync", "id": 7, "topics": {}})
    reply = poller.polling.poll("p1", header.format(poller.token), text)
    assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
    told = "Authorization: expected 'Bearer' and a token"
    assert json.loads(reply.body)["err"] == [[None, "not_allowed", told]]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"wait": 21}, "wait: expected 0 to 20"),
        ({"wait": -1}, "wait: expected 0 to 20"),
        ({"wait": True}, "wait: expected 0 to 20"),
        ({"wait": float("nan")}, "wait: expected 0 to 20"),
        ({"op": "leave", "topics": []}, "op: expected 'sync'"),
        ({"topics": []}, "topics: expected an object"),
    ],
)
def test_a_bad_request_names_its_field(poller: Poller, changed: dict[str, Any], named: str) -> None:
    reply = poller.poll(**{"topics": {}, **changed})
    answer = json.loads(reply.body)
    assert (reply.status, answer["a"]) == (400, 7)
    [[topic, code, text]] = answer["err"]
    assert (topic, code, text[: len(named)]) == (None, "bad_request", named)
