"""Ringing and pushing: who gets a frame, what it costs, and what becomes of who takes none."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from fairbox import Feed, Unavailable
from fairbox.aws.feed_sockets import FeedSockets
from fairbox.dispatch.parallel import one_by_one
from fairbox.feeds.asking import Asking
from fairbox.feeds.feed_requests import Requests
from fairbox.feeds.frames import RETRY_SECONDS, TICK_SECONDS, Posting
from fairbox.feeds.pushing import LATE_SECONDS, OUTAGE, OUTAGE_TRIES, Pushed, Pushing
from fairbox.feeds.ringing import DOORBELL_BYTES, Doorbell, Ringing, decode
from fairbox.model.feed_types import MAX_BODY
from fairbox.tables.calls import Calls
from fairbox.tables.feed_connections import LEASE_SECONDS, Connection, FeedConnections, FeedLeases
from fairbox.tables.feed_rows import FeedRows
from fairbox.tables.feed_topics import FeedTopics
from fairbox.tables.keys import key
from fairbox.testing import CostMeter
from fairbox.testing.application import FEEDS, MemoryApplication
from fairbox.testing.memory_sqs import MemorySqs, SqsTrigger

from tests.support.feed_sockets import TIMEOUT, FakeSockets

GRANTS = frozenset({"bids/*", "prices/*", "inbox/u7", "inbox/u8"})


class Audience:
    """Clients of one shard, and the two functions that push to them, in memory."""

    def __init__(self) -> None:
        self.app = MemoryApplication(wrap=CostMeter)
        for feed in (Feed("prices"), Feed("bids", "ring"), Feed("inbox", "private", window=16)):
            self.app.feeds.create(feed)
        calls = Calls(self.app.client, self.app.clock, self.app.rng)
        self.connections = FeedConnections(calls, FEEDS, 1)
        self.requests = Requests(Asking(calls, FEEDS, self.connections), self.connections)
        self.sqs = MemorySqs(self.app.clock, self.app.rng)
        self.queue = self.sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})[
            "QueueUrl"
        ]
        self.trigger = SqsTrigger(self.sqs, self.queue)
        self.ringing = Ringing(FeedLeases(calls, FEEDS), self.sqs, self.queue, one_by_one)
        self.sockets = FakeSockets()
        self.pushing = Pushing(
            FeedRows(calls, FEEDS),
            FeedTopics(calls, FEEDS),
            self.connections,
            posting=Posting(
                FeedSockets(self.sockets), self.app.clock, self.app.rng, inf, one_by_one
            ),
            ringing=self.ringing,
            run=one_by_one,
        )
        self.sequence: str | None = None

    def follow(self, id_: str, *topics: str) -> None:
        self.connections.open(id_, Connection("u7", GRANTS))
        self.sync(id_, dict.fromkeys(topics))

    def sync(self, id_: str, positions: dict[str, Any]) -> Any:
        request = {"op": "sync", "id": 1, "topics": positions}
        answer = json.loads(self.requests.answer(id_, json.dumps(request)))
        assert "err" not in answer
        return answer

    def publish(self, topic: str, *bodies: Any) -> None:
        feed, key = topic.split("/")
        self.app.feeds.publish_many(feed, key, [json.dumps(body).encode() for body in bodies])

    def news(self) -> list[Any]:
        """Return the stream's records of heads since the last call."""
        records = self.app.engine.stream(FEEDS).take(self.sequence)
        if records:
            self.sequence = records[-1]["dynamodb"]["SequenceNumber"]
        heads = (r["dynamodb"] for r in records if r["dynamodb"]["Keys"]["sk"]["S"] == "!")
        return [{"dynamodb": head} for head in heads if "NewImage" in head]

    def ring(self) -> int:
        return self.ringing.ring(self.news())

    def doorbells(self) -> list[str]:
        records = self.trigger.receive()
        self.trigger.settle(records, {"batchItemFailures": []})
        return [record["body"] for record in records]

    def visit(
        self, doorbells: list[str] | None = None, *, tries: int = 1, seconds: float = 20
    ) -> Pushed:
        """Ring and push, or push some doorbells."""
        if doorbells is None:
            self.ring()
            doorbells = self.doorbells()
        now = self.app.clock.now()
        rung = [Doorbell(text, now, tries) for text in doorbells]
        return self.pushing.push(0, rung, now + seconds)

    def numbers(self, id_: str) -> list[Any]:
        """Return topic, after and numbers of all entries that a client has got."""
        entries = [entry for frame in self.sockets.frames[id_] for entry in frame["t"]]
        return [(topic, after, [n for n, *_ in its]) for topic, after, _, its in entries]

    def units(self) -> tuple[float, float]:
        reading = self.app.client.reading()
        self.app.client.reset()
        return reading.rru, reading.wru


