"""A simulated world with batches whose items are carried by messages: acks, cascades, redrives."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from fairbox import FairboxError, Message, RetryPolicy, Subscription, Topic
from fairbox.batches.ack_messages import parse
from fairbox.dispatch.ports import Outcome
from fairbox.tables.batch_records import emptied
from fairbox.tables.batch_values import COMPLETED_TOPIC, LeafKey, NodeKey
from fairbox.testing.application import BATCHES

from fairbox_simulation.chaos import FailureMode
from fairbox_simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.tables.stored_messages import StoredMessage

    from fairbox_simulation.chaos import Chaos

BATCH_TOPICS = {"ride": ("only",), "pair": ("x", "y"), "line": ("first",)}
_BODIES = (b"", b"", b"sick1", b"sick2", b"poison")
BODIES = {"ride": _BODIES, "pair": (b"", b"half", b"half", b"sick1"), "line": _BODIES}
NOT_YET = Outcome("refused", "it is not well yet", fault="message")
SLOWER = Outcome("throttled", "slower")


@dataclass
class TrackedBatch:
    """A batch and the messages of one topic that carry its items: item -> message id."""

    batch: str
    topic: str
    carried: dict[str, str] = field(default_factory=dict)
    sealed: bool = False


class BatchItemWorld(World):
    """A world in which users also open batches, and operators redrive.

    Some messages are refused until they were redriven, some for ever, and some by one subscription
    while another puts them off; the rest is as the chaos has it.

    Args:
        seed: chooses everything.
        chaos: how much goes wrong.
    """

    redriven: tuple[str, ...] = (*BATCH_TOPICS, "fragile")
    idle = 0.8  # of users' acts, those that publish nothing to other topics

    def __init__(self, seed: int, chaos: Chaos) -> None:
        super().__init__(seed, chaos)
        self.tracked: list[TrackedBatch] = []
        self._cascaded: str | None = None
        self.app.client.stormy = False
        for topic, names in BATCH_TOPICS.items():
            retry = RetryPolicy(max_attempts=2, base=1, cap=8)
            ordering: Any = "key" if topic == "line" else "none"
            self.app.outbox.create_topic(Topic(topic, shards=2, ordering=ordering, retry=retry))
            for name in names:
                self._subscribe(topic, name)
        self.app.outbox.create_topic(Topic(COMPLETED_TOPIC, shards=1))
        self.app.outbox.add_subscription(
            Subscription(COMPLETED_TOPIC, "all", "sqs:http://q/completed")
        )
        self.app.client.stormy = True

    def _subscribe(self, topic: str, name: str) -> None:
        destination = self.app.destinations[f"sqs:http://q/{topic}-{name}"]
        mode = FailureMode(
            destination,
            self.rng,
            self.chaos,
            self._fuse,
            self._meanwhile,
            wait=self.app.clock.advance,
        )
        self._failure_modes.append(mode)

        def answer(message: StoredMessage) -> Outcome:
            body = message.message.body
            if body.startswith(b"sick") and message.redriven < int(body[4:]):
                return NOT_YET
            if body == b"half" and not message.redriven:
                return NOT_YET if name == "x" else self._slowly(message, mode)
            return mode.answer(message)

        destination.answer = answer
        self.app.outbox.add_subscription(Subscription(topic, name, f"sqs:http://q/{topic}-{name}"))

    def _slowly(self, message: StoredMessage, mode: FailureMode) -> Outcome:
        """Put a message off until it is dead for another, and then for a while.

        At times an operator redrives it in the very moment in which it is taken.
        """
        if self._storms and (not message.any_dead or self.rng.random() < 0.5):
            return SLOWER
        if self._storms and self.rng.random() < 0.7:
            self._redrive("pair")
        return mode.answer(message)

    # what users do

    def _produce(self) -> int:
        """Let users act, less often than in other worlds: things have time to die and come back."""
        drawn = self.rng.random()
        if drawn < self.idle:
            if drawn < 0.15:
                with self._fuse.spared():
                    self._ride()
            return 0
        return super()._produce()

    def _ride(self) -> None:
        """Open a batch and publish its messages, or seal one."""
        unsealed = [tracked for tracked in self.tracked if not tracked.sealed]
        if unsealed and self.rng.random() < 0.5:
            self._seal(self.rng.choice(unsealed))
            return
        topic = self.rng.choice(list(BATCH_TOPICS))
        tracked = TrackedBatch(self.app.ids.next(), topic)
        self.tracked.append(tracked)
        self._again(lambda: self.app.batches.open(id=tracked.batch))
        count, size = self.rng.randint(1, 9), self.rng.randint(1, 4)
        groups = self._again(
            lambda: self.app.batches.add(tracked.batch, count, request_id="r", group_size=size)
        )
        for item in [item for group in groups for item in group.item_ids()]:
            body = self.rng.choice(BODIES[topic])
            message = Message(
                topic=topic,
                body=body,
                partition_key=f"key-{self.rng.randrange(3)}",
                batch_item=item,
                id=self.app.ids.next(),
            )
            tracked.carried[item] = message.id
            self._again(partial(self.app.outbox.add, message))
        if self.rng.random() < 0.4:
            self._seal(tracked)

    def _seal(self, tracked: TrackedBatch) -> None:
        self._again(lambda: self.app.batches.seal(tracked.batch))
        tracked.sealed = True

    def _again(self, work: Callable[[], Any]) -> Any:
        """Do a thing until it is answered, as users do."""
        while True:
            try:
                return work()
            except FairboxError:
                self.app.clock.advance(0.1)

    # what functions and operators do

    def _schedules(self) -> None:
        super()._schedules()
        drawn = self.rng.random()
        if drawn < 0.15:
            self._ack()
        elif drawn < 0.3:
            self._cascade()
        elif drawn < 0.38 and self._storms:
            self._redrive()

    def _meanwhile(self) -> None:
        if self._running <= 1 and self.rng.random() < 0.5:
            self.rng.choice([self._redrive, self._ack, self._cascade])()
        super()._meanwhile()

    def _ack(self) -> None:
        """Handle some messages of the ack queue; those that fail, and some that do not, stay."""
        queue = self.app.acks.bodies
        taken = [queue.pop(self.rng.randrange(len(queue))) for _ in range(min(3, len(queue)))]
        items = [item for body in taken for item in parse(body)]

        def work() -> None:
            known, _ = self.app.keeper.settlement.split_known(items)
            self.app.batches.ack(known)

        done = not taken or self.invoke(work)
        if not done or self.strikes(self.chaos.repeats + self.chaos.twice):
            queue += taken

    def _cascade(self) -> None:
        """Handle some of the batches' stream; what fails, and some that does not, comes again."""
        records = self.app.engine.stream(BATCHES).take(self._cascaded)[: self.rng.randint(1, 40)]
        images = [r["dynamodb"]["NewImage"] for r in records if "NewImage" in r["dynamodb"]]
        causes = {cause for cause in map(emptied, images) if cause is not None}
        keys = [*sorted(c for c in causes if isinstance(c, LeafKey))]
        nodes = [*sorted(c for c in causes if isinstance(c, NodeKey))]
        done = not causes or self.invoke(lambda: self.app.keeper.cascade.cascade([*keys, *nodes]))
        if records and done and not (self._storms and self.rng.random() < self.chaos.repeats):
            self._cascaded = records[-1]["dynamodb"]["SequenceNumber"]

    def _redrive(self, topic: str | None = None) -> None:
        """Redrive some dead letters; the operator's process may be killed."""
        topic = topic or self.rng.choice(self.redriven)
        limit = self.rng.choice([None, 1, 5])
        self.invoke(lambda: self.app.outbox.redrive(topic, limit=limit))

    def heal(self) -> None:
        """In a calm world: seal what is open, and redrive everything a few times."""
        for tracked in self.tracked:
            if not tracked.sealed:
                self._seal(tracked)
        for _ in range(3):
            for topic in BATCH_TOPICS:
                self.app.outbox.redrive(topic)
            self.calm()

    def _drained(self) -> bool:
        idle = not self.app.acks.bodies and not self.app.engine.stream(BATCHES).take(self._cascaded)
        return idle and super()._drained()

    def _drain(self) -> None:
        super()._drain()
        while self.app.acks.bodies or self.app.engine.stream(BATCHES).take(self._cascaded):
            self._ack()
            self._cascade()
        super()._drain()
