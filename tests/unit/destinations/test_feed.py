"""A feed as a destination of the outbox: bundles by key, and what stops one message alone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from fairbox import BodyTooLarge, Feed, InvalidInput, Message, RetryPolicy, Subscription, Topic
from fairbox.destinations import DestinationFactory
from fairbox.destinations.feed import PublishedFeed
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.model.feed_types import MAX_BODY
from fairbox.tables.calls import Calls
from fairbox.tables.feed_topics import FeedTopics
from fairbox.tables.stored_messages import Offloaded
from fairbox.testing import CostMeter, FaultyDynamoDB
from fairbox.testing.application import FEEDS, MemoryApplication
from fairbox.testing.faults import Fault

from tests.support.destination_examples import FixedClock, stored


class App(MemoryApplication):
    """The application with a ring, and inboxes of five messages."""

    def __init__(self) -> None:
        def wrap(client: Any) -> CostMeter:
            self.faulty = FaultyDynamoDB(client, random.Random(7))
            return CostMeter(self.faulty)

        super().__init__(wrap=wrap)
        self.topics = FeedTopics(Calls(self.client, self.clock, self.rng), FEEDS)
        self.feeds.create(Feed("ring", "ring"))
        self.feeds.create(Feed("inbox", "private", limit=5))

    def send(self, feed: str, *messages: Any) -> list[Outcome]:
        return PublishedFeed(feed, self.feeds.publish_many).send(messages, 3)

    def texts(self, topic: str) -> list[str]:
        bundles = self.topics.after(topic, 0, self.topics.state(topic).head)
        return [text for bundle in bundles for text in bundle.messages]


def test_messages_of_a_key_are_a_bundle_in_their_order_under_their_own_ids() -> None:
    app = App()
    messages = [stored(b"%d" % n, partition_key="ab"[n % 2]) for n in range(16)]
    messages[2] = stored(b"\x00", partition_key="a", content_type="image/png")
    app.send("ring", stored(b"0", partition_key="c"))  # the feed is known from here on
    app.client.reset()

    assert app.send("ring", *messages) == [TAKEN] * 16
    reading = app.client.reading()
    ids = [m.message.id for m in messages]
    assert app.texts("ring/b") == [f'"{ids[n]}",{n}' for n in range(1, 16, 2)]
    a = [f'"{ids[n]}",{n}' for n in range(0, 16, 2)]
    assert app.texts("ring/a") == [a[0], f'"{ids[2]}","AA==","b64"', *a[2:]]
    # a bundle of b and three of a: the first of a topic files no head; each reads the head
    assert (reading.wru, reading.rru) == (1 + 5, 4)


def test_what_the_relay_sends_at_once_of_a_key_is_a_bundle() -> None:
    app = App()
    app.outbox.create_topic(Topic("orders"))
    app.outbox.add_subscription(Subscription("orders", "screens", "feed:ring"))
    app.destinations.put("feed:ring", PublishedFeed("ring", app.feeds.publish_many))
    ids = [app.ids.next() for _ in range(20)]
    app.outbox.add_many(
        Message(topic="orders", body=b"x", partition_key="k", id=id_) for id_ in ids
    )
    app.run()
    assert app.texts("ring/k") == [f'"{id_}","eA==","b64"' for id_ in ids]
    assert app.topics.state("ring/k").head.first == 17


def test_what_cannot_be_published_stops_no_other_message() -> None:
    app = App()
    good, bad = stored(b"1", partition_key="k"), stored(b"{", partition_key="k")
    outcomes = app.send(
        "ring",
        bad,
        good,
        stored(b"2"),
        stored(b"x" * (MAX_BODY + 1), partition_key="k", content_type="text/plain"),
        stored(b"", partition_key="k", offloaded=Offloaded("b", "k"), size=9),
    )
    assert [(o.verdict, o.blames, o.final) for o in outcomes] == [
        ("refused", "message", True),
        ("taken", "destination", False),
        ("refused", "message", True),
        ("refused", "message", True),
        ("refused", "message", False),
    ]
    expected = "JSON in UTF-8, as content_type 'application/json' says"
    assert outcomes[0].error == f"body: expected {expected}"
    assert outcomes[2].error == "key: expected 1 to 256 bytes of text, not '*'"
    assert len(app.texts("ring/k")) == 1


def test_a_topic_that_fills_up_takes_what_it_has_room_for() -> None:
    app = App()
    body = random.Random(1).randbytes(2_000)  # eight fit a bundle
    more: Any = {"partition_key": "u", "content_type": "image/png"}
    outcomes = app.send("inbox", *[stored(body, **more) for _ in range(16)])
    full = "'inbox/u' is full: 8 unacknowledged, at most 5; publish again later"
    assert outcomes == [TAKEN] * 8 + [Outcome("refused", full, fault="message")] * 8


def test_a_table_that_is_throttled_ends_the_call() -> None:
    app = App()
    app.send("ring", stored(partition_key="a"))
    app.faulty.next("query", *[Fault.THROTTLED] * 8)
    outcomes = app.send("ring", *[stored(partition_key=k) for k in "abc"])
    assert [o.verdict for o in outcomes] == ["throttled"] * 3
    assert app.texts("ring/c") == []


def test_a_feed_that_is_missing_refuses_and_without_feeds_messages_wait() -> None:
    app = App()
    app.outbox.create_topic(Topic("orders"))
    with pytest.raises(InvalidInput, match="destination: expected 1 to 120 letters"):
        app.outbox.add_subscription(Subscription("orders", "s", "feed:ring/k"))

    [outcome] = app.send("none", stored(partition_key="k"))
    assert outcome == Outcome("refused", "there is no feed 'none'", fault="destination")

    factory = DestinationFactory(
        clients=lambda *_, **__: None, clock=FixedClock(), add_to_topic=lambda _: []
    )
    destination = factory.open(Subscription("orders", "s", "feed:ring"))
    [outcome] = destination.send([stored(partition_key="k")], 3)
    assert outcome == Outcome("unreachable", "the setting FAIRBOX_FEEDS_TABLE is missing")


@pytest.mark.guarantee("feed-private")
@pytest.mark.parametrize("ordering", ["none", "key"])
def test_a_full_inbox_delays_no_other_and_its_messages_wait_for_room(ordering: Any) -> None:
    app = App()
    retry = RetryPolicy(max_attempts=40, cap=60)
    app.outbox.create_topic(Topic("notes", shards=1, ordering=ordering, retry=retry))
    app.outbox.add_subscription(Subscription("notes", "screens", "feed:inbox"))

    def add(user: str, count: int) -> None:
        app.outbox.add_many(
            Message(topic="notes", body=b"x", partition_key=user, id=app.ids.next())
            for _ in range(count)
        )

    app.feeds.publish_many("inbox", "away", [b"1"] * 5)
    add("away", 5)
    app.run(120)
    for n in range(6):  # five failures in a row would open a circuit
        add(f"u{n}", 2)
        app.run(4)
        assert len(app.texts(f"inbox/u{n}")) == 2
    assert len(app.texts("inbox/away")) == 5

    app.topics.acknowledge("inbox/away", 5)
    app.run(120)
    assert len(app.texts("inbox/away")) == 10
    app.mark()
    assert app.outbox.outstanding_count("notes") == 0


def test_a_body_that_no_client_can_take_is_refused_when_it_is_added() -> None:
    app = App()
    app.outbox.create_topic(Topic("notes"))
    app.outbox.add_subscriptions(
        Subscription("notes", name, address)
        for name, address in (("a", "sqs:http://q/a"), ("screens", "feed:ring"))
    )
    message = Message(topic="notes", body=b"x" * MAX_BODY, partition_key="k", id=app.ids.next())
    app.outbox.add(message)
    with pytest.raises(BodyTooLarge) as caught:
        app.outbox.add(replace(message, body=b"x" * 400_000))
    assert (caught.value.subscription, caught.value.limit) == ("screens", MAX_BODY)