@pytest.fixture
def audience() -> Audience:
    return Audience()


def test_a_frame_brings_a_client_the_news_of_all_its_topics(audience: Audience) -> None:
    audience.follow("c1", "bids/btc", "prices/eur", "inbox/u7")
    audience.follow("c2", "bids/btc")
    audience.follow("c3", "bids/eth")
    audience.publish("bids/btc", {"n": 1}, "ü\uffff")
    audience.publish("prices/eur", 1.5, 1.6)
    audience.publish("inbox/u7", "hello")
    assert audience.visit() == Pushed(clients=2, frames=2)
    inbox, btc, eur = audience.sockets.frames["c1"][0]["t"]
    assert [inbox[:3], inbox[3][0][::2]] == [["inbox/u7", 0, 1], [1, "hello"]]
    assert [eur[:3], eur[3][0][::2]] == [["prices/eur", 1, 2], [2, 1.6]]
    assert [btc[:3], [m[::2] for m in btc[3]]] == [
        ["bids/btc", 0, 2],
        [[1, {"n": 1}], [2, "ü\uffff"]],
    ]
    assert audience.sockets.frames["c2"] == [{"t": [btc]}]
    assert audience.visit() == Pushed()


def test_what_a_frame_and_a_message_cost_beside_a_plain_broadcast(audience: Audience) -> None:
    for n in range(250):
        audience.follow(f"L0SM9cOFvHcCI{n:03}=", *(f"bids/symbol-{k}-euro" for k in range(5)))
    audience.pushing._feeds.known("bids")  # a process reads it each 30 s
    for n in range(10):
        audience.publish(f"bids/symbol-{n % 5}-euro", {"price": n})
    audience.units()
    assert audience.visit() == Pushed(clients=250, frames=250)
    rru, wru = audience.units()
    assert (rru, wru) == (5 + 10, 0)  # the topics' leases, and the rows: 0.04 a frame

    # a plain broadcast reads all connections for each of ten messages, and posts 2,500 frames
    scan = {"TableName": FEEDS, "FilterExpression": "begins_with(pk, :c)"}
    for _ in range(10):
        audience.app.client.scan(**scan, ExpressionAttributeValues={":c": {"S": "c#"}})
    assert audience.units() == (50, 0)


def test_a_private_message_goes_to_its_user_alone_and_not_beyond_the_window(
    audience: Audience,
) -> None:
    for n in range(150):
        audience.follow(f"other-connection-{n}", "bids/btc")
    inboxes = {"c1": "inbox/u7", "c2": "inbox/u8"}
    for id_, topic in inboxes.items():
        audience.follow(id_, topic)
        audience.publish(topic, *range(10))
    audience.units()
    assert audience.visit() == Pushed(clients=2, frames=2)
    assert audience.units() == (2 + 2 + 2 + 1, 0)  # leases, rows, acknowledged, feed

    for topic in inboxes.values():
        audience.publish(topic, *range(10))
    assert audience.visit() == Pushed()
    for id_, topic in inboxes.items():
        assert audience.sync(id_, {topic: 10})["t"][0][:3] == [topic, 10, 20]
        audience.publish(topic, *range(6))
    audience.visit()
    for id_, topic in inboxes.items():
        assert [entry[:2] for entry in audience.numbers(id_)] == [(topic, 0), (topic, 20)]


