"""Users of a simulated world, who publish, cancel and consume, and a record of their calls."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairbox import FairboxError, Message, MessagesNotWritten
from fairbox.model.ids import IdGenerator

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef
    from fairbox.testing.application import MemoryApplication

KEYS = 5
PROCESSES = 3
TOPICS = ("plain", "fan", "ordered", "pulled", "fragile", "slow")


@dataclass
class UserCalls:
    """Calls of users: tried messages, acknowledged ones, tried cancels, tried marks."""

    published: dict[str, MessageRef] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    marked: set[str] = field(default_factory=set)


class Producers:
    """Users with some chance in what they do; each failed call is repeated, as the errors say.

    They are a few processes with clocks of their own, and each key is one process's alone.

    Args:
        app: where they publish.
        rng: every chance.
        clock: makes the clock of another process.

    Attributes:
        topics: to which they publish.
        keyed: of these, the ordered ones.
        delayed: those to which they also publish with a delay.
    """

    topics: tuple[str, ...] = TOPICS
    keyed: tuple[str, ...] = ("ordered",)
    delayed: tuple[str, ...] = ("plain", "fan", "pulled")

    def __init__(
        self, app: MemoryApplication, rng: random.Random, clock: Callable[[], Clock]
    ) -> None:
        self._app = app
        self._ids = [IdGenerator(clock(), app.rng.getrandbits) for _ in range(PROCESSES)]
        self._rng = rng
        self.calls = UserCalls()
        self._business = 0

    def act(self) -> int:
        """Do one thing; return how many messages it published."""
        drawn = self._rng.random()
        if drawn < 0.08:
            return self._cancel()
        if drawn < 0.14:
            return self._consume()
        topic = self._rng.choice(self.topics)
        if topic in self.keyed:
            burst = range(self._rng.randint(1, 12))
            return sum(self._publish([self._message(topic)], self._add) for _ in burst)
        if drawn < 0.6:
            return self._publish([self._message(topic)], self._add)
        if drawn < 0.8:
            many = [self._message(topic) for _ in range(self._rng.randint(1, 40))]
            return self._publish(many, self._add_many)
        return self._publish([self._message(topic)], self._transact)

    def _message(self, topic: str) -> Message:
        poison = topic in ("fragile", "ordered") and self._rng.random() < 0.05
        delay = 0.0
        if topic in self.delayed and self._rng.random() < 0.15:
            delay = self._rng.choice([0.5, 30, 300, 1200])
        key = None
        process = self._rng.randrange(KEYS)
        if topic in self.keyed or self._rng.random() < 0.3:
            key = f"key-{process}"
        body = b"poison" if poison else b"x" * self._rng.choice([0, 10, 2000])
        made = self._ids[process % PROCESSES].next()
        return Message(topic=topic, body=body, partition_key=key, delay=delay, id=made)

    def _publish(self, messages: list[Message], write: Callable[[list[Message]], None]) -> int:
        """Write until it is acknowledged, as a producer does that keeps the order of its keys."""
        self.calls.tried.update(m.id for m in messages)
        while True:
            try:
                write(messages)
            except FairboxError:
                self._app.clock.advance(0.1)
                continue
            return len(messages)

    def _acknowledged(self, refs: list[MessageRef]) -> None:
        self.calls.published.update({ref.id: ref for ref in refs})

    def _add(self, messages: list[Message]) -> None:
        self._acknowledged([self._app.outbox.add(messages[0])])

    def _add_many(self, messages: list[Message]) -> None:
        try:
            self._acknowledged(self._app.outbox.add_many(messages))
        except MessagesNotWritten as error:
            missing = {ref.id for ref in error.missing}
            messages[:] = [m for m in messages if m.id in missing]
            self._acknowledged([])
            raise

    def _transact(self, messages: list[Message]) -> None:
        self._business += 1
        key = {"pk": {"S": f"business#{self._business}"}, "sk": {"S": "row"}}
        put: dict[str, Any] = {"Put": {"TableName": "deliveries", "Item": key}}
        self._acknowledged(self._app.outbox.transact([put], *messages))

    def _cancel(self) -> int:
        refs = list(self.calls.published.values())[-50:]
        chosen = self._rng.sample(refs, min(len(refs), 2))
        self.calls.cancelled.update(ref.id for ref in chosen)
        with suppress(FairboxError):
            self._app.outbox.cancel(chosen, reason="changed my mind")
        return 0

    def _consume(self) -> int:
        with suppress(FairboxError):
            first = list(self._app.outbox.stored("ready", "pulled", limit=5))
            self.calls.marked.update(stored.ref.id for stored in first)
            self._app.outbox.mark_delivered([stored.ref for stored in first])
        return 0
