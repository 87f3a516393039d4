"""The application keeps its guarantees under faults."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.oracle import run
from fairbox_simulation.world import World

from tests.support.seeds import seeds

SEEDS = 25
MESSAGES = 450


@pytest.mark.guarantee(
    "never-lost",
    "never-stuck",
    "duplicates-explained",
    "dead-letter-history",
    "only-cancelled",
    "ledger-exact",
    "archive-complete",
    "counts-exact",
)
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_every_guarantee_holds_whatever_fails(seed: int) -> None:
    assert run(World(seed, Chaos()), MESSAGES) == []


@pytest.mark.extended  # more worlds
@pytest.mark.parametrize("seed", seeds(1000, 1010))
def test_without_faults_of_ours_nothing_comes_twice(seed: int) -> None:
    assert run(World(seed, CALM), MESSAGES) == []


@pytest.mark.extended  # more worlds
@pytest.mark.parametrize("seed", seeds(2000, 2005))
def test_an_unready_world_loses_nothing(seed: int) -> None:
    chaos = Chaos(tables=0.2, kills=0.15, throttled=0.2, away=0.2, refused=0.1)
    assert run(World(seed, chaos), MESSAGES) == []


@pytest.mark.extended  # more worlds
@pytest.mark.parametrize("seed", seeds(3000, 3008))
def test_destinations_that_fail_hang_throttle_and_come_back_lose_nothing(seed: int) -> None:
    assert run(World(seed, replace(CALM, outages=0.5)), MESSAGES) == []


@pytest.mark.parametrize("seed", seeds(3100, 3104, usual=0))
def test_nor_do_they_while_everything_else_fails_too(seed: int) -> None:
    assert run(World(seed, Chaos(outages=0.5)), MESSAGES) == []


def test_a_seed_repeats_to_the_last_event() -> None:
    lines = []
    for _ in range(2):
        world = World(5, Chaos())
        run(world, 100)
        lines.append(world.app.archive.lines)
    assert lines[0] == lines[1]
    assert len(lines[0]) > 100
