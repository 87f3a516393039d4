"""Cost of messages: request units and calls of real code, exact, on a manual clock.

The units come from the cost meter over the in-memory engine; `agreement` compares that meter
with DynamoDB Local.
"""

from __future__ import annotations

import random
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Final

from fairbox.tables.shard_rows import ShardRow, shard_item
from fairbox.testing import CostMeter, ManualClock, MemoryDynamoDB
from fairbox.testing.application import OUTBOX

from benchmarks import four_index_pattern
from benchmarks.accounts import Accounts
from benchmarks.deployment import (
    DESTINATION,
    ORDERS,
    RELAY_BATCH,
    TOPIC,
    Deployment,
    Load,
)
from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOW: Final = 10  # messages a second
FAST: Final = 100
ORDERED_SEEDS: Final = 4
_SEED_MESSAGES: Final = 200
_SEED_SHARDS: Final = 8
_DELIVERY: Final = ("relay", "visit", "mark")


def figures(
    *,
    slow: int = 120,
    fast: int = 40,
    burst: int = 10,
    idle_topics: int = 1000,
    idle_shards: int = 20,
) -> list[Figure]:
    """Return the figures of cost.

    Args:
        slow: seconds of a load of 10 messages a second: whole windows of marking, because
            recording a partial window costs as much as a whole one.
        fast: the same for 100 messages a second.
        burst: number of full batches of 100 that the relay gets.
        idle_topics: topics of the deployment whose idle sweep is measured.
        idle_shards: shards of each of these topics.
    """
    seed = _seed_costs()
    found: list[Figure] = []
    for way in ("plain", "transactional"):
        for rate, seconds in ((SLOW, slow), (FAST, fast)):
            load = Load(rate=rate, seconds=seconds, transactional=way == "transactional")
            deployment = Deployment()
            count = deployment.run(load)
            found += _of_load(deployment, count, way, rate, seed[way])
    found += _ordered(fast, slow)
    return [*found, *_relay(), *_calls(burst, seed["calls"]), _idle(idle_topics, idle_shards)]


def _ordered(fast: int, slow: int) -> list[Figure]:
    """Return the cost of reading ordered lanes over several seeds, because a visit's finds vary."""
    found: list[Figure] = []
    for rate, seconds in ((FAST, fast), (SLOW, slow)):
        lanes, all_reads = [], []
        for seed in range(ORDERED_SEEDS):
            deployment = Deployment(rng=random.Random(seed))
            count = deployment.run(Load(rate=rate, seconds=seconds, ordered=True))
            lanes.append(deployment.accounts.rru("visit", operation="query") / count)
            all_reads.append(_delivery_rru(deployment.accounts) / count)
        name, at = "cost.rru_per_message.ordered", _at(rate, FAST)
        found += [
            Figure(f"{name}{at}", "RRU", fmean(lanes)),
            Figure(f"{name}.worst_seed{at}", "RRU", max(lanes)),
            Figure(f"{name}_in_all{at}", "RRU", fmean(all_reads)),
        ]
    return found


def _at(rate: int, fixed: int) -> str:
    """Return the suffix of a figure's name: its rate, unless it is the fixed one."""
    return "" if rate == fixed else f".at_{rate}_per_second"


def _of_load(
    deployment: Deployment, count: int, way: str, rate: int, seed: float
) -> Sequence[Figure]:
    accounts = deployment.accounts
    business = accounts.wru(table=ORDERS)
    wru = (accounts.wru("producer", *_DELIVERY) - business) / count
    name = f"cost.wru_per_message.{way}{_at(rate, SLOW)}"
    found = [Figure(name, "WRU", wru, seed, four_index_pattern.NAME)]
    if way == "plain":
        at = f"at_{rate}_per_second"
        found += [
            Figure(f"cost.wru_per_message.recording.{at}", "WRU", accounts.wru("mark") / count),
            Figure(f"cost.rru_per_message.recording.{at}", "RRU", accounts.rru("mark") / count),
            Figure(f"cost.rru_per_message.relay_in_all.{at}", "RRU", accounts.rru("relay") / count),
        ]
    return found


