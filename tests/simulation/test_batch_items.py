"""Batches whose items are carried by messages keep their guarantees."""

from __future__ import annotations

import pytest
from fairbox_simulation.batch_item_oracle import BatchItemOracle, run_batch_items
from fairbox_simulation.batch_item_world import BatchItemWorld
from fairbox_simulation.chaos import CALM, Chaos

from tests.support.seeds import seeds

SEEDS = 8
MESSAGES = 60


@pytest.mark.guarantee("announced-once", "batch-figures", "item-of-a-message")
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_every_item_is_settled_once_and_rightly_whatever_fails(seed: int) -> None:
    assert run_batch_items(seed, Chaos(), MESSAGES) == []


@pytest.mark.extended  # more worlds
@pytest.mark.parametrize("seed", seeds(1000, 1003))
def test_destinations_that_refuse_settle_every_item_rightly(seed: int) -> None:
    assert run_batch_items(seed, CALM, MESSAGES) == []


@pytest.mark.extended  # more worlds
@pytest.mark.parametrize("seed", seeds(2000, 2003))
def test_a_storm_settles_every_item_rightly(seed: int) -> None:
    chaos = Chaos(tables=0.15, kills=0.15, repeats=0.3, interleaved=0.2, refused=0.2)
    assert run_batch_items(seed, chaos, MESSAGES) == []


@pytest.mark.extended  # five worlds, only to see that their events happen
def test_the_worlds_have_deaths_redrives_merges_and_late_ends() -> None:
    seen = {"deaths": 0, "redriven": 0, "merged": 0, "twice": 0, "completed": 0, "failed": 0}
    for seed in range(5):
        world = BatchItemWorld(seed, Chaos())
        world.storm(MESSAGES)
        world.calm()
        world.heal()
        past = BatchItemOracle(world).past
        seen["completed"] += len(past.completed)
        for record in world.app.records():
            new = record["dynamodb"].get("NewImage", {})
            if new.get("g") == {"S": "dead"}:
                seen["deaths"] += 1
            if record["eventName"] == "INSERT" and "n" in new:
                seen["redriven"] += 1
                seen["twice"] += int(new["n"]["N"]) > 1
            elif record["eventName"] == "MODIFY" and "n" in new:
                seen["merged"] += "n" not in record["dynamodb"]["OldImage"]
        items = world.app.engine.items("batches")
        seen["failed"] += sum(1 for i in items if i["sk"]["S"] == "f")
    assert all(count >= 5 for count in seen.values()), seen
