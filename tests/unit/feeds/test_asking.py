"""Asking: what a client is answered, what it costs, and what is refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from fairbox import Feed
from fairbox.feeds.asking import Asking
from fairbox.feeds.feed_requests import Requests
from fairbox.tables.calls import Calls
from fairbox.tables.feed_connections import LEASE_SECONDS, Connection, FeedConnections
from fairbox.testing import CostMeter
from fairbox.testing.application import FEEDS, MemoryApplication

HOUR = 3600
GRANTS = ("trades/*", "prices/*", "inbox/*", "inbox/u7", "none/*")


class Screen:
    """A client's connection to feeds in memory."""

    def __init__(self) -> None:
        self.app = MemoryApplication(wrap=CostMeter)
        self.app.feeds.create(Feed("prices"))
        self.app.feeds.create(Feed("trades", "ring", size=8, history=2))
        self.app.feeds.create(Feed("inbox", "private", window=16))
        calls = Calls(self.app.client, self.app.clock, self.app.rng)
        self.connections = FeedConnections(calls, FEEDS, 4)
        self.requests = Requests(Asking(calls, FEEDS, self.connections), self.connections)
        self.connections.open("c1", Connection("u7", frozenset(GRANTS)))
        self.asked = 0

    def publish(self, feed: str, key: str, *bodies: Any) -> None:
        self.app.feeds.publish_many(feed, key, [json.dumps(body).encode() for body in bodies])

    def say(self, **request: Any) -> Any:
        self.asked += 1
        text = self.requests.answer("c1", json.dumps({"id": self.asked} | request))
        return json.loads(text.encode())

    def sync(self, positions: dict[str, Any]) -> Any:
        answer = self.say(op="sync", topics=positions)
        assert answer["a"] == self.asked
        return answer

    def entry(self, topic: str, position: Any) -> tuple[int, int, list[int], str]:
        """Return what is answered of a topic: after, upto, numbers, note."""
        found = {name: rest for name, *rest in self.sync({topic: position})["t"]}[topic]
        after, upto, messages, *note = found
        return after, upto, [number for number, *_ in messages], "".join(note)

    def units(self) -> tuple[float, float]:
        reading = self.app.client.reading()
        self.app.client.reset()
        return reading.rru, reading.wru

    def rows(self, sk: str) -> list[Any]:
        return [item for item in self.app.engine.items(FEEDS) if item["sk"]["S"].startswith(sk)]


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_snapshot_private_and_ring_with_told_loss_begin_where_they_say_and_go_on(
    screen: Screen,
) -> None:
    for n in range(1, 13):
        screen.publish("trades", "btc", {"n": n})
        screen.publish("prices", "eur", {"n": n})
    screen.publish("inbox", "u7", "a", "b", "c")
    answer = screen.sync({"trades/btc": None, "prices/eur": None, "inbox/u7": None})
    kinds = {"trades/btc": "ring", "prices/eur": "snapshot", "inbox/u7": "private"}
    assert answer["kinds"] == kinds
    assert answer["t"][1][:3] == ["prices/eur", 11, 12]
    assert answer["t"][1][3][0][::2] == [12, {"n": 12}]

    assert screen.entry("trades/btc", None) == (10, 12, [11, 12], "")
    assert screen.entry("trades/btc", 10) == (10, 12, [11, 12], "")
    # 2, 3 and 4 have left the ring: they are missing in the entry, and so counted
    assert screen.entry("trades/btc", 1) == (1, 12, list(range(5, 13)), "")
    assert screen.entry("prices/eur", 3) == (3, 12, [12], "")
    assert screen.entry("trades/btc", 12) == (12, 12, [], "")
    assert screen.entry("trades/new", None) == (0, 0, [], "")
    assert screen.entry("inbox/u7", 1) == (1, 3, [2, 3], "")


def test_a_position_that_the_topic_has_not_reached_begins_anew_and_acknowledges_nothing(
    screen: Screen,
) -> None:
    screen.publish("trades", "btc", 1, 2, 3)
    screen.publish("inbox", "u7", 1, 2, 3)
    assert screen.entry("trades/btc", 9) == (1, 3, [2, 3], "reset")
    assert screen.entry("inbox/u7", 9) == (0, 3, [1, 2, 3], "reset")
    assert screen.rows("!a") == []