def _delivery_rru(accounts: Accounts) -> float:
    return accounts.rru("relay", "visit")


def _relay() -> list[Figure]:
    """Return the reads of an invocation, and the reads that one more message adds."""
    reads = []
    for size in (1, RELAY_BATCH):
        deployment = Deployment()
        deployment.open_topic(Load(rate=1, seconds=1))
        deployment.burst(1, size)  # loads the topic
        warm = deployment.accounts.rru("relay")
        deployment.burst(1, size)
        reads.append(deployment.accounts.rru("relay") - warm)
    return [
        Figure("cost.rru_per_message.unordered", "RRU", (reads[1] - reads[0]) / (RELAY_BATCH - 1)),
        Figure("cost.rru_per_invocation.relay", "RRU", reads[0]),
    ]


def _calls(burst: int, seed: float) -> list[Figure]:
    deployment = Deployment()
    deployment.open_topic(Load(rate=1, seconds=1))
    count = deployment.burst(burst)
    calls = deployment.accounts.calls(*_DELIVERY)
    sends = deployment.app.destinations[DESTINATION].calls
    return [
        Figure("cost.calls_per_message", "calls", calls / count, seed, four_index_pattern.NAME),
        Figure("cost.sends_per_message", "calls", sends / count, 1.0, four_index_pattern.NAME),
        Figure(
            "cost.adding_calls_per_message",
            "calls",
            deployment.accounts.calls("producer", operation="batch_execute_statement") / count,
            1.0,
            four_index_pattern.NAME,
        ),
    ]


def _idle(topics: int, shards: int) -> Figure:
    """Sweep a deployment whose shards were all busy and are now empty."""
    deployment = Deployment()
    for topic in range(topics):
        for shard in range(shards):
            row = ShardRow(f"topic-{topic}", 0, shard, ready_sequence=f"{shard + 1:040d}")
            deployment.app.engine.put_item(TableName=OUTBOX, Item=shard_item(row))
    deployment.sweep()
    return Figure(
        "cost.idle_sweep_rru",
        "RRU",
        deployment.accounts.rru("sweep"),
        topics * shards * 0.5,  # an empty query of each shard of the index `Outstanding`
        f"{four_index_pattern.NAME}, computed",
    )


def _seed_costs() -> dict[str, float]:
    """Return the cost per message of the four-index pattern, with the same body and meter."""
    plain, transactional = (_seed_accounts(transactional=way) for way in (False, True))
    return {
        "plain": plain.wru() / _SEED_MESSAGES,
        "transactional": transactional.wru() / _SEED_MESSAGES,
        "calls": plain.calls("dispatcher") / _SEED_MESSAGES,
    }


def _seed_accounts(*, transactional: bool) -> Accounts:
    clock = ManualClock()
    engine = MemoryDynamoDB(clock)
    engine.create_table(**four_index_pattern.definition())
    meter = CostMeter(engine)
    accounts = Accounts(meter)
    outbox = four_index_pattern.SeedOutbox(meter, shards=_SEED_SHARDS, clock=clock)
    messages = Deployment(rng=random.Random(1), clock=clock)
    for _ in range(_SEED_MESSAGES):
        message = messages.message(Load(rate=1, seconds=1))
        add = partial(outbox.transact, []) if transactional else outbox.add
        accounts.charge("producer", partial(add, message))
        clock.advance(0.01)
    accounts.charge("dispatcher", partial(_dispatch_all, outbox))
    return accounts


def _dispatch_all(outbox: four_index_pattern.SeedOutbox) -> None:
    taken: list[bytes] = []
    for shard in range(_SEED_SHARDS):
        while ids := list(outbox.outstanding(TOPIC, shard)):
            for message_id in ids:
                outbox.dispatch(message_id, taken.append)