def test_of_late_doorbells_private_topics_get_all_and_others_the_newest(audience: Audience) -> None:
    audience.follow("c1", "bids/btc", "bids/eth", "prices/eur", "inbox/u7")
    for n in range(3):
        for topic in ("bids/btc", "bids/eth", "prices/eur", "inbox/u7"):
            audience.publish(topic, n)
    audience.ring()
    doorbells = audience.doorbells()
    rung = [Doorbell(text, audience.app.clock.now()) for text in doorbells]
    audience.app.clock.advance(LATE_SECONDS + 1)
    for _ in range(2):
        pushed = audience.pushing.push(0, rung, audience.app.clock.now() + 20)
        assert replace(pushed, delay=0) == Pushed(clients=1, frames=1)
        assert pushed.delay >= LATE_SECONDS
    assert audience.numbers("c1") == [("inbox/u7", 0, [1, 2, 3])] * 2

    audience.app.engine.delete_item(TableName=FEEDS, Key=key("t#bids/eth", "!"))
    for n in (3, 4):
        audience.publish("prices/eur", n)
    assert audience.visit().frames == 1  # both visits have rung for the same ones once
    newest = audience.numbers("c1")[2:]
    assert sorted(newest) == [("bids/btc", 2, [3]), ("prices/eur", 4, [5])]


def test_each_shard_is_rung_again_for_as_many_topics_as_there_are(audience: Audience) -> None:
    topics = [f"bids/{n}-{'k' * 240}" for n in range(300)]
    for shard, cause in ((0, "a"), (0, "a"), (1, "a"), (0, "b")):
        audience.ringing.ring_again(shard, topics, [Doorbell(cause, 0)])
    texts = [text for _ in range(3) for text in audience.doorbells()]
    assert max(map(len, texts)) <= DOORBELL_BYTES
    rung = [one.topic for text in texts for one in decode(Doorbell(text, 0))]
    assert sorted(rung) == sorted(topics * 3)


def test_who_left_or_has_no_row_or_lease_gets_nothing(audience: Audience) -> None:
    audience.follow("c1", "bids/btc", "inbox/u7")
    audience.follow("c2", "bids/btc", "inbox/u7")
    leave = {"op": "leave", "id": 2, "topics": ["bids/btc", "inbox/u7"]}
    audience.requests.answer("c1", json.dumps(leave))
    audience.connections.close("c2")
    for topic in ("bids/btc", "inbox/u7"):
        audience.publish(topic, 1)
        audience.app.clock.advance(1)
        assert audience.visit() == Pushed()

    audience.follow("c3", "bids/btc")
    audience.publish("bids/btc", 1)
    audience.app.clock.advance(LEASE_SECONDS)
    assert audience.ring() == 0


def test_doorbells_that_come_again_or_too_many_at_once_are_sent_once_and_in_order(
    audience: Audience,
) -> None:
    audience.follow("c1", "bids/btc")
    for n in range(12):
        audience.publish("bids/btc", [n, audience.app.rng.randbytes(9_000).hex()])
    records = audience.news()
    count = audience.ringing.ring(records)
    assert audience.ringing.ring(records) == count
    doorbells = audience.doorbells()
    assert len(doorbells) == count > 1  # SQS keeps one of two equal ones
    assert max(map(len, doorbells)) <= DOORBELL_BYTES
    audience.visit([*reversed(doorbells), *doorbells])
    assert [after for _, after, _ in audience.numbers("c1")] == list(range(12))
    sizes = [len(json.dumps(f)) for f in audience.sockets.frames["c1"]]
    assert max(sizes) <= 32 * 1024 < 2 * min(sizes[:-1])


def test_messages_of_any_size_are_pushed(audience: Audience) -> None:
    audience.follow("c1", "bids/btc", *(f"bids/{n}" for n in range(90)))
    for _ in range(10):
        body = audience.app.rng.randbytes(MAX_BODY)
        audience.app.feeds.publish("bids", "btc", body, "application/octet-stream")
    assert audience.ring() == 10
    assert audience.visit(audience.doorbells()).frames == 10

    for n in range(90):
        audience.publish(f"bids/{n}", "x" * 900)
    audience.ring()
    audience.visit(audience.doorbells())
    sizes = [len(json.dumps(f, separators=(",", ":"))) for f in audience.sockets.frames["c1"][10:]]
    assert 32 * 1024 - 1000 < max(sizes) <= 32 * 1024