def test_what_expired_before_a_newcomer_came_is_none_of_its_losses(screen: Screen) -> None:
    for n in (1, 2, 3):
        screen.publish("trades", "btc", n)
    first, second = screen.rows("0")
    for item, position in ((second, 1), (first, 0)):
        screen.app.engine.delete_item(TableName=FEEDS, Key={k: item[k] for k in ("pk", "sk")})
        assert screen.entry("trades/btc", position) == (position, 3, [3], "")
    assert screen.entry("trades/btc", None) == (2, 3, [3], "")


def test_a_private_topic_gives_its_window_and_an_acknowledgement_moves_it(screen: Screen) -> None:
    for n in range(20):
        screen.publish("inbox", "u7", n)
    assert screen.entry("inbox/u7", None) == (0, 16, list(range(1, 17)), "")
    assert screen.entry("inbox/u7", 16) == (16, 20, [17, 18, 19, 20], "")
    # a second tab, which is behind, moves nothing back
    assert screen.entry("inbox/u7", 4)[:2] == (4, 20)
    assert screen.entry("inbox/u7", None) == (16, 20, [17, 18, 19, 20], "")


def test_what_expired_in_a_private_topic_does_not_fill_its_window(screen: Screen) -> None:
    for _ in range(10):
        screen.publish("inbox", "u7", *range(16))
    for item in screen.rows("0")[:8]:
        screen.app.engine.delete_item(TableName=FEEDS, Key={k: item[k] for k in ("pk", "sk")})
    assert screen.entry("inbox/u7", None) == (0, 144, list(range(129, 145)), "")


def test_what_comes_while_a_position_is_acknowledged_is_answered(screen: Screen) -> None:
    screen.publish("inbox", "u7", *range(16))
    update = screen.app.client.update_item

    def publish_first(**request: Any) -> Any:
        screen.app.client.update_item = update
        if ":n" in request["ExpressionAttributeValues"]:
            screen.publish("inbox", "u7", "beyond the window, so that no visit sends it")
        return update(**request)

    screen.sync({"inbox/u7": None})
    screen.app.client.update_item = publish_first
    assert screen.entry("inbox/u7", 16) == (16, 17, [17], "")


def test_topics_take_turns_and_what_does_not_fit_comes_with_the_next_request(
    screen: Screen,
) -> None:
    positions: dict[str, Any] = {"trades/a": 0, "trades/b": 0, "inbox/u7": None}
    for topic in positions:
        for n in range(3):
            screen.publish(*topic.split("/"), ["x" * 12_000, n])
    got: dict[str, list[int]] = {topic: [] for topic in positions}
    for _ in range(6):
        text = screen.sync(positions)
        assert len(json.dumps(text)) < 36_000
        for topic, _, upto, messages, *_ in text["t"]:
            got[topic] += [number for number, *_ in messages]
            positions[topic] = upto
    assert list(got.values()) == [[1, 2, 3]] * 3
    answer = screen.sync(dict.fromkeys(positions, 99))
    assert [entry[4] for entry in answer["t"]] == ["reset"] * 3


def test_a_large_message_is_answered_alone_and_is_not_kept_waiting(screen: Screen) -> None:
    screen.publish("inbox", "u7", "x" * 90_000)
    for asked in range(2):
        screen.publish("prices", "eur", asked)
        answer = screen.sync({"prices/eur": asked, "inbox/u7": 0})
        if answer["t"][0][0] == "inbox/u7":
            break
    assert [len(answer["t"]), answer["t"][0][4]] == [1, "more"]


def test_a_new_topic_has_its_lease_before_the_row_and_an_old_lease_is_made_longer(
    screen: Screen,
) -> None:
    screen.publish("trades", "btc", 1)
    screen.app.client.reset()
    screen.sync({"trades/btc": None, "inbox/u7": None})
    # row, 2 leases at half a unit, feeds, head, head and acknowledged; 2 leases and the row
    assert screen.units() == (1 + 1 + 2 + 3, 3)
    shard = screen.connections.shard("c1")
    assert {item["sk"]["S"] for item in screen.rows("s#")} == {f"s#{shard}", f"s#{shard}#c1"}
    connection = screen.connections.find("c1")
    assert connection is not None
    assert connection.topics == {"trades/btc", "inbox/u7"}

    screen.units()
    screen.sync({"trades/btc": 1, "inbox/u7": 0})
    assert screen.units() == (1 + 3, 0)

    for passed, lasting in ((HOUR - 60, True), (120, False)):
        screen.app.clock.advance(passed)
        screen.connections.open("c1", Connection("u7", frozenset(GRANTS)))
        screen.sync({"trades/btc": None})
        [until] = [r["x"]["N"] for r in screen.rows("s#") if r["sk"]["S"] == f"s#{shard}"]
        ends = int(until) - int(screen.app.clock.now())
        assert (ends == LEASE_SECONDS) is not lasting


