"""Cost of sending, receiving and acknowledging beside source 001's pattern: counted, not timed.

Both run the same steps with the same bodies on one meter over the in-memory engine. Source 001's
are run on DynamoDB Local as well, and the two must agree.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Queue, Topic
from fairbox.dynamodb.definitions import table_definitions
from fairbox.testing import CostMeter, ManualClock, MemoryDynamoDB

from benchmarks import baseline_001
from benchmarks.accounts import Accounts
from benchmarks.agreement import client_of
from benchmarks.figures import Figure
from local.engines.servers import DynamoDbLocal

if TYPE_CHECKING:
    from collections.abc import Callable

BODY_BYTES: Final = 700
STEPS: Final = ("send", "receive", "ack")
_OUTBOX: Final = "outbox"
_DELIVERIES: Final = "deliveries"
_TOPIC: Final = "jobs"
_BACKLOG: Final = 400  # more than a page of source 001's, to the last receive
_AT_ONCE: Final = 10


@dataclass(frozen=True, slots=True)
class Step:
    """Cost of one message in one step: request units and calls."""

    wru: float
    rru: float
    calls: float


def figures() -> tuple[list[Figure], list[str]]:
    """Return each step's cost, and the differences between meter and engine."""
    ours, seed = fairbox_steps(), seed_steps(MemoryDynamoDB(ManualClock()))
    found = [
        Figure(
            f"queue.step.{step}.{unit.lower()}",
            f"{unit}/message",
            getattr(ours[step], unit.lower()),
            getattr(seed[step], unit.lower()),
            baseline_001.NAME,
        )
        for step in STEPS
        for unit in ("WRU", "RRU", "calls")
    ]
    return found, _differences(seed)


def _differences(computed: dict[str, Step]) -> list[str]:
    engine = DynamoDbLocal().start()
    try:
        reported = seed_steps(client_of(engine.endpoint))
    finally:
        engine.stop()
    return [
        f"source 001's {step}: {computed[step]} computed, {reported[step]} reported"
        for step in STEPS
        if computed[step] != reported[step]
    ]


def fairbox_steps(*, messages: int = 100) -> dict[str, Step]:
    """Return the cost of Fairbox's steps, ten messages a call, on one shard with a backlog."""
    clock, rng = ManualClock(), random.Random(1)
    engine = MemoryDynamoDB(clock)
    for definition in table_definitions(outbox=_OUTBOX, deliveries=_DELIVERIES):
        engine.create_table(**definition)
    meter = CostMeter(engine)
    queue = Queue(meter, table=_OUTBOX, deliveries_table=_DELIVERIES, clock=clock, rng=rng)
    queue.outbox.create_topic(Topic(_TOPIC, shards=1))
    queue.topic(_TOPIC)  # known from now on
    accounts = Accounts(meter)
    for _ in range(_BACKLOG // _AT_ONCE):
        some = [Message(topic=_TOPIC, body=rng.randbytes(BODY_BYTES)) for _ in range(_AT_ONCE)]
        accounts.charge("send", partial(queue.send_many, some))
    clock.advance(1)  # no id is young any more
    for _ in range(messages // _AT_ONCE):
        received = accounts.charge("receive", partial(queue.receive, _TOPIC, _AT_ONCE))
        accounts.charge("ack", partial(queue.ack, [r.receipt for r in received]))
    return _steps(accounts, {"send": _BACKLOG, "receive": messages, "ack": messages})


def seed_steps(client: Any, *, messages: int = 100) -> dict[str, Step]:
    """Return the cost of the steps of source 001's pattern, on an engine without its table."""
    clock, rng = ManualClock(), random.Random(1)
    client.create_table(**baseline_001.definition())
    meter = CostMeter(client)
    queue = baseline_001.SeedQueue(meter, clock=clock)
    accounts = Accounts(meter)
    for number in range(_BACKLOG):
        message_id = f"{number:08d}-0000-4000-8000-000000000000"
        body = rng.randbytes(BODY_BYTES)
        accounts.charge("send", partial(queue.send, message_id, body))
        clock.advance(0.001)
    for _ in range(messages):
        accounts.charge("ack", partial(queue.delete, _received(accounts, queue.receive)))
    return _steps(accounts, {"send": _BACKLOG, "receive": messages, "ack": messages})


def _received(accounts: Accounts, receive: Callable[[], baseline_001.SeedMessage | None]) -> str:
    message = accounts.charge("receive", receive)
    if message is None:
        raise RuntimeError("a queue with messages gave none")
    return message.id


def _steps(accounts: Accounts, counts: dict[str, int]) -> dict[str, Step]:
    return {
        step: Step(
            accounts.wru(step) / count, accounts.rru(step) / count, accounts.calls(step) / count
        )
        for step, count in counts.items()
    }