@pytest.mark.parametrize("status", [429, 500, TIMEOUT])
def test_websocket_readiness_who_does_not_take_a_frame_twice_is_put_out_socket_first(
    audience: Audience, status: int
) -> None:
    for id_ in ("c1", "c2", "c3"):
        audience.follow(id_, "bids/btc")
    for _ in range(2):
        audience.publish("bids/btc", audience.app.rng.randbytes(20_000).hex())
    fails = [status, status]
    audience.sockets.faults |= {"c1": fails, "c2": [*fails], "c3": [status]}
    close, began = audience.connections.close, audience.app.clock.now()

    def close_row(id_: str) -> None:
        assert id_ in audience.sockets.closed
        close(id_)

    audience.connections.close = close_row  # type: ignore[method-assign]
    pushed = audience.visit()
    assert replace(pushed, delay=0) == Pushed(clients=3, frames=2, put_out=2)
    assert audience.app.clock.now() - began == pytest.approx(RETRY_SECONDS + TICK_SECONDS)
    assert audience.sockets.closed == {"c1", "c2"}
    assert set(audience.connections.in_shard(0)) == set(audience.sockets.frames) == {"c3"}


def test_the_row_of_a_client_that_is_gone_is_removed(audience: Audience) -> None:
    audience.follow("c1", "bids/btc")
    audience.sockets.closed.add("c1")
    audience.publish("bids/btc", 1)
    assert audience.visit() == Pushed(clients=1)
    assert audience.connections.in_shard(0) == {}


def test_in_an_outage_nobody_is_put_out_but_the_doorbells_come_again(audience: Audience) -> None:
    for n in range(OUTAGE):
        audience.follow(f"c{n}", "bids/btc")
    audience.publish("bids/btc", 1)
    audience.ring()
    doorbells = audience.doorbells()
    audience.sockets.faults["*"] = [500]
    began = audience.app.clock.now()
    for tries in range(1, OUTAGE_TRIES):
        with pytest.raises(Unavailable, match="10 of 10 posts failed"):
            audience.visit(doorbells, tries=tries)
    assert audience.sockets.closed == set()
    mixed = [Doorbell(doorbells[0], began, tries) for tries in (1, OUTAGE_TRIES)]
    assert audience.pushing.push(0, mixed, began + 20).put_out == OUTAGE


@pytest.mark.parametrize(("status", "seconds"), [(403, 20), (500, 0)])
def test_where_nothing_may_be_posted_or_no_time_is_left_nobody_is_put_out(
    audience: Audience, status: int, seconds: float
) -> None:
    audience.follow("c1", "bids/btc")
    audience.publish("bids/btc", 1)
    audience.sockets.faults["c1"] = [status]
    with pytest.raises(Unavailable, match="post_to_connection"):
        audience.visit(seconds=seconds)
    assert set(audience.connections.in_shard(0)) == {"c1"}
    assert audience.sockets.closed == set()


def test_a_row_that_cannot_be_read_keeps_no_other_one_waiting(audience: Audience) -> None:
    audience.follow("c1", "bids/btc", "inbox/u7")
    audience.app.engine.put_item(TableName=FEEDS, Item=key("c#0", "c0") | {"u": {"N": "7"}})
    audience.publish("inbox/u7", 1)
    audience.publish("bids/btc", 1)
    audience.app.engine.delete_item(TableName=FEEDS, Key=key("config", "inbox"))
    assert audience.visit() == Pushed(clients=1, frames=1)
    assert audience.numbers("c1") == [("bids/btc", 0, [1])]


@pytest.mark.parametrize(
    "text", ["", "7", "nonsense", "[" * 9999, "[[]]", "[[{},null]]", '[[{"pk":7},null]]']
)
def test_what_cannot_be_read_keeps_no_other_news_waiting(audience: Audience, text: str) -> None:
    audience.follow("c1", "bids/btc")
    audience.publish("bids/btc", 1)
    audience.ring()
    [doorbell] = audience.doorbells()
    assert audience.visit([text, f"[null,{doorbell[1:]}"]) == Pushed(clients=1, frames=1)
