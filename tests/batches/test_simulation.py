"""Many small batches among faults, crashes and each other's calls: the promises hold.

Twenty thousand batches are spread over tests of one range of seeds each. A seed that breaks a
promise is named, and `fairbox simulate --scenario batches --seed SEED --messages 1` repeats it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fairbox.batches.models import Leaf, Root
from fairbox_simulation.batches.tables import LeanDatabase, MemoryDatabase
from fairbox_simulation.batches.trees import small_trees
from fairbox_simulation.batches.world import FAIR, STORMY, Weather, World, simulate

from tests.batches.twins import (
    child_before_parent,
    clear_without_reading_again,
    message_apart,
    refill_of_clear_bits_only,
    unconditional,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.client.batches import Batches

SEEDS = 17_900  # 20,000 batches: one seed in nine has a nested one
RANGE = 4_475
STORMY_SEEDS = range(10_000_000, 10_002_000)
COMPARED = range(20_000_000, 20_000_150)
FOUND_WITHIN = 2_000
ROOT = Path(__file__).resolve().parents[2]
DIGEST = """
import hashlib
from fairbox.simulation.batches.world import STORMY, World, simulate
world, digest = World(STORMY), hashlib.sha256()
for _ in simulate(world, range(400)):
    digest.update(repr(world.trace).encode())
print(digest.hexdigest())
"""


def _broken(world: World, seeds: range) -> list[str]:
    return [
        f"seed {seed}: {breach}" for seed, broken in simulate(world, seeds) for breach in broken
    ]


@pytest.mark.parametrize("first", range(0, SEEDS, RANGE))
def test_every_promise_holds_whatever_fails(first: int) -> None:
    world = World()
    assert _broken(world, range(first, first + RANGE)) == []
    assert world.batches > RANGE


def test_a_storm_breaks_no_promise_either() -> None:
    assert _broken(World(STORMY), STORMY_SEEDS) == []


def test_without_faults_all_batches_complete() -> None:
    calm = Weather(faults=0, kills=0, cancels=0, cleanups=0)
    assert _broken(World(calm), range(300)) == []


def test_the_lean_database_answers_as_the_engine_of_the_testing_module() -> None:
    lean, engine = World(STORMY, database=LeanDatabase), World(STORMY, database=MemoryDatabase)
    records = 0
    with small_trees():
        for seed in COMPARED:
            assert lean.run(seed) == engine.run(seed) == []
            assert lean.trace == engine.trace
            assert sorted(map(repr, lean.records())) == sorted(map(repr, engine.records()))
            records += len(lean.records())
    assert records > 3 * len(COMPARED)


def test_a_seed_repeats_to_the_last_call_in_another_process() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
            text=True,
            cwd=ROOT,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


TWINS = {
    "child before parent": child_before_parent,
    "clear without reading again": clear_without_reading_again,
    "refill of clear bits only": refill_of_clear_bits_only,
    "completion outside the root's write": message_apart,
    "leaf without a version": unconditional(Leaf),
    "root without a version": unconditional(Root),
}


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_a_broken_twin_is_found(twin: Callable[[Batches], None]) -> None:
    assert any(broken for _, broken in simulate(World(FAIR, twin), range(FOUND_WITHIN)))
