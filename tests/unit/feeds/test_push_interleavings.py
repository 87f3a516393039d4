"""A client that joins or acknowledges beside what is pushed, in every order of the calls."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Feed, Feeds, Throttled
from fairbox.aws.feed_sockets import FeedSockets
from fairbox.client.feed_positions import FeedPositions
from fairbox.dispatch.parallel import one_by_one
from fairbox.feeds.asking import Asking
from fairbox.feeds.feed_requests import Requests
from fairbox.feeds.frames import Posting
from fairbox.feeds.pushing import Pushing
from fairbox.feeds.ringing import Doorbell, Ringing
from fairbox.tables.calls import Calls
from fairbox.tables.definitions import feeds_definition
from fairbox.tables.feed_connections import Connection, FeedConnections, FeedLeases
from fairbox.tables.feed_rows import FeedRows
from fairbox.tables.feed_topics import FeedTopics, acknowledged_of
from fairbox.testing import ManualClock, MemoryDynamoDB

from tests.support.interleavings import Interleavings, Local, Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.feed_types import Kind

TABLE, TOPIC, CLIENT = "feeds", "f/k", "c1"
WINDOW = 16


class Parts:
    """The shipped parts of one process, over its client.

    Sockets and the client's inbox are an item of the table, so that a frame is a call like others.
    """

    def __init__(self, client: Any, number: int, feed: Feed) -> None:
        self.dynamodb = client
        self.clock = ManualClock()
        rng = random.Random(number)
        calls = Calls(self, self.clock, rng)
        rows = FeedRows(calls, TABLE)
        self.feeds = Feeds(self, table=TABLE, clock=self.clock, rng=rng)
        rows._feeds["f"] = self.feeds._rows._feeds["f"] = feed, 1e12
        self.topics, self.leases = FeedTopics(calls, TABLE), FeedLeases(calls, TABLE)
        self.connections = FeedConnections(calls, TABLE, 1)
        self.asking = Asking(calls, TABLE, self.connections)
        self.asking._feeds = rows
        self.ringing = Ringing(self.leases, self, "q", one_by_one)
        posting = Posting(FeedSockets(self), self.clock, rng, 1e6, one_by_one)
        self.pushing = Pushing(
            rows,
            self.topics,
            self.connections,
            posting=posting,
            ringing=self.ringing,
            run=one_by_one,
        )
        self.refuse = False
        self.heads: list[Any] = []
        self.doorbells: list[str] = []

    def __getattr__(self, operation: str) -> Any:
        return getattr(self.dynamodb, operation)

    def put_item(self, **request: Any) -> Any:
        answer = self.dynamodb.put_item(**request)
        if request["Item"]["sk"]["S"] == "!":
            self.heads.append({"dynamodb": {"NewImage": request["Item"]}})
        return answer

    def send_message_batch(self, *, QueueUrl: str, Entries: Any) -> Any:  # noqa: N803 - boto3's names
        self.doorbells += [entry["MessageBody"] for entry in Entries]
        return {"Failed": []}

    def post_to_connection(self, *, ConnectionId: str, Data: bytes) -> None:  # noqa: N803
        assert ConnectionId == CLIENT
        self.deliver(Data.decode())

    def deliver(self, text: str) -> list[str]:
        """Append a text to the client's inbox; return all of it."""
        answer = self.dynamodb.update_item(
            TableName=TABLE,
            Key=INBOX,
            UpdateExpression="SET m = list_append(m, :m)",
            ExpressionAttributeValues={":m": {"L": [{"S": text}]}},
            ReturnValues="ALL_NEW",
        )
        return texts_of(answer["Attributes"])

    def publish(self, count: int) -> None:
        """Publish a bundle, ring, and visit."""
        self.feeds.publish_many("f", "k", [b"1"] * count)
        self.ringing.ring(self.heads[-1:])
        for doorbell in self.doorbells:
            self.pushing.push(0, [Doorbell(doorbell, self.clock.now())], deadline=1e12)

    def ask(self) -> None:
        """Ask as the client, and deliver the answer."""
        asked = positions_of(self.deliver(ASKS)[:-1]).act()
        assert asked is not None
        with suppress(Throttled):
            self.deliver(Requests(self.asking, self.connections).answer(CLIENT, asked))

    def batch_write_item(self, **request: Any) -> Any:
        """Write leases, but not those of a request that is refused."""
        if self.refuse:
            self.refuse = False
            raise Throttled("batch_write_item")
        return self.dynamodb.batch_write_item(**request)


