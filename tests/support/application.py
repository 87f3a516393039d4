"""An application in memory with one pushed topic, for tests of delivery."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from fairbox import Message, RetryPolicy, Subscription, Topic
from fairbox.dispatch.ports import Outcome
from fairbox.testing import CostMeter, FaultyDynamoDB
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication

if TYPE_CHECKING:
    from fairbox.dispatch.ports import Doorbell
    from fairbox.model.messages import MessageRef
    from fairbox.tables.keys import Item
    from fairbox.tables.shard_rows import ShardRow
    from fairbox.testing.application import MemoryDestination

REFUSED = Outcome("refused", "no")
POISONED = Outcome("refused", "no", fault="message")  # which opens no circuit
THROTTLED = Outcome("throttled", "slow")


class App(MemoryApplication):
    """The application with shorthands, its calls metered.

    Attributes:
        faulty: under the meter, where a test injects faults.
    """

    meter: CostMeter
    faulty: FaultyDynamoDB

    def __init__(self, *subscriptions: str, **topic: Any) -> None:
        def wrap(client: Any) -> CostMeter:
            self.faulty = FaultyDynamoDB(client, random.Random(7))
            return CostMeter(self.faulty)

        super().__init__(wrap=wrap)
        self.meter = self.client
        self.add_topic("orders", *subscriptions, **topic)

    def add_topic(self, name: str, *subscriptions: str, **topic: Any) -> None:
        """Create a topic of one shard with these subscriptions, each at its own destination."""
        topic.setdefault("retry", RetryPolicy(max_attempts=3))
        self.outbox.create_topic(Topic(name, **{"shards": 1, **topic}))
        for subscription in subscriptions:
            self.outbox.add_subscription(
                Subscription(name, subscription, f"sqs:http://q/{name}-{subscription}")
            )

    def at(self, subscription: str, topic: str = "orders") -> MemoryDestination:
        """Return the destination of a subscription."""
        return self.destinations[f"sqs:http://q/{topic}-{subscription}"]

    def add(self, count: int = 1, topic: str = "orders", **more: Any) -> list[MessageRef]:
        """Publish messages."""
        made = [
            Message(**{"topic": topic, "body": b"%d" % n, "id": self.ids.next(), **more})
            for n in range(count)
        ]
        return self.outbox.add_many(made)

    def answer(self, doorbell: Doorbell) -> None:
        """Visit beside whoever has the doorbell's group: its visibility ended, and it went on."""
        self._visits.handle(doorbell, deadline=self.deadline)

    def end_visibility(self) -> None:
        """Let the queues give again what is in flight, as after a crash and 90 s."""
        for queue in self.doorbells.sqs.queues.values():
            for message in queue.messages.values():
                message.visible_at = min(message.visible_at, self.clock.now())

    def writes(self) -> dict[str, int]:
        """Return calls by operation since the last look, without reads."""
        calls = dict(self.meter.reading().calls)
        self.meter.reset()
        reads = {"get_item", "query", "scan", "batch_get_item"}
        return {name: n for name, n in calls.items() if name not in reads}

    def lying(self) -> list[Item]:
        """Return the items of messages in the outbox."""
        lanes = ("ready#", "later#")
        items = self.engine.items(OUTBOX)
        return [i for i in items if i["pk"]["S"].startswith(lanes) and i["sk"]["S"] != "!"]

    def dead(self) -> list[Item]:
        """Return the items of lane dead."""
        items = self.engine.items(DELIVERIES)
        return [i for i in items if i["pk"]["S"].startswith("dead#")]

    def row(self, topic: str = "orders", shard: int = 0) -> ShardRow:
        """Return a shard row, the empty one where there is none."""
        rows = self.tables.rows.get_many([(topic, 0, shard)])
        assert rows
        return rows[0]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return what the archive has of a kind, each once."""
        lines = {e["event_id"]: e for e in map(json.loads, self.archive.lines)}
        return [e for e in lines.values() if e["event"] == kind]

    def put_junk(self, sk: str, pk: str = "ready#orders#0#0") -> None:
        """Put an item into a lane that the codec cannot read."""
        item = {"pk": {"S": pk}, "sk": {"S": sk}, "z": {"N": "1"}, "b": {"B": b"\x00\xff"}}
        self.engine.put_item(TableName=OUTBOX, Item=item)
