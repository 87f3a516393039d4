"""The tables of a deployment, each behind what reads and writes it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fairbox.clock import SystemClock
from fairbox.dynamodb.calls import Calls
from fairbox.dynamodb.dead import DeadLane
from fairbox.dynamodb.lanes import Lanes
from fairbox.dynamodb.ledger import Ledger
from fairbox.dynamodb.rows import ShardRows
from fairbox.dynamodb.topics import TopicTable

if TYPE_CHECKING:
    from fairbox.clock import Clock


class Tables:
    """Outbox and deliveries.

    Args:
        client: boto3's DynamoDB client, or one that has its methods.
        outbox: name of the outbox table.
        deliveries: name of the deliveries table.
        clock, rng: time and jitter; the machine's by default.
    """

    def __init__(
        self,
        client: Any,
        *,
        outbox: str,
        deliveries: str,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.calls = Calls(client, clock or SystemClock(), rng or random.SystemRandom())
        self.outbox = outbox
        self.deliveries = deliveries
        self.lanes = Lanes(self.calls, outbox)
        self.rows = ShardRows(self.calls, outbox)
        self.topics = TopicTable(self.calls, outbox)
        self.dead = DeadLane(self.calls, deliveries)
        self.ledger = Ledger(self.calls, deliveries)
