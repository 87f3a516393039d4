"""Adding again: producers that repeat what consumers hold, also through a feeding topic."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, RetryPolicy, Topic
from fairbox.destinations.topic import PulledTopic, add_to_topic
from fairbox.errors import StaleReceipt
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import OUTBOX, MemoryApplication

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox.tables.stored_messages import StoredMessage

    from fairbox_simulation.chaos import Chaos

QUEUE: Final = "jobs"
HOLD_SECONDS: Final = 600.0
_STEPS: Final = 6
"""Acts of consumers and of repeating producers for a message."""


class AddingWorld:
    """Consumers of a queue, and producers that add again whatever is outstanding.

    Args:
        seed: chooses everything.

    Attributes:
        repeated: how often something was added again that was held.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.app = MemoryApplication(rng=random.Random(seed + 1))
        self.app.outbox.create_topic(
            Topic(QUEUE, shards=2, retry=RetryPolicy(max_attempts=50, cap=5))
        )
        feeding: Any = PulledTopic(QUEUE, partial(add_to_topic, self.app.outbox))
        self._feed = feeding
        self._messages: dict[str, Message] = {}
        self._held: dict[str, tuple[str, float]] = {}  # id -> receipt, until when
        self.repeated = 0
        self.breaches: list[str] = []

    def run(self, messages: int) -> list[str]:
        """Run so many messages through the queue; return every breach."""
        for _ in range(messages):
            made = Message(topic=QUEUE, body=b"work", id=self.app.ids.next())
            self._messages[str(made.id)] = made
            self.app.outbox.add_many([made])
            for _ in range(_STEPS):
                self._rng.choice([self._receive, self._settle, self._add_again])()
                self.app.clock.advance(self._rng.choice([0.1, 1.0, 5.0]))
        return self.breaches

    def _receive(self) -> None:
        for received in self.app.queue.receive(QUEUE, 3, HOLD_SECONDS):
            message_id = str(received.message.id)
            now = self.app.clock.now()
            _, until = self._held.get(message_id, ("", 0.0))
            if now < until:
                self.breaches.append(f"a held message was given away: {message_id}")
            self._held[message_id] = (received.receipt, now + HOLD_SECONDS)

    def _settle(self) -> None:
        """Ack or nack something that is held for sure."""
        now = self.app.clock.now()
        held = [i for i, (_, until) in self._held.items() if now < until]
        if not held:
            return
        message_id = self._rng.choice(held)
        receipt, _ = self._held.pop(message_id)
        ends = self._rng.random() < 0.3
        try:
            if ends:
                self.app.queue.ack(receipt)
            else:
                self.app.queue.nack(receipt, 0.0, "not now")
        except StaleReceipt:
            self.breaches.append(f"a claim was lost: {message_id}")

    def _add_again(self) -> None:
        """Add outstanding messages again, as a producer does that has not heard the answer."""
        before = {str(s.ref.id): s for s in self._outstanding()}
        chosen = self._rng.sample(sorted(before), min(len(before), 3))
        if not chosen:
            return
        again = [self._messages[i] for i in chosen]
        ways: list[Callable[[], object]] = [
            lambda: self.app.outbox.add_many(again),
            lambda: [self.app.outbox.add(m) for m in again],
            lambda: self._feed.send([before[i] for i in chosen], 10.0),
        ]
        self._rng.choice(ways)()
        self.repeated += sum(i in self._held for i in chosen)
        self.breaches += self._changed(before)

    def _changed(self, before: dict[str, StoredMessage]) -> Iterator[str]:
        """Yield what is not as it was before something was added again."""
        after = {str(s.ref.id): s for s in self._outstanding()}
        for message_id, stored in before.items():
            now = after.get(message_id)
            if now != stored:
                yield f"changed by adding it again: {message_id}: {stored} is {now}"

    def _outstanding(self) -> Iterator[StoredMessage]:
        for item in self.app.engine.items(OUTBOX):
            if item["pk"]["S"].startswith(("ready#", "later#")) and item["sk"]["S"] != "!":
                yield read_message(item)


def run_adding(seed: int, chaos: Chaos, messages: int) -> list[str]:  # noqa: ARG001 - nothing fails
    """Run one world; return every breach, as "kind: details"."""
    return AddingWorld(seed).run(messages)
