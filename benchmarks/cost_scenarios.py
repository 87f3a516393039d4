"""Cost of a message by kind of topic: request units and calls of real code, from the meter.

Every row of the table in `docs/explanation/costs.md` is one scenario here, run on the deployment of
`benchmarks.deployment`; `scripts/write_costs.py` writes the table.
"""

from __future__ import annotations

import inspect
import random
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fairbox import Outbox, Subscription, Topic
from fairbox.dispatch.ports import TAKEN, Limits, Outcome
from fairbox.tables.keys import HEAD, PK, SK
from fairbox.testing.application import OUTBOX, MemoryDestination

from benchmarks.deployment import ORDERS, TOPIC, Deployment, Load
from benchmarks.figures import Figure
from benchmarks.topics import TopicsDeployment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.tables.stored_messages import StoredMessage

RATE: Final = 100
SECONDS: Final = 20  # a whole window of marking: a part of one costs as much
FUNCTIONS: Final = ("producer", "relay", "visit", "mark", "sweep")
_LONGEST_SECONDS: Final = 3600.0
_SWEEP_SECONDS: Final = 60.0
_IDLE_SECONDS: Final = 0.45
_MIB: Final = 1024 * 1024
_REFUSED: Final = Outcome("refused", "HTTP 400", fault="message")  # which opens no circuit


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A kind of topic, and of its use.

    Attributes:
        name: as figures have it.
        title: as the table has it.
        queues, webhooks: subscriptions of each kind.
        rate: messages a second.
        seconds: for which messages are published.
        transactional: whether each is written in a transaction, with a business row.
        bulk: arguments of `add_many`, which publishes 25 a call; None: `add` does.
        refusals: attempts of each message that its destination refuses before it takes it.
        slow: seconds in which the first webhook answers.
        topic, subscription, message: more fields of these.
        topics: number of topics, each message's chosen at random.
    """

    name: str
    title: str
    queues: int = 0
    webhooks: int = 0
    rate: float = RATE
    seconds: int = SECONDS
    transactional: bool = False
    bulk: dict[str, Any] | None = None
    refusals: int = 0
    slow: float = 0.0
    topic: dict[str, Any] = field(default_factory=dict)
    subscription: dict[str, Any] = field(default_factory=dict)
    message: Callable[[int], dict[str, Any]] = lambda _: {}
    topics: int = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one message of a scenario: units and calls of the database, calls to destinations."""

    wru: float
    rru: float
    calls: float
    sends: float


def _scenarios() -> list[Scenario]:
    found = [
        Scenario(name="queue", title="a queue", queues=1),
        Scenario(
            name="transaction", title="a queue, in a transaction", queues=1, transactional=True
        ),
        Scenario(name="add_many", title="a queue, `add_many`", queues=1, bulk={}),
        Scenario(
            name="ordered", title="a queue, ordered topic", queues=1, topic={"ordering": "key"}
        ),
        Scenario(
            name="dedup", title="a queue, with a deduplication key", queues=1,
            topic={"dedup_window": 3600}, message=lambda n: {"dedup_key": f"invoice-{n}"},
        ),
        Scenario(name="queues", title="five queues", queues=5),
        Scenario(name="topics", title="1,000 topics of a queue each", topics=1000),
        Scenario(name="webhook", title="a webhook or function", webhooks=1),
        Scenario(name="mixed", title="a queue and a webhook", queues=1, webhooks=1),
        Scenario(name="webhooks", title="five webhooks", webhooks=5),
        Scenario(
            name="rare", title="two webhooks, a message in 4 s", webhooks=2, rate=0.25, seconds=400
        ),
        Scenario(
            name="slow_sibling", title="the same, one webhook answers in 2 s", webhooks=2,
            rate=0.25, seconds=400, slow=2.0,
        ),
        Scenario(
            name="refused_once", title="a queue, each message refused once", queues=1, refusals=1
        ),
        Scenario(
            name="webhook_refused_once", title="a webhook, each message refused once",
            webhooks=1, refusals=1,
        ),
        Scenario(
            name="webhook_refused_thrice", title="a webhook, each message refused three times",
            webhooks=1, refusals=3,
        ),
        Scenario(
            name="rate", title="a webhook, `rate=50`: half of the messages wait", webhooks=1,
            subscription={"rate": 50},
        ),
        Scenario(
            name="delayed", title="a queue, `delay` of 5 minutes", queues=1,
            message=lambda _: {"delay": 300},
        ),
        Scenario(
            name="delayed_long", title="a queue, `delay` of 20 minutes", queues=1,
            message=lambda _: {"delay": 1200},
        ),
    ]  # fmt: skip
    if "new" in inspect.signature(Outbox.add_many).parameters:
        found.insert(
            3,
            replace(
                found[2],
                name="add_many_new",
                title="a queue, `add_many(new=True)`",
                bulk={"new": True},
            ),
        )
    return found


SCENARIOS: Final = tuple(_scenarios())


