"""Invariants of a simulated world at rest; each breach is a sentence."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from fairbox.tables.shard_rows import is_shard_row, read_shard
from fairbox.tables.stored_messages import MOVED, REDRIVEN, read_message
from fairbox.testing.application import DELIVERIES, OUTBOX

from fairbox_simulation.world import SUBSCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox_simulation.world import World

Delivered = tuple[str, str]  # message id, subscription
REPEATING: Final = ("tables", "kills", "repeats", "lost_answers", "interleaved", "frozen")
"""Faults of `Chaos` that each explain a message that comes twice."""


class Oracle:
    """Reader of a world's final state, which names every breach of a guarantee.

    Args:
        world: one that is calm, its streams read.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._app = world.app
        self._calls = world.producers.calls
        lines = {e["event_id"]: e for e in map(json.loads, self._app.archive.lines)}
        self._events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for event in lines.values():
            self._events[event["event"]].append(event)
        self._cancelled = {e["id"] for e in self._events["cancelled"]}
        self._redriven = {e["id"] for e in self._events["redriven"]}
        self._inserts = Counter(
            r["dynamodb"]["NewImage"]["sk"]["S"].rpartition("#")[2]
            for r in self._app.records()
            if r["eventName"] == "INSERT"
            and not {REDRIVEN, MOVED} & r["dynamodb"]["NewImage"].keys()
        )
        self._ledger = Counter((d.id, d.subscription) for d in self._app.outbox.delivered())
        self._received = {
            f"{topic}-{name}": Counter(self._app.destinations[f"sqs:http://q/{topic}-{name}"].ids)
            for topic, names in SUBSCRIPTIONS.items()
            for name in names
        }
        self._dead = self._dead_letters()
        self._left = {
            stored.ref.id: stored
            for stored in map(read_message, self._messages())
            if stored.gone is None
        }

    def _messages(self) -> Iterator[dict[str, Any]]:
        for item in self._app.engine.items(OUTBOX):
            if item["pk"]["S"].startswith(("ready#", "later#")) and not is_shard_row(item):
                yield item

    def _dead_letters(self) -> dict[Delivered, bool]:
        """(id, subscription) -> whether its history says why."""
        found = {}
        for item in self._app.engine.items(DELIVERIES):
            if item["pk"]["S"].startswith("dead#"):
                stored = read_message(item)
                for name in stored.pending or ():
                    history = stored.state(name).history
                    found[stored.ref.id, name] = bool(history and history[-1].error)
        return found

    def breaches(self) -> list[str]:
        """Return every breach; nothing when all guarantees were kept."""
        return [
            *self._lost(),
            *self._pulled(),
            *self._ledger_breaches(),
            *self._archive_breaches(),
            *self._order_breaches(),
            *self._duplicates(),
        ]

    def _wanted(self) -> Iterator[tuple[str, str, str]]:
        """Yield (topic, id, subscription) of what was acknowledged on pushed topics."""
        for message_id, ref in self._calls.published.items():
            for name in SUBSCRIPTIONS.get(ref.topic, ()):
                yield ref.topic, message_id, name

    def _lost(self) -> Iterator[str]:
        for topic, message_id, name in self._wanted():
            taken = self._received[f"{topic}-{name}"][message_id] > 0
            dead = (message_id, name) in self._dead
            if not taken and not dead and message_id not in self._cancelled:
                where = "still outstanding" if message_id in self._left else "gone"
                yield f"lost: {topic} {message_id} for {name}: {where}"
            if dead and not self._dead[message_id, name]:
                yield f"a dead letter without history: {topic} {message_id} for {name}"
        for message_id in self._cancelled - self._calls.cancelled:
            yield f"cancelled by nobody: {message_id}"

    def _pulled(self) -> Iterator[str]:
        for message_id, ref in self._calls.published.items():
            if ref.topic != "pulled" or message_id in self._cancelled:
                continue
            if message_id not in self._left and message_id not in self._calls.marked:
                yield f"lost: pulled {message_id}: gone, and nobody marked it"

    def _ledger_breaches(self) -> Iterator[str]:
        for topic, message_id, name in self._wanted():
            times = self._ledger[message_id, name]
            dead = (message_id, name) in self._dead
            once = self._inserts[message_id] == 1
            if once and times > 1:
                yield f"ledger twice: {topic} {message_id} for {name} {times} times"
            if once and dead and times:
                yield f"dead and delivered: {topic} {message_id} for {name}"
            settled = dead or message_id in self._cancelled
            if not times and not settled:
                yield f"the ledger lacks: {topic} {message_id} for {name}"
            if times and not self._received[f"{topic}-{name}"][message_id]:
                yield f"the ledger has what nobody took: {topic} {message_id} for {name}"

    def _archive_breaches(self) -> Iterator[str]:
        added = Counter(e["id"] for e in self._events["added"])
        if added != self._inserts:
            yield f"added events differ from inserts: {(added - self._inserts).most_common(3)}"
        delivered = Counter((e["id"], e["subscription"]) for e in self._events["delivered"])
        if set(delivered) != set(self._ledger):
            odd = set(delivered) ^ set(self._ledger)
            yield f"archive and ledger differ: {len(odd)} deliveries, {sorted(odd)[:3]}"
        died = {(e["id"], e["subscription"]) for e in self._events["dead"]}
        gone = {(i, name) for i, name in died - set(self._dead) if i not in self._redriven}
        if gone or set(self._dead) - died:
            differing = sorted(gone | set(self._dead) - died)
            yield f"dead events and dead letters differ: {differing[:3]}"
        failures = Counter(
            (e["id"], e["subscription"], e["attempt"]) for e in self._events["failed"]
        )
        for (message_id, name, attempt), times in failures.items():
            if times > self._inserts[message_id] and message_id not in self._redriven:
                yield f"a failure told again: {attempt} of {message_id} for {name}, {times} times"

    def _order_breaches(self) -> Iterator[str]:
        for name in SUBSCRIPTIONS["ordered"]:
            last: dict[str, str] = {}
            seen: set[str] = set()
            for stored in self._app.destinations[f"sqs:http://q/ordered-{name}"].received:
                key, message_id = str(stored.message.partition_key), stored.ref.id
                if message_id in seen:
                    continue
                seen.add(message_id)
                if message_id < last.get(key, ""):
                    yield f"out of order: {message_id} of {key} for {name} after {last[key]}"
                last[key] = max(message_id, last.get(key, ""))

    def _duplicates(self) -> Iterator[str]:
        if any(getattr(self._world.chaos, fault) for fault in REPEATING):
            return
        for where, counter in self._received.items():
            for message_id, times in counter.items():
                if times > 1:
                    yield f"duplicated: {where} got {message_id} {times} times"

    def counts(self) -> list[str]:
        """Return where shard rows do not say what the lanes hold, dead letters included."""
        true: dict[tuple[str, int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        for item in self._messages():
            stored = read_message(item)
            ref = stored.ref
            true[ref.topic, ref.epoch, ref.shard][stored.lane == "later"] += 1
        for item in self._app.engine.items(DELIVERIES):
            if item["pk"]["S"].startswith("dead#"):
                ref = read_message(item).ref
                true[ref.topic, ref.epoch, ref.shard][2] += 1
        rows = {
            (row.topic, row.epoch, row.shard): [row.ready, row.later, row.dead]
            for row in map(read_shard, filter(is_shard_row, self._app.engine.items(OUTBOX)))
        }
        return [
            f"counts: {shard}: row {rows.get(shard)}, lanes {true.get(shard)}"
            for shard in sorted(set(true) | set(rows))
            if rows.get(shard, [0, 0, 0]) != true.get(shard, [0, 0, 0])
        ]


def run(world: World, messages: int) -> list[str]:
    """Run a world to its end and return every breach."""
    world.storm(messages)
    world.calm()
    breaches = []
    gave_up = bool(world.marking.given_up)
    if not (gave_up or world.recounted):  # what was late for hours is counted on top of repair's
        breaches = Oracle(world).counts()
    world.repair()
    oracle = Oracle(world)
    return [*breaches, *oracle.counts(), *oracle.breaches()]
