"""Backlogs of any size in the in-memory engine: the items of a topic that fell behind."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, MessageRef
from fairbox.codec import SK
from fairbox.codec.keys import message_key
from fairbox.codec.messages import message_item
from fairbox.codec.shards import shard_item
from fairbox.model.epochs import shard_number
from fairbox.model.ids import IdGenerator
from fairbox.model.stored_messages import ShardRow
from fairbox.testing import ManualClock, MemoryDynamoDB
from fairbox.testing.application import OUTBOX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.model.topics import Topic

BODY: Final = random.Random(7).randbytes(700)  # does not compress; the item stays under 1 KB
KEYS: Final = 1000
SECONDS_OLD: Final = 3600.0
DUE_IN_MS: Final = 24 * 3600 * 1000


def fill(engine: MemoryDynamoDB, topic: Topic, count: int, *, now: float, later: bool) -> None:
    """Put a backlog of one hour into a topic, with the shard rows that count it.

    Args:
        engine: gets it without stream records, as if they had been read.
        topic: pulled or pushed; ordered ones get 1,000 keys.
        count: of messages.
        now: seconds since 1970 UTC.
        later: the messages are delayed, and due in a day.
    """
    backlog = _Backlog(topic, now, later=later)
    engine.load(OUTBOX, backlog.items(count))
    for row in backlog.rows():
        engine.put_item(TableName=OUTBOX, Item=shard_item(row))


class _Backlog:
    """Items that share equal values, so that a million of them take under 1 GB."""

    def __init__(self, topic: Topic, now: float, *, later: bool) -> None:
        self._topic = topic
        self._later = later
        self._now = int(now * 1000)
        clock = ManualClock(now - SECONDS_OLD)
        rng = random.Random(5)
        self._ids = IdGenerator(clock, rng.getrandbits)
        self._rng = rng
        self._counts = [0] * topic.shards
        self._made: dict[tuple[str | None, int], dict[str, Any]] = {}

    def items(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield the messages' items, by id."""
        due = self._now + DUE_IN_MS if self._later else None
        keyed = self._topic.ordering == "key"
        for _ in range(count):
            message_id = self._ids.next()
            key = f"customer-{self._rng.randrange(KEYS)}" if keyed else None
            shard = shard_number(message_id if key is None else key, self._topic.shards)
            self._counts[shard] += 1
            ref = MessageRef(self._topic.name, 0, shard, message_id, due)
            yield {**self._shared(key, ref), SK: message_key(ref)[SK]}

    def _shared(self, key: str | None, ref: MessageRef) -> dict[str, Any]:
        found = self._made.get((key, ref.shard))
        if found is None:
            message = Message(topic=ref.topic, body=BODY, partition_key=key, id=ref.id)
            found, _ = message_item(message, ref, bucket=None)
            self._made[key, ref.shard] = found
        return found

    def rows(self) -> Iterator[ShardRow]:
        """Yield the shard rows; every check is due, except for delayed messages."""
        look_at = self._now + (DUE_IN_MS if self._later else -1)
        for shard, count in enumerate(self._counts):
            if count:
                ready, later = (0, count) if self._later else (count, 0)
                yield ShardRow(
                    self._topic.name, 0, shard, ready=ready, later=later, look_at=look_at
                )