class ScenarioDeployment(Deployment):
    """The deployment with a topic as a scenario has it; sweeps run each minute.

    Args:
        scenario: the topic, and what is published.
    """

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(rng=random.Random(1))
        self._scenario = scenario
        self._next_sweep = self.app.clock.now() + _SWEEP_SECONDS
        self._tries: dict[tuple[str, str], int] = {}
        self._addresses = [
            *(f"sqs:http://q/queue-{n}" for n in range(scenario.queues)),
            *(f"https://hook-{n}.example" for n in range(scenario.webhooks)),
        ]
        self._published = 0

    def open_topic(self, load: Load) -> None:  # noqa: ARG002 - the scenario says all
        """Create the topic and its subscriptions; every process reads them at its start."""
        scenario = self._scenario
        app = self.app
        app.outbox.create_topic(Topic(TOPIC, **{"shards": 8, **scenario.topic}))
        for address in self._addresses:
            hook = address.startswith("https:")
            limits = Limits(1 if hook else 10, _MIB)
            destination = MemoryDestination(limits=limits, quick=not hook)
            destination.answer = partial(self._answer, address)
            app.destinations.put(address, destination)
            name = "".join(filter(str.isalnum, address))
            app.outbox.add_subscription(Subscription(TOPIC, name, address, **scenario.subscription))
        self.read_topics([TOPIC])

    def _answer(self, address: str, stored: StoredMessage) -> Outcome:
        if self._scenario.slow and address == self._addresses[0]:
            self.app.clock.advance(self._scenario.slow)
        tries = self._tries[address, stored.ref.id] = (
            self._tries.get((address, stored.ref.id), 0) + 1
        )
        return _REFUSED if tries <= self._scenario.refusals else TAKEN

    def run(self, load: Load) -> int:
        """Run the load until nothing is outstanding and all is marked; return how many came."""
        self.open_topic(load)
        scenario, start = self._scenario, self.app.clock.now()
        total = round(scenario.rate * scenario.seconds)
        each = 1 if scenario.bulk is None else 25
        times = sorted(
            start + self.app.rng.random() * scenario.seconds for _ in range(total // each)
        )
        waiting = deque(times)
        while waiting:
            while waiting and waiting[0] <= self.app.clock.now():
                waiting.popleft()
                self._publish(each)
            self._step()
        end = self.app.clock.now() + _LONGEST_SECONDS
        while self._busy and self.app.clock.now() < end:
            for _ in range(20):
                if not any(shard.to_relay or shard.to_mark for shard in self._shards):
                    self.app.clock.advance(_IDLE_SECONDS)  # nothing but time passes
                self._step()
        return self._published

    @property
    def _busy(self) -> bool:
        """Whether a message is outstanding or a record unread."""
        if any(shard.to_relay or shard.to_mark for shard in self._shards):
            return True
        lanes = ("ready#", "later#")
        items = self.app.engine.items(OUTBOX)
        return any(i[PK]["S"].startswith(lanes) and i[SK]["S"] != HEAD for i in items)

    def _publish(self, count: int) -> None:
        made = [
            replace(
                self.message(Load(rate=1, seconds=1)), **self._scenario.message(self._published + n)
            )
            for n in range(count)
        ]
        self._published += count
        outbox = self.app.outbox
        if self._scenario.bulk is not None:
            add: Callable[[], object] = partial(outbox.add_many, made, **self._scenario.bulk)
        elif self._scenario.transactional:
            put = {"Put": {"TableName": ORDERS, "Item": {"id": {"S": made[0].id}}}}
            add = partial(outbox.transact, [put], *made)
        else:
            add = partial(outbox.add, made[0])
        self.accounts.charge("producer", add)

    def _step(self) -> None:
        super()._step()
        self.accounts.charge("visit", self.app.visit)  # doorbells that have waited
        if self.app.clock.now() >= self._next_sweep:
            self._next_sweep += _SWEEP_SECONDS
            self.accounts.charge("sweep", self.app.sweep)

    @property
    def sends(self) -> int:
        """Calls to destinations."""
        return sum(self.app.destinations[address].calls for address in self._addresses)


def measure(scenario: Scenario) -> Cost:
    """Return the cost of a message of a scenario."""
    if scenario.topics > 1:
        many = TopicsDeployment(scenario.topics)
        count = many.run(Load(rate=round(scenario.rate), seconds=scenario.seconds))
        deployment: Deployment = many
        sends = sum(many.app.destinations[f"sqs:{name}"].calls for name in many.names)
    else:
        deployment = one = ScenarioDeployment(scenario)
        count = one.run(Load(rate=1, seconds=1))
        sends = one.sends
    accounts = deployment.accounts
    wru = accounts.wru(*FUNCTIONS) - accounts.wru(table=ORDERS)
    return Cost(
        wru / count,
        accounts.rru(*FUNCTIONS) / count,
        accounts.calls(*FUNCTIONS) / count,
        sends / count,
    )


def figures(scenarios: Sequence[Scenario] = SCENARIOS) -> list[Figure]:
    """Return the cost of a message of each scenario."""
    found: list[Figure] = []
    for scenario in scenarios:
        cost = measure(scenario)
        name = f"cost.scenario.{scenario.name}"
        found += [
            Figure(f"{name}.wru_per_message", "WRU", cost.wru),
            Figure(f"{name}.rru_per_message", "RRU", cost.rru),
            Figure(f"{name}.calls_per_message", "calls", cost.calls),
            Figure(f"{name}.sends_per_message", "calls", cost.sends),
        ]
    return found
