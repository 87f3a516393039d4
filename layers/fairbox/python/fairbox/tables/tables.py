"""The tables of a deployment, each behind what reads and writes it."""

from __future__ import annotations

import random
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from fairbox.errors import NotConfigured
from fairbox.model.clock import SystemClock, milliseconds
from fairbox.settings import BATCHES_TABLE
from fairbox.tables.burials import Burials
from fairbox.tables.calls import Calls
from fairbox.tables.circuits import CircuitRows
from fairbox.tables.dead_letters import DeadLane
from fairbox.tables.deferred_keys import DeferredKeyTable
from fairbox.tables.key_claims import KeyClaimTable
from fairbox.tables.keys import HEARTBEAT, heartbeat_key
from fairbox.tables.lanes import Lanes
from fairbox.tables.ledger import Ledger
from fairbox.tables.message_claims import Claims
from fairbox.tables.purges import Purges
from fairbox.tables.redrives import Redrives
from fairbox.tables.shard_rows import ShardRows
from fairbox.tables.topic_cache import DispatcherTopics
from fairbox.tables.topic_rows import TopicTable
from fairbox.tables.walk_positions import WalkPositions

if TYPE_CHECKING:
    from fairbox.batches.message_items import MessageItems
    from fairbox.model.bodies import BodyStore
    from fairbox.model.clock import Clock
    from fairbox.tables.hints import HintRows
    from fairbox.tables.keys_aside import KeysAsideTable
    from fairbox.tables.recounts import RecountTable
    from fairbox.tables.segments import SegmentRows


class Tables:
    """Outbox and deliveries, and batches as far as messages carry their items.

    A process has one: `topic_cache` is what it knows of topics.

    Args:
        client: boto3's DynamoDB client, or one that has its methods.
        outbox: name of the outbox table.
        deliveries: name of the deliveries table.
        batches: name of the batches table; None: messages with a batch item stay where they are.
        bodies: where bodies lie that do not fit an item; None: nowhere.
        clock, rng: time and jitter; the machine's by default.
    """

    def __init__(
        self,
        client: Any,
        *,
        outbox: str,
        deliveries: str,
        batches: str | None = None,
        bodies: BodyStore | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.calls = Calls(client, clock or SystemClock(), rng or random.SystemRandom())
        self.outbox = outbox
        self.deliveries = deliveries
        self.batches = batches
        self.bodies = bodies
        self.lanes = Lanes(self.calls, outbox)
        self.rows = ShardRows(self.calls, outbox)
        self.walks = WalkPositions(self.calls, outbox)
        self.claims = Claims(self.calls, outbox)
        self.key_claims = KeyClaimTable(self.calls, outbox)
        self.deferred_keys = DeferredKeyTable(self.calls, outbox)
        self.topics = TopicTable(self.calls, outbox)
        self.topic_cache = DispatcherTopics(self.topics, self.calls.clock)
        latest = partial(self.topics.changes, consistent=False)
        self.circuits = CircuitRows(self.calls, outbox, latest)
        self.dead = DeadLane(self.calls, deliveries)
        self.ledger = Ledger(self.calls, deliveries)
        self.burials = Burials(self.lanes, self.dead, lambda: self.message_items)
        self.purges = Purges(self.lanes, self.dead, self.burials, self.rows)
        self.holder_purges = Purges(
            self.lanes, self.dead, self.burials, self.rows, same_holder=True
        )
        self.redrives = Redrives(self.lanes, self.dead, self.burials, lambda: self.message_items)

    def write_heartbeat(self) -> None:
        """Write the row that makes functions behind streams be invoked (1 WRU a table)."""
        at = {HEARTBEAT: {"N": str(milliseconds(self.calls.clock))}}
        for table in filter(None, (self.outbox, self.batches)):
            self.calls.call("put_item", TableName=table, Item=heartbeat_key() | at)

    # imported where they are used: a producer's process needs none of these

    @cached_property
    def hints(self) -> HintRows:
        """The places where receives of unordered pulled topics begin."""
        from fairbox.tables.hints import HintRows  # noqa: PLC0415

        return HintRows(self.calls, self.outbox, lambda: self.segments)

    @cached_property
    def segments(self) -> SegmentRows:
        """The stretches that receives have passed."""
        from fairbox.tables.segments import SegmentRows  # noqa: PLC0415

        return SegmentRows(self.calls, self.deliveries)

    @cached_property
    def keys_aside(self) -> KeysAsideTable:
        """The keys that wait beside the row of an ordered shard."""
        from fairbox.tables.keys_aside import KeysAsideTable  # noqa: PLC0415

        return KeysAsideTable(self.calls, self.deliveries, self.key_claims)

    @cached_property
    def recounts(self) -> RecountTable:
        """The recounts of shards whose counts are in doubt."""
        from fairbox.tables.recounts import RecountTable  # noqa: PLC0415

        return RecountTable(self.calls, self.outbox, self.deliveries)

    @cached_property
    def message_items(self) -> MessageItems:
        """The mover of batch items with their messages.

        Raises:
            NotConfigured: there is no batches table.
        """
        if self.batches is None:
            raise NotConfigured(BATCHES_TABLE)
        # imported where it is used: no cold start pays for it
        from fairbox.batches.message_items import MessageItems  # noqa: PLC0415
        from fairbox.tables.batch_table import BatchTable  # noqa: PLC0415

        return MessageItems(BatchTable(self.calls, self.batches), self.calls.clock, self.calls.rng)
