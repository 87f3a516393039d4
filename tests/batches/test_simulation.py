"""Many small batches among faults, crashes and each other's calls: the guarantees hold.

Twenty thousand batches are spread over tests of one range of seeds each, of which the first runs in
every run. A seed that breaks a guarantee is named, and `fairbox simulate --scenario batches --seed
SEED --messages 1` repeats it.
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
from fairbox_simulation.batches.world import STORMY, USUAL, FaultProfile, World, simulate

from tests.batches.mutants import (
    child_before_parent,
    clear_without_reading_again,
    ends_without_a_fence,
    message_apart,
    refill_of_clear_bits_only,
    unconditional,
)
from tests.support.seeds import seeds

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.client.batches import Batches

SEEDS = 4_470  # 5,000 batches: one seed in nine has a nested one; each mutant dies within 2,000
RANGES = 10
RANGE = SEEDS // RANGES
STORMY_SEED = 10_000_000
STORMY_RANGES = 10
STORMY_RANGE = 200
COMPARED_SEED = 20_000_000
COMPARED_RANGES = 4
COMPARED = 40
FOUND_WITHIN = range(160, 2_160)  # beginning with seeds that find each
ROOT = Path(__file__).resolve().parents[2]
DIGEST = """
import hashlib
from fairbox_simulation.batches.world import STORMY, World, simulate
world, digest = World(STORMY), hashlib.sha256()
for _ in simulate(world, range(150)):
    digest.update(repr(world.trace).encode())
print(digest.hexdigest())
"""


def _broken(world: World, numbers: range) -> list[str]:
    return [
        f"seed {seed}: {breach}" for seed, broken in simulate(world, numbers) for breach in broken
    ]


@pytest.mark.guarantee(
    "announced-once", "batch-figures", "settled-stays", "ended-refuses", "reaped-told"
)
@pytest.mark.parametrize("number", seeds(RANGES))
def test_every_guarantee_holds_whatever_fails(number: int) -> None:
    world, first = World(), number * RANGE
    assert _broken(world, range(first, first + RANGE)) == []
    assert world.batches > RANGE


@pytest.mark.parametrize("number", seeds(STORMY_RANGES))
def test_a_storm_breaks_no_guarantee_either(number: int) -> None:
    first = STORMY_SEED + number * STORMY_RANGE
    assert _broken(World(STORMY), range(first, first + STORMY_RANGE)) == []


def test_without_faults_all_batches_complete() -> None:
    calm = FaultProfile(faults=0, kills=0, cancels=0, cleanups=0)
    assert _broken(World(calm), range(100)) == []


@pytest.mark.extended
@pytest.mark.parametrize("number", seeds(COMPARED_RANGES))
def test_the_lean_database_answers_as_the_engine_of_the_testing_module(number: int) -> None:
    lean, engine = World(STORMY, database=LeanDatabase), World(STORMY, database=MemoryDatabase)
    records, first = 0, COMPARED_SEED + number * COMPARED
    with small_trees():
        for seed in range(first, first + COMPARED):
            assert lean.run(seed) == engine.run(seed) == []
            assert lean.trace == engine.trace
            assert sorted(map(repr, lean.records())) == sorted(map(repr, engine.records()))
            records += len(lean.records())
    assert records > 3 * COMPARED


@pytest.mark.extended  # tests/simulation/tracing.py has a few batches
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


MUTANTS = {
    "child before parent": child_before_parent,
    "clear without reading again": clear_without_reading_again,
    "refill of clear bits only": refill_of_clear_bits_only,
    "completion outside the root's write": message_apart,
    "leaf without a version": unconditional(Leaf),
    "root without a version": unconditional(Root),
    "an end that leaves the groups": ends_without_a_fence,
}


@pytest.mark.extended
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_is_found(mutant: Callable[[Batches], None]) -> None:
    assert any(broken for _, broken in simulate(World(USUAL, mutant), FOUND_WITHIN))
