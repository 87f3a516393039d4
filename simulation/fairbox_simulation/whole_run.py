"""The full-system scenario: a run of its world to the end, and the invariants that hold then."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final

from fairbox.model.ids import time_of
from fairbox.tables.batch_records import read_record
from fairbox.tables.batch_values import Leaf, Root
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import BATCHES, DELIVERIES

from fairbox_simulation.batch_item_oracle import BatchItemOracle
from fairbox_simulation.oracle import Oracle
from fairbox_simulation.resizing_world import breaches_of
from fairbox_simulation.whole_world import FED, FEEDER, QUEUES, WholeWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox_simulation.chaos import Chaos

KEPT_DAYS: Final = 60
READABLE_DAYS: Final = 7


def run_whole(seed: int, chaos: Chaos, messages: int) -> list[str]:
    """Run the full-system scenario to its end; return every breach, as "kind: details"."""
    return finish(WholeWorld(seed, chaos), messages)


def finish(world: WholeWorld, messages: int) -> list[str]:
    """Storm, calm, heal, drain, repair and clean a world; return every breach."""
    world.storm(messages)
    world.calm()
    return rest(world)


def rest(world: WholeWorld) -> list[str]:
    """Heal, drain, repair and clean a calm world; return every breach."""
    breaches = BatchItemOracle(world).resting()
    world.heal()
    world.drain_queues()
    gave_up = bool(world.marking.given_up)
    if not (gave_up or world.recounted):
        breaches += Oracle(world).counts()
    world.repair()
    oracle = Oracle(world)
    breaches += [*oracle.counts(), *oracle.breaches()]
    breaches += [*BatchItemOracle(world).breaches(), *breaches_of(world)]
    breaches += Account(world).breaches()
    return [*breaches, *erased_early(world), *forgotten(world)]


class Account:
    """The total account of the pulled topics: each message is exactly somewhere.

    Args:
        world: one that is calm, its queues drained.
    """

    def __init__(self, world: WholeWorld) -> None:
        self._world = world
        self._checker = world.checker
        events = [json.loads(line) for line in world.app.archive.lines]
        self._cancelled = {e["id"] for e in events if e["event"] in ("cancelled", "expired")}
        self._died = {e["id"] for e in events if e["event"] == "dead"}
        letters = (i for i in world.app.engine.items(DELIVERIES) if i["pk"]["S"][:5] == "dead#")
        refs = [read_message(item).ref for item in letters]
        self._dead = {(ref.topic, ref.id) for ref in refs}
        self._lying = world.in_queues()

    def breaches(self) -> list[str]:
        """Return messages that are nowhere or in two places, and wrong answers to consumers."""
        found = list(self._checker.breaches)
        found += [f"never received: {topic} {i}" for topic, i in sorted(self._lying)]
        for message_id, ref in self._world.producers.calls.published.items():
            if ref.topic in (*QUEUES, FEEDER):
                found += self._of_message(ref.topic, message_id)
        return found + self._checker.disorder(self._died)

    def _of_message(self, topic: str, message_id: str) -> Iterator[str]:
        end = (FED if topic == FEEDER else topic), message_id
        places = {end, (topic, message_id)}
        taken = end in self._checker.taken
        tried = end in self._checker.tried
        dead = bool(places & self._dead)
        if not (taken or tried or dead or places & self._lying or message_id in self._cancelled):
            yield f"lost: {topic} {message_id}: nobody acked it, and it is nowhere"
        if topic != FEEDER and taken and places & self._lying:
            yield f"acked and still there: {topic} {message_id}"
        if topic != FEEDER and taken and dead:
            yield f"acked and dead: {topic} {message_id}"


def erased_early(world: WholeWorld) -> list[str]:
    """Clean, and return the batches that completed within the week and miss groups already."""
    world.app.clock.advance(3600)
    world.clean()
    kept = list(map(read_record, world.app.engine.items(BATCHES)))
    groups = Counter(r.batch for r in kept if isinstance(r, Leaf))
    since = world.app.clock.now() - READABLE_DAYS * 86400 + 3600  # looks are by the hour
    return [
        f"erased early: {root.batch}, {groups[root.batch]} groups are left"
        for root in kept
        if isinstance(root, Root) and root.state == "complete" and root.message is not None
        if time_of(root.message) / 1000 > since and groups[root.batch] < root.next_group
    ]


def forgotten(world: WholeWorld) -> list[str]:
    """Let all be erased that is kept for a while only, and return what stays of the batches."""
    for _ in range(2):
        world.app.clock.advance(KEPT_DAYS * 86400)
        world.clean()
        world.app.engine.expire(BATCHES)
    kept = map(read_record, world.app.engine.items(BATCHES))
    ended = {tracked.batch for tracked in world.tracked}
    return [f"never erased: {r}" for r in kept if not isinstance(r, Root) and r.batch in ended]
