"""A simulated world whose topics are resized in storms, by producers with views of any age."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from fairbox import FairboxError, Outbox, ResizeUnderway
from fairbox.model.ids import time_of
from fairbox.tables.keys import parse_lane_pk
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX

from fairbox_simulation.oracle import Oracle, run
from fairbox_simulation.producers import Producers
from fairbox_simulation.world import SUBSCRIPTIONS, World

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from fairbox import Message, MessageRef
    from fairbox.model.clock import Clock
    from fairbox.model.topic_states import TopicState

    from fairbox_simulation.chaos import Chaos

WIDTHS = (1, 2, 3, 4, 8, 12)
VIEWS = 3


class Crowd(Producers):
    """Producers in several processes, each with copies of the topics of its own age.

    Of topics without order some messages are made long before they are added.
    """

    def __init__(self, world: ResizingWorld, rng: random.Random) -> None:
        super().__init__(world.app, rng, world.clock)
        self._views = [world.another() for _ in range(VIEWS)]
        self._kept: list[Message] = []
        self.placed: dict[str, list[MessageRef]] = {}

    def act(self) -> int:
        """Do one thing; return how many messages it published."""
        view = self._rng.choice(self._views)
        ours, self._app.outbox = self._app.outbox, view
        try:
            if self._kept and self._rng.random() < 0.1:
                return self._publish([self._kept.pop(0)], self._add)
            return super().act()
        finally:
            self._app.outbox = ours

    def _publish(self, messages: list[Message], write: Callable[[list[Message]], None]) -> int:
        if messages[0].topic not in self.keyed and self._rng.random() < 0.1:
            self._kept += messages
            return 0
        return super()._publish(messages, write)

    def _acknowledged(self, refs: list[MessageRef]) -> None:
        super()._acknowledged(refs)
        for ref in refs:
            self.placed.setdefault(ref.id, []).append(ref)


class ResizingWorld(World):
    """A world in which an operator resizes one topic after the other.

    Args:
        seed: chooses everything.
        chaos: how much goes wrong.
    """

    resized: tuple[str, ...] = tuple(SUBSCRIPTIONS)

    def __init__(self, seed: int, chaos: Chaos) -> None:
        super().__init__(seed, chaos)
        self._operator = self.another()
        self.producers: Crowd = Crowd(self, self.rng)
        self.resizes = 0
        self.history: dict[str, TopicState] = {}

    def another(self, clock: Clock | None = None) -> Outbox:
        """Return the outbox of another process, with this clock or the true one."""
        return Outbox(
            self.app.client,
            table=OUTBOX,
            deliveries_table=DELIVERIES,
            batches_table=BATCHES,
            bodies=self.app.bodies,
            clock=clock or self.app.clock,
            rng=self.app.rng,
        )

    def _produce(self) -> int:
        if self.rng.random() < 0.03 or not self.resizes:
            self._resize()
        return super()._produce()

    def _resize(self) -> None:
        topic = "ordered" if self.rng.random() < 0.5 else self.rng.choice(self.resized)
        # what fails the operator tries again some other time
        with self._fuse.spared(), suppress(FairboxError, ResizeUnderway):
            self.resizes += self._operator.resize(topic, self.rng.choice(WIDTHS)).changed
            self.history[topic] = self._operator.topic(topic)


def breaches_of(world: ResizingWorld) -> list[str]:
    """Return what the resizes of a world that is calm broke."""
    found: list[str] = []
    states = {state.topic.name: state for state in world.app.outbox.topics()}
    for table in (OUTBOX, DELIVERIES):
        for item in world.app.engine.items(table):
            if not item["pk"]["S"].startswith(("ready#", "later#", "dead#")):
                continue
            lane, topic, epoch, _ = parse_lane_pk(item["pk"]["S"])
            if item["sk"]["S"] != "!" and states[topic].epoch(epoch) is None:
                found.append(f"stranded: {lane} {topic} {item['sk']['S']} in epoch {epoch}")
    found += [f"added twice: {i} in {sorted(there)}" for i, there in _added(world) if there[1:]]
    dead = {(d.topic, d.id) for name in states for d in _fresh(world).dead(name)}
    for item in world.app.engine.items(DELIVERIES):
        if item["pk"]["S"].startswith("dead#"):
            ref = read_message(item).ref
            if (ref.topic, ref.id) not in dead:
                found.append(f"a dead letter that nobody lists: {ref}")
    return found + _misplaced(world)


def _added(world: ResizingWorld) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield each message of a topic with the epochs and shards that it was ever put into.

    What one topic feeds to another has the same id in both.
    """
    places: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    for record in world.app.records():
        if record["eventName"] == "INSERT":
            pk, sk = (record["dynamodb"]["Keys"][name]["S"] for name in ("pk", "sk"))
            _, topic, epoch, shard = parse_lane_pk(pk)
            places[topic, sk.rpartition("#")[2]].add((epoch, shard))
    for (topic, message_id), there in places.items():
        yield f"{topic} {message_id}", sorted(there)


def _misplaced(world: ResizingWorld) -> list[str]:
    """Return messages that an epoch took whose id is not of its time."""
    found = []
    for message_id, refs in world.producers.placed.items():
        state = world.history.get(refs[0].topic)
        epoch = None if state is None else state.epoch(refs[0].epoch)
        if state is None or epoch is None:
            continue
        made = time_of(message_id)
        # not `epoch_at`: what was added before its epoch was closed lies rightly
        wanted = max((e.number for e in state.epochs if e.since <= made), default=0)
        if wanted > epoch.number:
            found.append(f"misplaced: {refs[0]} belongs to epoch {wanted}")
    return found


def _fresh(world: ResizingWorld) -> Outbox:
    """Return an outbox that has read no topic yet, without faults."""
    world.app.client.stormy = False
    return world.another()


def run_resizing(world: ResizingWorld, messages: int) -> list[str]:
    """Run a world to its end, let old epochs retire, and return every breach."""
    found = run(world, messages)
    found += breaches_of(world)
    for _ in range(3):  # what is empty is closed, and leaves
        world.app.clock.advance(3600)
        world.repair()
    found += breaches_of(world)
    found += Oracle(world).breaches()
    for state in world.app.outbox.topics():
        listed = {epoch.number for epoch in state.epochs[:-1]}
        found += [
            f"an empty epoch stays: {state.topic.name} {number}"
            for number in listed - _holding(world, state.topic.name)
        ]
    return found


def _holding(world: ResizingWorld, topic: str) -> set[int]:
    """Return the epochs of a topic in which something lies."""
    return {
        parse_lane_pk(item["pk"]["S"])[2]
        for table in (OUTBOX, DELIVERIES)
        for item in world.app.engine.items(table)
        if item["pk"]["S"].startswith(tuple(f"{x}#{topic}#" for x in ("ready", "later", "dead")))
        and item["sk"]["S"] != "!"
    }
