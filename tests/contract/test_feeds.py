"""Feeds on both engines: numbers without holes, limits, time, deletion, many publishers at once."""

from __future__ import annotations

import itertools
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import (
    Feed,
    FeedFull,
    Feeds,
    InvalidInput,
    MessagesNotWritten,
    Throttled,
    UnknownFeed,
)
from fairbox.tables.definitions import feeds_definition
from fairbox.tables.feed_topics import FeedTopics, log_sk, topic_pk
from fairbox.testing import ManualClock

if TYPE_CHECKING:
    from fairbox.model.feed_types import Kind
    from fairbox.tables.feed_topics import Bundle

_numbers = itertools.count()
DAY = 86_400


class World:
    """A table of its own, and feeds over it with a clock that the test sets."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.table = f"feeds-{next(_numbers)}"
        definition = feeds_definition(self.table)
        del definition["StreamSpecification"]  # it makes DynamoDB Local slow
        client.create_table(**definition)
        self.clock = ManualClock()
        self.feeds = Feeds(client, table=self.table, clock=self.clock)
        self.topics: FeedTopics = self.feeds._publishing._topics

    def create(self, kind: Kind, **numbers: int) -> None:
        self.feeds.create(Feed("f", kind, **numbers))

    def bundles(self, position: int = 0) -> list[Bundle]:
        return list(self.topics.after("f/k", position, self.topics.state("f/k").head))

    def texts(self, position: int = 0) -> dict[int, str]:
        return {
            bundle.first + place: text
            for bundle in self.bundles(position)
            for place, text in enumerate(bundle.messages)
        }

    def acknowledge(self, number: int) -> int:
        return self.topics.acknowledge("f/k", number)


@pytest.fixture
def world(client: Any) -> World:
    return World(client)


@pytest.mark.parametrize("kind", ["ring", "private"])
def test_a_topic_numbers_its_messages_and_gives_them_back(world: World, kind: Kind) -> None:
    world.create(kind)
    bodies = [json.dumps({"n": n, "text": "x" * (n * 37 % 900)}).encode() for n in range(60)]
    bodies[20] = b'"' + b"y" * 90_000 + b'"'
    ids = [f'id "{n}"' for n in range(60)]
    assert [world.feeds.publish("f", "k", bodies[n], id=ids[n]) for n in range(3)] == [1, 2, 3]
    rest = world.feeds.publish_many("f", "k", bodies[3:], ids=ids[3:])
    assert rest == list(range(4, 61))

    texts = {n: f"{json.dumps(ids[n - 1])},{bodies[n - 1].decode()}" for n in range(1, 61)}
    assert world.texts() == texts
    assert all(len(bundle.messages) <= 16 for bundle in world.bundles())
    assert [bundle.messages for bundle in world.bundles() if bundle.last == 21] == [(texts[21],)]
    for position in range(61):
        first = next((b.first for b in world.bundles() if b.last > position), 61)
        assert world.texts(position) == {n: t for n, t in texts.items() if n >= first}


def test_a_snapshot_keeps_the_last_message_and_counts_the_others(world: World) -> None:
    world.create("snapshot")
    assert world.feeds.publish("f", "k", b"1", id="a") == 1
    assert world.feeds.publish("f", "k", b"1", id="a") == 1  # as after an answer that was lost
    assert world.feeds.publish_many("f", "k", [b"2", b"3", b"4"], ids=["b", "c", "d"]) == [2, 3, 4]
    assert world.texts() == {4: '"d",4'}
    assert world.feeds.publish_many("f", "k", []) == []


def test_a_full_private_topic_refuses_until_its_client_acknowledges(world: World) -> None:
    world.create("private", limit=20)
    world.feeds.publish("f", "k", b"1")
    world.acknowledge(1)
    ids = [f"{n}" for n in range(40)]
    with pytest.raises(MessagesNotWritten, match="at most 20") as partly:
        world.feeds.publish_many("f", "k", [b"1"] * 40, ids=ids)
    assert partly.value.missing == tuple(ids[32:])  # a bundle is taken whole, up to limit + 15
    with pytest.raises(FeedFull) as full:
        world.feeds.publish("f", "k", b"1")
    assert (full.value.topic, full.value.count, full.value.limit) == ("f/k", 32, 20)

    assert world.acknowledge(13) == 13  # in the middle of a bundle
    with pytest.raises(FeedFull):
        world.feeds.publish("f", "k", b"1")
    assert world.acknowledge(14) == 14
    assert world.acknowledge(5) == 14
    assert world.feeds.publish("f", "k", b"1") == 34


@pytest.mark.parametrize("deleted", [False, True], ids=["there", "deleted"])
def test_messages_of_a_private_topic_make_room_when_their_time_is_over(
    world: World, *, deleted: bool
) -> None:
    world.create("private", limit=3, keep=DAY)
    world.feeds.publish("f", "k", b"1")
    world.acknowledge(1)
    for _ in range(3):
        world.feeds.publish("f", "k", b"1")
        world.clock.advance(100)
    world.clock.advance(DAY - 301)
    with pytest.raises(FeedFull):
        world.feeds.publish("f", "k", b"1")
    assert world.acknowledge(0) == 1  # nothing was given up

    world.clock.advance(1)
    if deleted:  # by DynamoDB, which takes its time
        key = {"pk": {"S": topic_pk("f/k")}, "sk": {"S": log_sk(2)}}
        assert "x" in world.client.get_item(TableName=world.table, Key=key)["Item"]
        world.client.delete_item(TableName=world.table, Key=key)
    assert world.feeds.publish("f", "k", b"1") == 5
    assert world.acknowledge(0) == 2
    world.clock.advance(DAY)
    assert world.feeds.publish("f", "k", b"1") == 6
    assert world.acknowledge(0) == 3


def test_a_feed_keeps_its_kind_and_changes_its_numbers(world: World) -> None:
    with pytest.raises(UnknownFeed, match="'f'"):
        world.feeds.publish("f", "k", b"1")
    world.create("private", limit=1)
    world.feeds.publish("f", "k", b"1")
    with pytest.raises(InvalidInput, match="kind: expected 'private', as feed 'f' is"):
        world.create("ring")

    other = Feeds(world.client, table=world.table, clock=world.clock)
    other.create(Feed("f", "private", limit=2))
    assert world.feeds.feed("f") == Feed("f", "private", limit=2)
    with pytest.raises(FeedFull):
        world.feeds.publish("f", "k", b"1")
    world.clock.advance(30)
    assert world.feeds.publish("f", "k", b"1") == 2
    world.create("private", limit=3)
    assert world.feeds.publish("f", "k", b"1") == 3


@pytest.mark.parametrize("kind", ["snapshot", "ring"])
def test_publishers_at_the_same_time_get_a_number_each(world: World, kind: Kind) -> None:
    world.create(kind)
    got: dict[str, int] = {}

    def publish(name: str) -> None:
        feeds = Feeds(world.client, table=world.table, clock=world.clock)
        for n in range(5):
            message = f"{name}{n}"
            while message not in got:
                try:
                    got[message] = feeds.publish("f", "k", b"1", id=message)
                except Throttled:
                    continue  # others were faster eight times: each time, they went on

    threads = [threading.Thread(target=publish, args=(name,), daemon=True) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(got.values()) == list(range(1, 21))
    for name in "abcd":
        numbers = [got[f"{name}{n}"] for n in range(5)]
        assert numbers == sorted(numbers)
    last = {20} if kind == "snapshot" else set(range(1, 21))
    assert world.texts() == {n: f'"{name}",1' for name, n in got.items() if n in last}
