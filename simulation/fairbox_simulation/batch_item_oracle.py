"""Invariants of batches whose items are carried by messages; each breach is a sentence."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairbox.model.ids import parse_item
from fairbox.tables.batch_records import read_record
from fairbox.tables.batch_values import COMPLETED_TOPIC, FailedItems, Leaf, Root
from fairbox.tables.stored_messages import read_message
from fairbox.tables.stream_records import read_record as read_change
from fairbox.testing.application import BATCHES, DELIVERIES

from fairbox_simulation.batch_item_world import BATCH_TOPICS, BatchItemWorld
from fairbox_simulation.batches.invariants import broken
from fairbox_simulation.oracle import Oracle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.tables.stored_messages import StoredMessage

    from fairbox_simulation.batch_item_world import TrackedBatch
    from fairbox_simulation.chaos import Chaos


@dataclass
class Past:
    """The outbox's stream, read from its beginning: what lay there, and when batches completed.

    Attributes:
        there: message id -> the message as it lies in the outbox now.
        redriven: message id -> place in the stream of its last redrive.
        completed: batch -> places of its completion messages.
        early: breaches of the batches that completed before their time.
    """

    there: dict[str, StoredMessage] = field(default_factory=dict)
    redriven: dict[str, int] = field(default_factory=dict)
    completed: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    early: list[str] = field(default_factory=list)


class BatchItemOracle:
    """Reads what became of the batches of a calm world, its streams read."""

    def __init__(self, world: BatchItemWorld) -> None:
        self._world = world
        self._app = world.app
        records = map(read_record, self._app.engine.items(BATCHES))
        self._records = list(records)
        self._roots = {r.batch: r for r in self._records if isinstance(r, Root)}
        self._pending = {
            (r.batch, r.group): r.pending for r in self._records if isinstance(r, Leaf)
        }
        self._failed = {
            (r.batch, r.group): r.bits for r in self._records if isinstance(r, FailedItems)
        }
        letters = [
            i for i in self._app.engine.items(DELIVERIES) if i["pk"]["S"].startswith("dead#")
        ]
        self._dead = {read_message(item).ref.id for item in letters}
        self.past = self._read()

    def _read(self) -> Past:
        past = Past()
        carried = {tracked.batch: tracked.carried for tracked in self._world.tracked}
        for place, record in enumerate(self._app.records()):
            change = read_change(record)
            stored = change.stored
            message = change.kind == "INSERT" and stored.gone is None
            if stored.ref.topic == COMPLETED_TOPIC and message:
                batch = str(stored.message.partition_key)
                past.completed[batch].append(place)
                past.early += self._early(batch, carried[batch], past)
            if change.new is not None:
                if change.new.redriven > (change.old.redriven if change.old else 0):
                    past.redriven[stored.ref.id] = place
                past.there[stored.ref.id] = change.new
            else:
                past.there.pop(stored.ref.id, None)
        return past

    def _early(self, batch: str, carried: dict[str, str], past: Past) -> Iterator[str]:
        """Yield the items that nobody had settled when the batch completed."""
        for item, message_id in carried.items():
            there = past.there.get(message_id)
            if there is not None and not there.any_dead:
                yield f"completed early: {batch}: {item} was outstanding"

    def breaches(self) -> list[str]:
        """Return every breach; nothing when all guarantees were kept."""
        announced = [b for b, places in self.past.completed.items() for _ in places]
        problem = broken(self._app.engine.items(BATCHES), announced)
        found = [f"identity: {problem}"] if problem else []
        found += self.past.early
        for tracked in self._world.tracked:
            root = self._roots[tracked.batch]
            times = len(self.past.completed[tracked.batch])
            if times != 1 or root.state != "complete":
                found.append(f"announced not once: {tracked.batch}, {root.state}, {times} times")
            if root.total != len(tracked.carried) or root.settled != root.total:
                found.append(f"not all settled: {tracked.batch}, {root.settled} of {root.total}")
            for item, message_id in tracked.carried.items():
                found += self._item(tracked.batch, item, message_id)
            found += self._lost(tracked)
        return found

    def _lost(self, tracked: TrackedBatch) -> Iterator[str]:
        for name in BATCH_TOPICS[tracked.topic]:
            taken = set(self._app.destinations[f"sqs:http://q/{tracked.topic}-{name}"].ids)
            for item, message_id in tracked.carried.items():
                if message_id not in taken and message_id not in self._dead:
                    yield f"lost: message {message_id} of item {item} for {name}"

    def resting(self) -> list[str]:
        """Return which items are pending although their messages have left the outbox.

        Not those whose records were given up, and wait for repair.
        """
        kept = [record for batch in self._app.given_up.kept.values() for record in batch]
        given_up = {r["dynamodb"]["Keys"]["sk"]["S"].rpartition("#")[2] for r in kept}
        return [
            f"pending behind its message: {item}"
            for tracked in self._world.tracked
            for item, message_id in tracked.carried.items()
            if message_id not in self.past.there and self._is_pending(item)
            if message_id not in given_up
        ]

    def _is_pending(self, item: str) -> bool:
        named = parse_item(item)
        assert named is not None
        return bool(self._pending.get((named.batch, named.group), 0) >> named.index & 1)

    def _item(self, batch: str, item: str, message_id: str) -> Iterator[str]:
        named = parse_item(item)
        assert named is not None
        group = (named.batch, named.group)
        failed = bool(self._failed.get(group, 0) >> named.index & 1)
        if self._is_pending(item):
            yield f"pending for ever: {item}"
        if message_id in self.past.there:
            yield f"still there: message {message_id} of item {item}"
        completed = self.past.completed[batch]
        back = self.past.redriven.get(message_id, -1)
        in_time = not completed or back < completed[0]
        if message_id in self._dead and in_time and not failed:
            yield f"acked though dead: {item}"
        if message_id not in self._dead and in_time and failed:
            yield f"failed though delivered: {item}"


def run_batch_items(seed: int, chaos: Chaos, messages: int) -> list[str]:
    """Run a world with batches to its end and return every breach."""
    world = BatchItemWorld(seed, chaos)
    world.storm(messages)
    world.calm()
    breaches = BatchItemOracle(world).resting()
    world.heal()
    world.repair()
    breaches += [*BatchItemOracle(world).breaches(), *Oracle(world).breaches()]
    return [*breaches, *Oracle(world).counts()]
