"""The tables of a deployment, each behind the object that reads and writes it."""

from __future__ import annotations

import random
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fairbox.errors import Unreadable
from fairbox.model.clock import Clock, SystemClock, milliseconds
from fairbox.tables.calls import Calls
from fairbox.tables.circuits import CircuitRows
from fairbox.tables.dead_letters import DeadLane, read_dead
from fairbox.tables.deferred_keys import DeferredKeyTable
from fairbox.tables.key_claims import KeyClaimTable
from fairbox.tables.keys import HEARTBEAT, heartbeat_key, message_key
from fairbox.tables.lanes import Lanes
from fairbox.tables.ledger import Ledger
from fairbox.tables.message_states import Claims
from fairbox.tables.shard_rows import ShardRows
from fairbox.tables.stored_messages import StoredMessage, read_message
from fairbox.tables.topic_cache import DispatcherTopics
from fairbox.tables.topic_rows import TopicTable
from fairbox.tables.walk_positions import WalkPositions

if TYPE_CHECKING:
    from fairbox.model.bodies import BodyStore
    from fairbox.model.messages import MessageRef
    from fairbox.tables.hints import HintRows
    from fairbox.tables.keys_aside import KeysAsideTable
    from fairbox.tables.recounts import RecountTable
    from fairbox.tables.segments import SegmentRows


class Tables:
    """Outbox and deliveries, and batches as far as messages carry their items.

    A process has one: `topic_cache` holds its copies of topics.

    Args:
        client: boto3's DynamoDB client, or one that has its methods.
        batches: name of the batches table; None: messages with a batch item stay where they are.
        bodies: the store of bodies that do not fit an item; None: there is none.
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
        self.topic_cache = DispatcherTopics(self.topics.changes, self.topics.near, self.calls.clock)
        self.circuits = CircuitRows(self.calls, outbox, self.topics.changes)

        self.dead = DeadLane(self.calls, deliveries)
        self.ledger = Ledger(self.calls, deliveries)

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

        return RecountTable(self.calls, self.outbox, self.deliveries, self.rows)

    def outstanding_or_dead(
        self, ref: MessageRef
    ) -> tuple[StoredMessage | None, StoredMessage | None]:
        """Return a message as it lies in its lane and as a dead letter, both at one time.

        A death and a redrive move it from one to the other, so two reads could miss it in both. A
        transaction of two reads: 4 RRU for messages of up to 4 KB.
        """
        gets = [
            {"Get": {"TableName": self.outbox, "Key": message_key(ref)}},
            {"Get": {"TableName": self.deliveries, "Key": message_key(ref, "dead")}},
        ]
        answer = self.calls.call("transact_get_items", TransactItems=gets)
        lying, dead = (found.get("Item") for found in answer["Responses"])

        letter = read_dead(dead).stored if dead else None
        try:
            return (read_message(lying) if lying else None), letter
        except Unreadable:
            return None, letter  # the page that it lies in buries it
