"""The world of the full-system scenario, in which the messages of queues expire."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox import Message
from fairbox.model.ids import time_of
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import OUTBOX

from fairbox_simulation.consumer_checker import ConsumerChecker
from fairbox_simulation.whole_run import rest
from fairbox_simulation.whole_world import FED, ORDERED, QUEUES, UNORDERED, WholeWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.testing.application import MemoryApplication

    from fairbox_simulation.chaos import Chaos
    from fairbox_simulation.consumer_checker import Holding

KEPT: Final = 60
"""Seconds that queues keep messages."""
HELD_SECONDS: Final = 300
"""Time for which consumers hold messages that are too old."""
BOUND_HOURS: Final = 3
"""Time after which nothing that is too old is left, though counts were wrong until a repair."""


class ExpiryChecker(ConsumerChecker):
    """Knows too what was acknowledged by calls that ended before their claims did."""

    def __init__(self, app: MemoryApplication) -> None:
        super().__init__(app, ordered=(ORDERED,), repeated=(FED,))
        self.held: set[tuple[str, str]] = set()

    def acked(self, holding: Holding, now: int) -> None:
        """Note what was acknowledged at `now` (ms), and whether it was held until then."""
        super().acked(holding, now)
        if now < holding.until:
            self.held.add(holding.place)


class ExpiringWorld(WholeWorld):
    """All parts of the application at once; queues keep messages for a minute.

    Attributes:
        lost: breaches of messages that were held while they were too old.
        kept: how many were.
    """

    def __init__(self, seed: int, chaos: Chaos) -> None:
        super().__init__(seed, chaos)
        self.checker: ExpiryChecker = ExpiryChecker(self.app)
        self.consumers._checker = self.checker  # made with that of the world above
        self.lost: list[str] = []
        self.kept = 0
        self.app.client.stormy = False
        for name in QUEUES:
            topic = self.app.outbox.topic(name).topic
            self.app.outbox.create_topic(replace(topic, message_retention=KEPT))
        self.app.client.stormy = True

    def _consume(self) -> None:
        super()._consume()
        super()._consume()  # else most messages expire before anybody receives them

    def wait(self) -> None:
        """Let so much time pass that all expires that may, while some is held for a while."""
        for n in range(30):
            delay = HELD_SECONDS if n >= 20 else 0
            topic = UNORDERED if delay else QUEUES[n % 2]
            key, id_ = f"held-{n}", self.app.ids.next()
            message = Message(topic=topic, body=b"", partition_key=key, delay=delay, id=id_)
            self.app.outbox.add(message)
        self.app.clock.advance(3)
        held = [h for topic in QUEUES[:2] for h in self.consumers.hold(topic, 10)]
        held = [h for h in held if h.until - self.app.clock.now() * 1000 > HELD_SECONDS * 1000]
        self._pass(HELD_SECONDS)
        self.lost = [f"expired though held: {h.place}" for h in held if not self.checker.lies(h)]
        self.kept = len(held)
        self._pass(BOUND_HOURS * 3600)

    def _pass(self, seconds: float) -> None:
        end = self.app.clock.now() + seconds
        while self.app.clock.now() < end:
            self.app.clock.advance(60)
            self._schedules()
            self._drain()

    def breaches(self) -> Iterator[str]:
        """Yield what expired too early or although it was held, and what should have expired."""
        lines = {e["event_id"]: e for e in map(json.loads, self.app.archive.lines)}
        dues = {e["id"]: e.get("due", 0) for e in lines.values() if e["event"] == "added"}
        yield from self.lost
        held = self.checker.held
        for event in lines.values():
            if event["event"] != "expired" or event["topic"] not in QUEUES:
                continue
            due = 0 if event["id"] in self.producers.rescheduled else dues.get(event["id"], 0)
            since = max(time_of(event["id"]), due)
            if event["at"] + 999 < since + KEPT * 1000:  # the stream has whole seconds
                yield f"expired early: {event['topic']} {event['id']}"
            if event["topic"] != FED and (event["topic"], event["id"]) in held:
                yield f"expired though acknowledged: {event['topic']} {event['id']}"
        for item in self.app.engine.items(OUTBOX):
            if item["pk"]["S"].startswith(("ready#", "later#")) and "z" in item:
                stored = read_message(item)
                moved = stored.moved and stored.ref.due is None
                if stored.ref.topic in QUEUES and not (stored.redriven or moved):
                    yield f"never expired: {stored.ref}"


def run_expiring(seed: int, chaos: Chaos, messages: int) -> list[str]:
    """Run the world to its end; return every breach, as "kind: details"."""
    return finish_expiring(ExpiringWorld(seed, chaos), messages)


def finish_expiring(world: ExpiringWorld, messages: int) -> list[str]:
    """Storm, calm, let the rest expire, and go on as the full system does."""
    world.storm(messages)
    world.calm()
    world.wait()
    return [*world.breaches(), *rest(world)]
