"""What messages cost: request units and calls of real code, exact, on a manual clock.

The units come from the cost meter over the in-memory engine; `agreement` holds that meter to
DynamoDB Local.
"""

from __future__ import annotations

import random
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Final

from fairbox.codec.shards import shard_item
from fairbox.model.stored_messages import ShardRow
from fairbox.testing import CostMeter, ManualClock, MemoryDynamoDB
from fairbox.testing.application import OUTBOX

from benchmarks import baseline_000
from benchmarks.accounts import Accounts
from benchmarks.figures import Figure
from benchmarks.simulation import (
    DESTINATION,
    ORDERS,
    RELAY_BATCH,
    TOPIC,
    Load,
    Simulation,
)

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
        slow: seconds that a load of 10 messages a second lasts: whole windows of marking, for
            what a part of one holds is recorded as dearly as a whole one.
        fast: the same of 100 messages a second.
        burst: how many full batches the relay gets where batches of 100 are measured.
        idle_topics: of the deployment whose idle sweep is measured.
        idle_shards: of each of these topics.
    """
    seed = _seed_costs()
    found: list[Figure] = []
    for way in ("plain", "transactional"):
        for rate, seconds in ((SLOW, slow), (FAST, fast)):
            load = Load(rate=rate, seconds=seconds, transactional=way == "transactional")
            simulation = Simulation()
            count = simulation.run(load)
            found += _of_load(simulation, count, way, rate, seed[way])
    found += _ordered(fast, slow)
    return [*found, *_relay(), *_calls(burst, seed["calls"]), _idle(idle_topics, idle_shards)]


def _ordered(fast: int, slow: int) -> list[Figure]:
    """Return what reading ordered lanes costs, over seeds: how much a visit finds is chance."""
    found: list[Figure] = []
    for rate, seconds in ((FAST, fast), (SLOW, slow)):
        lanes, all_reads = [], []
        for seed in range(ORDERED_SEEDS):
            simulation = Simulation(rng=random.Random(seed))
            count = simulation.run(Load(rate=rate, seconds=seconds, ordered=True))
            lanes.append(simulation.accounts.rru("visit", operation="query") / count)
            all_reads.append(_delivery_rru(simulation.accounts) / count)
        name, at = "cost.rru_per_message.ordered", _at(rate, FAST)
        found += [
            Figure(f"{name}{at}", "RRU", fmean(lanes)),
            Figure(f"{name}.worst_seed{at}", "RRU", max(lanes)),
            Figure(f"{name}_in_all{at}", "RRU", fmean(all_reads)),
        ]
    return found


def _at(rate: int, fixed: int) -> str:
    """The figure of fixed name has none; others say their rate."""
    return "" if rate == fixed else f".at_{rate}_per_second"


def _of_load(
    simulation: Simulation, count: int, way: str, rate: int, seed: float
) -> Sequence[Figure]:
    accounts = simulation.accounts
    business = accounts.wru(table=ORDERS)
    wru = (accounts.wru("producer", *_DELIVERY) - business) / count
    name = f"cost.wru_per_message.{way}{_at(rate, SLOW)}"
    found = [Figure(name, "WRU", wru, seed, baseline_000.NAME)]
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
    """What one more message adds to an invocation's reads, and what an invocation reads."""
    reads = []
    for size in (1, RELAY_BATCH):
        simulation = Simulation()
        simulation.open_topic(Load(rate=1, seconds=1))
        simulation.burst(1, size)  # loads the topic
        warm = simulation.accounts.rru("relay")
        simulation.burst(1, size)
        reads.append(simulation.accounts.rru("relay") - warm)
    return [
        Figure("cost.rru_per_message.unordered", "RRU", (reads[1] - reads[0]) / (RELAY_BATCH - 1)),
        Figure("cost.rru_per_invocation.relay", "RRU", reads[0]),
    ]


def _calls(burst: int, seed: float) -> list[Figure]:
    simulation = Simulation()
    simulation.open_topic(Load(rate=1, seconds=1))
    count = simulation.burst(burst)
    calls = simulation.accounts.calls(*_DELIVERY)
    sends = simulation.destinations[DESTINATION].calls
    return [
        Figure("cost.calls_per_message", "calls", calls / count, seed, baseline_000.NAME),
        Figure("cost.sends_per_message", "calls", sends / count, 1.0, baseline_000.NAME),
        Figure(
            "cost.adding_calls_per_message",
            "calls",
            simulation.accounts.calls("producer", operation="batch_write_item") / count,
            1.0,
            baseline_000.NAME,
        ),
    ]


def _idle(topics: int, shards: int) -> Figure:
    """Sweep a deployment whose shards have all been busy and are empty."""
    simulation = Simulation()
    for topic in range(topics):
        for shard in range(shards):
            row = ShardRow(f"topic-{topic}", 0, shard, ready_sequence=f"{shard + 1:040d}")
            simulation.engine.put_item(TableName=OUTBOX, Item=shard_item(row))
    simulation.sweep()
    return Figure(
        "cost.idle_sweep_rru",
        "RRU",
        simulation.accounts.rru("sweep"),
        topics * shards * 0.5,  # an empty query of each shard of the index `Outstanding`
        f"{baseline_000.NAME}, computed",
    )


def _seed_costs() -> dict[str, float]:
    """What source 000's pattern costs a message, of the same body, on the same meter."""
    plain, transactional = (_seed_accounts(transactional=way) for way in (False, True))
    return {
        "plain": plain.wru() / _SEED_MESSAGES,
        "transactional": transactional.wru() / _SEED_MESSAGES,
        "calls": plain.calls("dispatcher") / _SEED_MESSAGES,
    }


def _seed_accounts(*, transactional: bool) -> Accounts:
    clock = ManualClock()
    engine = MemoryDynamoDB(clock)
    engine.create_table(**baseline_000.definition())
    meter = CostMeter(engine)
    accounts = Accounts(meter)
    outbox = baseline_000.SeedOutbox(meter, shards=_SEED_SHARDS, clock=clock)
    messages = Simulation(rng=random.Random(1), clock=clock)
    for _ in range(_SEED_MESSAGES):
        message = messages.message(Load(rate=1, seconds=1))
        add = partial(outbox.transact, []) if transactional else outbox.add
        accounts.charge("producer", partial(add, message))
        clock.advance(0.01)
    accounts.charge("dispatcher", partial(_dispatch_all, outbox))
    return accounts


def _dispatch_all(outbox: baseline_000.SeedOutbox) -> None:
    taken: list[bytes] = []
    for shard in range(_SEED_SHARDS):
        while ids := list(outbox.outstanding(TOPIC, shard)):
            for message_id in ids:
                outbox.dispatch(message_id, taken.append)