def test_of_the_log_only_what_is_answered_is_read(screen: Screen) -> None:
    for n in range(40):
        screen.publish("trades", "btc", n)
        screen.publish(
            "inbox", "u7", [n, base64.b64encode(screen.app.rng.randbytes(4500)).decode()]
        )
    screen.sync({"trades/btc": 40, "inbox/u7": 0})
    screen.units()
    assert screen.entry("trades/btc", 40)[2] == []
    assert screen.units() == (2, 0)
    assert screen.entry("trades/btc", 39)[2] == [40]
    assert screen.units() == (2, 0)
    assert screen.entry("trades/btc", 36)[2] == [37, 38, 39, 40]
    assert screen.units() == (3, 0)
    # five messages of 6 KB fit an answer, and one more is read to know it; then head and row
    assert screen.entry("inbox/u7", 0) == (0, 5, [1, 2, 3, 4, 5], "more")
    assert screen.units()[0] <= 2 * 6 + 2 + 1 + 1


def test_who_leaves_or_is_gone_follows_nothing(screen: Screen) -> None:
    screen.sync({"trades/btc": None, "prices/eur": None})
    assert screen.say(op="leave", topics=["prices/eur", "no/such"]) == {"a": 2}
    assert screen.connections.find("c1").topics == {"trades/btc"}  # type: ignore[union-attr]
    assert screen.say(op="leave", topics=[]) == {"a": 3}
    get = screen.app.client.batch_get_item

    def close_first(**request: Any) -> Any:
        screen.connections.close("c1")
        return get(**request)

    screen.app.client.batch_get_item = close_first
    assert screen.say(op="sync", topics={"trades/eth": None})["err"][0][1] == "reconnect"
    assert screen.say(op="leave", topics=["trades/btc"]) == {"a": 5}
    assert screen.say(op="sync", topics={})["err"][0][:2] == [None, "reconnect"]
    assert screen.rows("c1") == []


def test_what_is_wrong_with_a_topic_leaves_the_others_answered(screen: Screen) -> None:
    screen.publish("trades", "btc", 1)
    wrong: dict[str, Any] = {
        "trades": None,
        "trades/*": None,
        "\ud800/x": None,
        "trades/x": -1,
        "trades/y": True,
        "trades/z": "1",
        "none/x": None,
        "other/x": None,
        "inbox/u8": None,
    }
    answer = screen.sync(wrong | {"trades/btc": 0})
    assert [entry[0] for entry in answer["t"]] == ["trades/btc"]
    codes = {topic: code for topic, code, _ in answer["err"]}
    bad = dict.fromkeys(list(wrong)[:6], "bad_request")
    denied = {"other/x": "not_allowed", "inbox/u8": "not_allowed"}
    assert codes == bad | {"none/x": "unknown_feed"} | denied

    many = {f"trades/{n}": None for n in range(100)}
    answer = screen.sync(many)
    assert [code for _, code, _ in answer["err"]] == ["too_many_topics"]
    assert len(screen.connections.find("c1").topics) == 100  # type: ignore[union-attr]
    assert "err" not in screen.sync({"trades/0": None})


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "request"),
        ("nonsense", "request"),
        ("[" * 30_000, "request"),
        ("[]", "request"),
        ('{"id":1}', "op"),
        ('{"op":["sync"],"id":1}', "op"),
        ('{"op":"sync","topics":{}}', "id"),
        ('{"op":"sync","id":-1,"topics":{}}', "id"),
        ('{"op":"sync","id":1}', "topics"),
        ('{"op":"sync","id":1,"topics":[]}', "topics"),
        ('{"op":"leave","id":1,"topics":{"a/b":1}}', "topics"),
        ('{"op":"leave","id":1,"topics":[""]}', "topics"),
        (json.dumps({"op": "leave", "id": 1, "topics": ["a/b"] * 101}), "topics"),
    ],
)
def test_a_request_that_is_none_is_told_what_was_expected(
    screen: Screen, text: str, field: str
) -> None:
    before = screen.app.engine.items(FEEDS)
    answer = json.loads(screen.requests.answer("c1", text))
    [[topic, code, said]] = answer["err"]
    assert [topic, code] == [None, "bad_request"]
    assert said.startswith(f"{field}: expected")
    assert screen.app.engine.items(FEEDS) == before
