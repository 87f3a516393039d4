"""Publishing: what it costs, what it refuses, and the text that clients get."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import (
    BodyTooLarge,
    Feed,
    FeedFull,
    Feeds,
    InvalidInput,
    MessagesNotWritten,
    NewerVersion,
    NotConfigured,
    Throttled,
    Unreadable,
)
from fairbox.feeds.feed_messages import bundles_of, text_of
from fairbox.settings import Settings
from fairbox.tables import feed_connections as connections
from fairbox.tables import feed_rows, feed_topics
from fairbox.tables.keys import key
from fairbox.testing import CostMeter, Fault, FaultyDynamoDB
from fairbox.testing.application import FEEDS, MemoryApplication

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.model.feed_types import Kind

TICK = (
    b'{"symbol":"BTC-EUR","side":"buy","price":"64012.35","size":"0.00412","maker":"0198f3a2",'
    b'"taker":"0198f3b1","time":"2026-11-27T12:00:00.%06dZ","venue":"kraken","sequence":%d}'
)
"""A message of 180 bytes."""


class Costs:
    """Feeds of all kinds in memory, with the units of what a test does."""

    def __init__(self) -> None:
        self.app = MemoryApplication(wrap=CostMeter)
        self.feeds = self.app.feeds
        for kind in ("snapshot", "ring", "private"):
            self.feeds.create(Feed(kind, kind))
            self.feeds.publish(kind, "k", b"0")
        self.app.client.reset()

    def units(self) -> tuple[float, float]:
        reading = self.app.client.reading()
        self.app.client.reset()
        return reading.wru, reading.rru


@pytest.mark.parametrize(
    ("kind", "units"), [("snapshot", (1, 0)), ("ring", (2, 1)), ("private", (2, 1))]
)
def test_a_message_costs_two_writes_and_a_read_and_a_snapshot_one_write(
    kind: Kind, units: tuple[float, float]
) -> None:
    costs = Costs()
    for n in range(3):
        costs.feeds.publish(kind, "k", TICK % (n, n))
        assert costs.units() == units


def test_messages_in_tens_cost_less_than_half_a_unit_each() -> None:
    costs = Costs()
    for _ in range(10):
        costs.feeds.publish_many("ring", "k", [TICK % (n * 7919, n * 31) for n in range(10)])
    wru, rru = costs.units()
    assert wru <= 40
    assert rru == 10
    costs.feeds.publish_many("ring", "k", [b"1"] * 160)
    assert costs.units()[1] == 1  # one look at the topic for ten bundles
    costs.feeds.publish_many("snapshot", "k", [b"1"] * 160)
    assert costs.units() == (1, 0)


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b'{"a": 1.00000000000000000001}', "application/json", '{"a": 1.00000000000000000001}'),
        ('[\n"\\u0000 \u2028 ü"]'.encode(), "application/geo+json; charset=utf-8", None),
        (b"[" * 100 + b'"[[","\\"["' + b"]" * 100, "application/json", None),
        (b"\x00\xff", "application/octet-stream", '"AP8=","b64"'),
        (b"", "text/plain", '"","b64"'),
    ],
)
def test_a_client_gets_json_as_it_was_published_and_anything_else_in_base64(
    body: bytes, content_type: str, text: str | None
) -> None:
    assert text_of("7", body, content_type) == f'"7",{body.decode() if text is None else text}'


def test_a_bundle_has_at_most_16_messages_and_24_kb_but_of_one() -> None:
    sizes = [10] * 17 + [12_000, 12_600, 80_000, 10, 24_000]
    found = list(bundles_of(["x" * size for size in sizes]))
    shape = [[len(text) for text in bundle] for bundle in found]
    assert shape == [[10] * 16, [10, 12_000], [12_600], [80_000], [10, 24_000]]
    assert list(bundles_of([])) == []


BAD: list[tuple[str, Callable[[Feeds], Any]]] = [
    ("feed", lambda f: f.publish("a/b", "k", b"1")),
    ("feed", lambda f: f.feed("")),
    ("feed", lambda f: f.publish([], "k", b"1")),  # type: ignore[arg-type]
    ("key", lambda f: f.publish("ring", "", b"1")),
    ("key", lambda f: f.publish("ring", "*", b"1")),
    ("key", lambda f: f.publish("ring", "\ud800", b"1")),
    ("key", lambda f: f.publish("ring", "x" * 257, b"1")),
    ("body", lambda f: f.publish("ring", "k", b"x")),
    ("body", lambda f: f.publish("ring", "k", b"\xff")),
    ("body", lambda f: f.publish("ring", "k", b'"\x1e"')),
    ("body", lambda f: f.publish("ring", "k", b"NaN")),
    ("body", lambda f: f.publish("ring", "k", b"")),
    ("body", lambda f: f.publish("ring", "k", b"[" * 90_000)),
    ("body", lambda f: f.publish("ring", "k", b"[" * 101 + b"]" * 101)),
    ("body", lambda f: f.publish("ring", "k", "1")),  # type: ignore[arg-type]
    ("body", lambda f: f.publish_many("private", "k", [b"1"] * 20 + [b"x"])),
    ("content_type", lambda f: f.publish("ring", "k", b"1", "json")),
    ("id", lambda f: f.publish("ring", "k", b"1", id="")),
    ("id", lambda f: f.publish("ring", "k", b"1", id="a\x1eb")),
    ("ids", lambda f: f.publish_many("ring", "k", [b"1"], ids=["a", "b"])),
    ("kind", lambda f: f.create(Feed("x", "queue"))),  # type: ignore[arg-type]
    ("size", lambda f: f.create(Feed("x", "ring", size=7))),
    ("size", lambda f: f.create(Feed("x", "private", size=8))),
    ("history", lambda f: f.create(Feed("x", "ring", size=8, history=9))),
    ("limit", lambda f: f.create(Feed("x", "private", limit=0))),
    ("window", lambda f: f.create(Feed("x", "private", window=15))),
    ("keep", lambda f: f.create(Feed("x", "snapshot", keep=60))),
    ("keep", lambda f: f.create(Feed("x", "ring", keep=60.5))),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("field", "call"), BAD)
def test_bad_input_is_refused_by_its_field_and_nothing_is_done(
    field: str, call: Callable[[Feeds], Any]
) -> None:
    costs = Costs()
    before = costs.app.engine.items(FEEDS)
    with pytest.raises(InvalidInput) as refused:
        call(costs.feeds)
    assert refused.value.field == field
    assert costs.app.engine.items(FEEDS) == before


def test_a_body_may_have_90_kb() -> None:
    costs = Costs()
    assert costs.feeds.publish("ring", "k", b"x" * 92_160, "text/plain") == 2
    with pytest.raises(BodyTooLarge) as refused:
        costs.feeds.publish("ring", "k", b"x" * 92_161, "text/plain")
    assert (refused.value.size, refused.value.limit) == (92_161, 92_160)


def test_the_log_expires_and_the_newest_bundle_stays() -> None:
    app = MemoryApplication()
    app.feeds.create(Feed("f", "ring", keep=3600))
    for _ in range(3):
        app.feeds.publish("f", "k", b"1")
        app.clock.advance(1800)
    app.clean()
    there = [feed_topics.of_item(i).first for i in app.engine.items(FEEDS) if "m" in i]
    assert sorted(there) == [2, 3]
    app.clock.advance(3600)
    app.clean()
    assert app.feeds.publish("f", "k", b"1") == 4


def test_private_with_back_pressure_refuses_until_acknowledged_or_expired() -> None:
    app = MemoryApplication()
    app.feeds.create(Feed("inbox", "private", limit=3, keep=3600))
    app.feeds.publish_many("inbox", "u7", [b"1", b"2"])
    app.clock.advance(60)
    app.feeds.publish("inbox", "u7", b"3")
    app.feeds.publish("inbox", "u8", b"1")  # of another user
    for _ in range(2):
        with pytest.raises(FeedFull):
            app.feeds.publish("inbox", "u7", b"4")

    app.feeds._topics.acknowledge("inbox/u7", 1)
    assert app.feeds.publish("inbox", "u7", b"4") == 4
    app.clock.advance(3539)
    with pytest.raises(FeedFull):
        app.feeds.publish("inbox", "u7", b"5")
    app.clock.advance(1)  # the time of 1 and 2 is over, and not yet that of 3
    assert app.feeds.publish_many("inbox", "u7", [b"5", b"6"]) == [5, 6]  # to limit + k - 1
    assert app.feeds.topic("inbox", "u7").unacknowledged == 4
    with pytest.raises(FeedFull):
        app.feeds.publish("inbox", "u7", b"7")


def test_what_a_throttled_call_published_is_told() -> None:
    faulty = FaultyDynamoDB(None, random.Random(1))

    def wrap(client: Any) -> FaultyDynamoDB:
        faulty._client = client
        return faulty

    app = MemoryApplication(wrap=wrap)
    app.feeds.create(Feed("f", "ring"))
    faulty.next("put_item", None, None, *[Fault.THROTTLED] * 8)
    ids = [f"{n}" for n in range(20)]
    with pytest.raises(MessagesNotWritten, match="throttled") as partly:
        app.feeds.publish_many("f", "k", [b"1"] * 20, ids=ids)
    assert partly.value.missing == tuple(ids[16:])
    faulty.next("put_item", *[Fault.THROTTLED] * 8)
    with pytest.raises(Throttled):
        app.feeds.publish("f", "k", b"1")
    assert app.feeds.publish_many("f", "k", [b"1"] * 4) == [17, 18, 19, 20]


FEED = Feed("f", "ring", size=9, history=2)
BUNDLE = feed_topics.Bundle(1, 2, ("a" * 600, "b"), 5)
HEAD = feed_topics.to_item("f/k", "!", BUNDLE)
CLIENT = connections.Connection("u7", frozenset({"f/*"}), frozenset({"f/k"}))
ROWS: list[tuple[Callable[[dict[str, Any]], Any], dict[str, Any], Any]] = [
    (lambda item: feed_rows.of_item("f", item), feed_rows.to_item(FEED), FEED),
    (feed_topics.of_item, HEAD, BUNDLE),
    (feed_topics.acknowledged_of, key("t#f/k", "!a") | {"n": {"N": "3"}}, 3),
    (connections.of_item, connections.to_item(key("c#0", "c"), CLIENT, 9), CLIENT),
]


@pytest.mark.parametrize(("read", "item", "value"), ROWS)
def test_a_row_is_read_as_it_was_written_and_no_other(
    read: Callable[[dict[str, Any]], Any], item: dict[str, Any], value: Any
) -> None:
    assert read(item) == value
    with pytest.raises(NewerVersion):
        read(item | {"cv": {"N": "2"}})
    for name in item.keys() - {"pk", "sk", "x"}:
        with pytest.raises(Unreadable, match="pk"):
            read(item | {name: {"L": []}})


@pytest.mark.parametrize("change", [{"m": {"B": HEAD["m"]["B"][:-3]}}, {"l": {"N": "3"}}])
def test_a_bundle_that_lacks_a_part_is_not_read(change: dict[str, Any]) -> None:
    with pytest.raises(Unreadable, match=r"it is cut off|its numbers"):
        feed_topics.of_item(HEAD | change)


def test_a_number_that_a_row_does_not_have_yet_has_its_default() -> None:
    row = feed_rows.to_item(Feed("f", "ring", size=9))
    del row["history"]
    assert feed_rows.of_item("f", row) == Feed("f", "ring", size=9)


def test_who_changes_a_feed_follows_it_at_once() -> None:
    app = MemoryApplication()
    app.feeds.create(Feed("f", "private", limit=1))
    app.feeds.publish("f", "k", b"1")
    with pytest.raises(FeedFull):
        app.feeds.publish("f", "k", b"2")
    app.feeds.create(Feed("f", "private", limit=2))
    assert app.feeds.publish("f", "k", b"2") == 2


def test_feeds_of_the_environment_name_what_is_missing() -> None:
    app = MemoryApplication()
    settings = Settings({"FAIRBOX_FEEDS_TABLE": FEEDS})
    made = Feeds.from_env(settings, client=lambda _: app.client)
    made.create(Feed("f"))
    assert app.feeds.feed("f") == Feed("f")
    with pytest.raises(NotConfigured, match="FAIRBOX_FEEDS_TABLE"):
        Feeds.from_env(Settings({}), client=lambda _: app.client)
