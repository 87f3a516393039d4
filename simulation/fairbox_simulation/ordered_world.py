"""A small world of one ordered topic: many messages, everything that may come between them.

Lighter than `World`, so that many messages can be simulated: no marking, and instead of the sweep
a look at each shard every minute. After every visit the claim of the shard row is checked against
the lane.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairbox import FairboxError, Message, MessagesNotWritten, RetryPolicy, Subscription, Topic
from fairbox.aws.sqs_queues import decode
from fairbox.dispatch.dispatcher import Dispatcher, run_sequentially
from fairbox.dispatch.ordered.visit import YOUNG_MS
from fairbox.dispatch.ports import TAKEN, Doorbell, Outcome
from fairbox.dispatch.visits import Visits
from fairbox.model.ids import IdGenerator, time_of
from fairbox.tables.deferred_keys import EVERY_KEY, audience_of, name_digest, read_deferred
from fairbox.tables.keys import lane_pk, shard_key
from fairbox.tables.stored_messages import key_digest, read_message
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication
from fairbox.testing.doorbell_queues import NOW
from fairbox.testing.memory_sqs import SqsFaults

from fairbox_simulation.chaos import FREEZES, Chaos, Client, Fuse, Killed, Skewed
from fairbox_simulation.doorbell_function import DeliverShard, FusedSqs, queue_faults

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairbox.model.messages import MessageRef
    from fairbox.model.topics import OnDead
    from fairbox.tables.deferred_keys import DeferredKeys
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables
    from fairbox.testing.memory_sqs import SqsTrigger

TOPIC = "ordered"
NAMES = ("first", "second")
SHARDS = 2
KEYS = 12
PROCESSES = 3
_SECONDS = 15  # after which a visit begins no call to a destination


@dataclass
class Late:
    """A message that is made now and committed later."""

    message: Message
    at: float


@dataclass
class OrderedWorld:
    """One run; all chance comes from the seed."""

    seed: int
    chaos: Chaos
    on_dead: OnDead = "skip"
    poison: float = 0.002
    breaches: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._fuse = Fuse()
        self._fuse.freeze = self._frozen
        self._stormy = True
        self.freezes = 0
        self._nested = False
        self.app = MemoryApplication(
            rng=random.Random(self.seed + 1),
            wrap=lambda engine: Client(engine, self.rng, self.chaos, self._fuse),
        )
        self._client: Client = self.app.client
        self._client.stormy = False
        self.app.outbox.create_topic(
            Topic(
                TOPIC,
                shards=SHARDS,
                ordering="key",
                on_dead=self.on_dead,
                retry=RetryPolicy(max_attempts=4, cap=20),
            )
        )
        self.app.outbox.add_subscriptions(
            [Subscription(TOPIC, n, f"sqs:http://q/{n}") for n in NAMES]
        )
        self._state = self.app.outbox.topic(TOPIC)
        self._ids = [IdGenerator(self._clock(), self.app.rng.getrandbits) for _ in range(PROCESSES)]
        self._client.stormy = True
        for name in NAMES:
            self.app.destinations[f"sqs:http://q/{name}"].answer = self._answer
        queues = self.app.doorbells
        queues.sqs.rng, queues.sqs.faults = self.rng, queue_faults(self.chaos)
        self._deliver_shard = [self._function() for _ in range(2)]
        self._checked: dict[int, int] = {}  # shard -> version of the row that was checked last
        self._down: set[str] = set()
        self._late: list[Late] = []
        self.out_of_turn: set[str] = set()  # ids that no order is guaranteed for
        self.very_late: set[str] = set()  # committed when visits may have begun behind them
        self.published: dict[str, MessageRef] = {}
        self._looked = self.app.clock.now()

    def _clock(self) -> Skewed:
        """Return the clock of another process."""
        return Skewed(self.app.clock, self.rng.uniform(-1, 1) * self.chaos.skew)

    def _function(self) -> DeliverShard:
        clock = self._clock()
        doorbells = self.app.doorbells.of(
            clock, lambda sqs: FusedSqs(sqs, self._fuse, self.chaos, self._strikes)
        )
        dispatcher = Dispatcher(
            self._tables(clock),
            self.app.destinations,
            doorbells,
            clock=clock,
            rng=self.app.rng,
            fan_out=run_sequentially,
        )
        return DeliverShard(Visits(dispatcher), doorbells, clock, _SECONDS)

    def _tables(self, clock: Skewed) -> Tables:
        """Return tables before whose shard row a worker may stall, while others go on."""
        tables = self.app.tables_of(clock)
        write = tables.deferred_keys.write

        def late(
            shard: tuple[str, int, int], deferred: DeferredKeys, version: int
        ) -> DeferredKeys | None:
            if self._stormy and not self._nested and self.rng.random() < self.chaos.interleaved:
                for _ in range(3):
                    self.app.clock.advance(self.rng.choice([0.1, 1, 3]))
                    self._meanwhile()
            return write(shard, deferred, version)

        tables.deferred_keys.write = late  # type: ignore[method-assign]
        return tables

    def _answer(self, message: StoredMessage) -> Outcome:
        self._fuse.burn()
        if message.message.body == b"poison":
            return Outcome("refused", "it cannot be digested")
        if not self._stormy:
            return TAKEN
        chaos, drawn = self.chaos, self.rng.random()
        if drawn < chaos.interleaved and not self._nested:
            self._meanwhile()
        if message.message.partition_key in self._down:
            return Outcome("refused", "not this key now")
        drawn = self.rng.random()
        if drawn < chaos.refused:
            return Outcome("refused", "not now")
        if drawn < chaos.refused + chaos.throttled:
            return Outcome("throttled", "slower")
        return TAKEN

    def _meanwhile(self) -> None:
        """Let others act in the middle of a visit: a second visit of the same shard too."""
        self._nested = True
        with self._fuse.spared():
            self._publish()
            self._commit_late()
            self._relay()
            for _ in range(self.rng.randint(1, 3)):
                self._visit(exclusive=False)
        self._nested = False

    def _frozen(self) -> None:
        """Let others act, for as long as a visit stands still, and lose its shard to them."""
        self.freezes += 1
        seconds = self.rng.choice(FREEZES)
        for _ in range(3):
            self.app.clock.advance(seconds / 3)
            self._look()
            self._meanwhile()

    def _publish(self) -> int:
        many = [self._message() for _ in range(self.rng.randint(1, 25))]
        if self.rng.random() < 0.1:
            at = self.app.clock.now() + self.rng.choice([0.3, 0.8, 1.5, 3, 10])
            late = [many.pop() for _ in range(min(len(many), self.rng.randint(1, 6)))]
            self.out_of_turn |= {m.id for m in late}
            self._late += [Late(m, at) for m in late]
        # one call a key and round: a part that was not written must not come behind its followers
        rounds: list[dict[str, Message]] = []
        for message in many:
            key = str(message.partition_key)
            places = [r for r in rounds if key in r]
            at = rounds.index(places[-1]) + 1 if places else 0
            if at == len(rounds):
                rounds.append({})
            rounds[at][key] = message
        for part in rounds:
            self._write(list(part.values()))
        return len(many)

    def _message(self) -> Message:
        body = b"poison" if self.rng.random() < self.poison else b"x"
        number = min(self.rng.randrange(KEYS), self.rng.randrange(KEYS))
        made = self._ids[number % PROCESSES].next()  # a key is one producer's alone
        return Message(topic=TOPIC, body=body, partition_key=f"key-{number}", id=made)

    def _write(self, messages: list[Message]) -> None:
        while messages:
            try:
                self._written(self.app.outbox.add_many(messages))
            except MessagesNotWritten as error:
                missing = {ref.id for ref in error.missing}
                self._written(self._state.ref(m) for m in messages if m.id not in missing)
                messages = [m for m in messages if m.id in missing]
            except FairboxError:
                self.app.clock.advance(0.1)
            else:
                return

    def _written(self, refs: Iterable[MessageRef]) -> None:
        skew = 2000 * self.chaos.skew  # between the producer's clock and a visit's
        young = self.app.clock.now() * 1000 - YOUNG_MS + skew
        for ref in refs:
            self.published[ref.id] = ref
            if time_of(ref.id) <= young:
                self.very_late.add(ref.id)

    def _commit_late(self) -> None:
        now = self.app.clock.now()
        due = [late for late in self._late if late.at <= now]
        self._late = [late for late in self._late if late.at > now]
        for late in due:
            self._write([late.message])

    def _relay(self) -> None:
        with self._fuse.spared(), suppress(FairboxError):
            self.app.relay()

    def _visit(self, *, exclusive: bool = True) -> bool:
        """Answer a doorbell; return whether there was one.

        Args:
            exclusive: False: the visibility of what is in flight ends before.
        """
        queues = self.app.doorbells
        if not exclusive:
            self._end_visibility()
        while self._invoke(queues.forwards):
            pass
        return self._invoke(queues.visits)

    def _strikes(self, share: float) -> bool:
        return self._stormy and share > 0 and self.rng.random() < share

    def _invoke(self, trigger: SqsTrigger) -> bool:
        if not (records := trigger.receive()):
            return False
        outer = self._fuse.left, self._fuse.frost
        kill = self._strikes(self.chaos.kills)
        freeze = not self._nested and self._strikes(self.chaos.frozen)
        self._fuse.left = self.rng.randrange(30) if kill else None
        self._fuse.frost = self.rng.randrange(30) if freeze else None
        try:
            answer = self.rng.choice(self._deliver_shard)(records)
            if self._strikes(self.chaos.twice):
                self._end_visibility()
            else:
                trigger.settle(records, answer)
                if answer["batchItemFailures"]:
                    self._end_visibility()
        except Killed:
            self._end_visibility()
        finally:
            self._fuse.left, self._fuse.frost = outer
            for record in records:
                self._check_claim(decode(record["body"]).shard)
        return True

    def _end_visibility(self) -> None:
        """Let the queue give again what is in flight: a storm is too short to wait for that."""
        for message in self.app.doorbells.sqs.queues[NOW].messages.values():
            message.visible_at = min(message.visible_at, self.app.clock.now())

    def _check_claim(self, shard: int) -> None:
        """Check that each message before the row's start is held, or its doorbell is on the way."""
        if self._nested:
            return  # the visit around this one has not written yet what it holds
        answer = self.app.engine.get_item(TableName=OUTBOX, Key=shard_key(TOPIC, 0, shard))
        holds = read_deferred(answer.get("Item", {}))
        if self._checked.get(shard) == holds.version and self.rng.random() < 0.8:
            return
        self._checked[shard] = holds.version
        if holds.start and holds.audience == audience_of(NAMES):
            on_the_way = self._on_the_way()
            for stored in self._lying(shard, holds.start):
                if stored.gone is None and not self._unseen(stored, on_the_way):
                    self._check_held(stored, holds)

    def _unseen(self, stored: StoredMessage, on_the_way: set[str]) -> bool:
        """Whether no visit need have found a message yet; whoever tried it must have held it."""
        if stored.ref.id in on_the_way:
            return True
        tried = stored.states and not (self.chaos.tables or self.chaos.kills)
        return stored.ref.id in self.very_late and not tried

    def _on_the_way(self) -> set[str]:
        doorbells = [*self.app.doorbells.now, *self.app.doorbells.later]
        rung = {ref.id for d in doorbells for ref in d.refs}
        unread = self.app.records(self.app._relayed)
        inserted = {r["dynamodb"]["Keys"]["sk"]["S"] for r in unread if r["eventName"] == "INSERT"}
        return rung | inserted

    def _lying(self, shard: int, upto: str = "~") -> Iterator[StoredMessage]:
        request: dict[str, Any] = {
            "TableName": OUTBOX,
            "KeyConditionExpression": "pk = :pk AND sk BETWEEN :low AND :high",
            "ExpressionAttributeValues": {
                ":pk": {"S": lane_pk("ready", TOPIC, 0, shard)},
                ":low": {"S": "0"},
                ":high": {"S": upto},
            },
            "Limit": 50,
        }
        while True:
            answer = self.app.engine.query(**request)
            yield from map(read_message, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def _check_held(self, stored: StoredMessage, holds: DeferredKeys) -> None:
        for name in stored.lacking(frozenset(NAMES)):
            place = (name_digest(name), key_digest(stored))
            covered = any(
                e.subscription == place[0] and e.key in (place[1], EVERY_KEY)
                and e.id <= stored.ref.id
                for e in holds.entries
            )  # fmt: skip
            if not covered:
                self.breaches.append(f"passed by: {stored.ref.id} for {name}")

    def _look(self) -> None:
        """Ring for every shard that has something, as the sweep does each minute."""
        if self.app.clock.now() - self._looked >= 60:
            self._looked = self.app.clock.now()
            self.app.doorbells.ring([Doorbell(TOPIC, 0, n) for n in range(SHARDS)])

    def _redrive(self) -> None:
        with suppress(FairboxError):
            found = self.app.outbox.redrive(TOPIC, limit=self.rng.randint(1, 3))
            self.very_late |= {ref.id for ref in found.refs}
            if self.on_dead == "skip":
                self.out_of_turn |= {ref.id for ref in found.refs}

    def storm(self, messages: int) -> None:
        """Publish so many messages while things go wrong."""
        done = 0
        while done < messages:
            drawn = self.rng.random()
            if drawn < 0.35:
                done += self._publish()
            elif drawn < 0.6:
                self._relay()
            elif drawn < 0.85:
                for _ in range(self.rng.randint(1, 4)):
                    self._visit()
            elif drawn < 0.86:
                self._redrive()
            elif drawn < 0.87:
                self._down ^= {f"key-{self.rng.randrange(KEYS)}"}
            else:
                self.app.clock.advance(self.rng.choice([0.1, 0.3, 1, 4]))
            self._commit_late()
            self._look()

    def calm(self, hours: float = 2) -> None:
        """Stop all faults and let time pass until nothing lies there but what the dead hold."""
        self._stormy = self._client.stormy = False
        self.app.doorbells.sqs.faults = SqsFaults()
        end = self.app.clock.now() + hours * 3600
        while self.app.clock.now() < end and any(
            True for n in range(SHARDS) for _ in self._lying(n)
        ):
            self._commit_late()
            self._relay()
            while self._visit():
                pass
            self.app.clock.advance(5)
            self._look()
            if self.on_dead == "block":
                self._redrive_cured()

    def _redrive_cured(self) -> None:
        """Redrive what blocks, as a message that can be digested now."""
        for name in NAMES:
            self.app.destinations[f"sqs:http://q/{name}"].answer = lambda _: TAKEN
        self._redrive()

    def check(self) -> list[str]:
        """Return every breach of a guarantee."""
        dead = {
            (stored.ref.id, name)
            for item in self.app.engine.items(DELIVERIES)
            if item["pk"]["S"].startswith("dead#")
            for stored in [read_message(item)]
            for name in stored.pending or ()
        }
        found = list(self.breaches)
        for name in NAMES:
            received = self.app.destinations[f"sqs:http://q/{name}"].received
            times = Counter(m.ref.id for m in received)
            found += [
                f"lost: {i} for {name}"
                for i in self.published
                if not times[i] and (i, name) not in dead
            ]
            found += self._order(name, received)
            if not (self.chaos.tables or self.chaos.kills or self.chaos.interleaved):
                found += [f"duplicated: {i} for {name}" for i, n in times.items() if n > 1]
        left = [i for i in self.app.engine.items(OUTBOX) if "z" in i]
        if left:
            found.append(f"forgotten: {len(left)} messages")
        return found

    def _order(self, name: str, received: list[StoredMessage]) -> Iterator[str]:
        last: dict[str, str] = defaultdict(str)
        seen: set[str] = set()
        for stored in received:
            key, message_id = str(stored.message.partition_key), stored.ref.id
            if message_id in seen or message_id in self.out_of_turn:
                continue
            seen.add(message_id)
            if message_id < last[key]:
                yield f"out of order: {message_id} of {key} for {name} after {last[key]}"
            last[key] = max(last[key], message_id)


def run_ordered(
    seed: int, chaos: Chaos, messages: int, on_dead: OnDead = "skip", *, poison: float = 0.002
) -> OrderedWorld:
    """Run a world to its end; its breaches are complete."""
    world = OrderedWorld(seed, chaos, on_dead, poison)
    world.storm(messages)
    world.calm()
    world.breaches = world.check()
    return world