INBOX: Any = {"pk": {"S": "inbox"}, "sk": {"S": "inbox"}}
ASKS = "asks"
"""In the inbox: the client asks here."""


def texts_of(item: Any) -> list[str]:
    """Return what is in an inbox."""
    return [text["S"] for text in item["m"]["L"]]


def positions_of(inbox: Sequence[str]) -> FeedPositions:
    """Return the client as its inbox leaves it."""
    positions = FeedPositions({TOPIC: None}, clock=ManualClock(), rng=random.Random(0))
    for text in inbox:
        if text == ASKS:
            positions.act()
        else:
            positions.received(text)
    return positions


class PushInterleavings(Interleavings):
    """All orders of a publisher and of a client that asks twice.

    To a ring, two messages are published, and the client joins; its first request fails where it
    takes the lease. Of a private topic, the client has a window of messages unacknowledged, and
    one bundle more is published.

    Args:
        kind: of the topic.
    """

    def __init__(self, kind: Kind) -> None:
        engine = MemoryDynamoDB(ManualClock())
        engine.create_table(**feeds_definition(TABLE))
        engine.put_item(TableName=TABLE, Item=INBOX | {"m": {"L": []}})
        self._feed = Feed("f", kind, **({"window": WINDOW} if kind == "private" else {}))
        parts = Parts(engine, 99, self._feed)
        parts.connections.open(CLIENT, Connection("u", frozenset({"f/*", TOPIC})))
        if kind == "private":
            parts.feeds.publish_many("f", "k", [b"1"] * WINDOW)
            parts.ask()
        super().__init__(engine, ["publisher", "client"], lost_answers=0)

    def run(self, number: int, client: Any) -> Any:
        """Run the publisher, or the client."""
        parts = Parts(client, number, self._feed)
        if number == 0:
            for count in (8,) if self._feed.kind == "private" else (1, 1):
                parts.publish(count)
        else:
            parts.refuse = True
            parts.ask()
            parts.ask()

    def problem(self, saved: Any, tables: int, locals_: tuple[Local, ...]) -> str:
        """Say what is wrong in a state, or when all is done."""
        rows = {item["sk"]["S"]: item for item in self._engine.items(TABLE)}
        last = int(rows["!"]["l"]["N"]) if "!" in rows else 0
        inbox = texts_of(rows["inbox"])
        if self._feed.kind == "private":
            acknowledged = acknowledged_of(rows.get("!a", {}))
            newest: Any = json.loads(inbox[-1]) if inbox and inbox[-1] != ASKS else {"a": 0}
            if "a" not in newest and newest["t"][0][2] > acknowledged + WINDOW:
                return "over the window"
        if not all(local.done in ("returned", "FeedFull") for local in locals_):
            return ""

        client = positions_of(inbox)
        level = (client.positions[TOPIC] or 0) == last
        soon = client.due() < client._clock.now() + 60
        return "" if level or soon else "the last message is missing, and nothing shows it"


@pytest.mark.guarantee("feed-accounted")
@pytest.mark.guarantee("feed-private")
@pytest.mark.parametrize("kind", ["ring", "private"])
def test_in_every_order_a_client_is_level_or_asks_again(kind: Kind) -> None:
    report: Report = PushInterleavings(kind).search()
    assert not report.violation, "\n".join([report.violation, *report.trace])
    assert report.states > 900
