"""Resizes under load keep every guarantee."""

from __future__ import annotations

import pytest
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.resizing_world import ResizingWorld, run_resizing

from tests.support.seeds import seeds

SEEDS = 6
MESSAGES = 600


@pytest.mark.guarantee("epoch-of-the-id", "epoch-stays")
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_every_guarantee_holds_while_topics_are_resized(seed: int) -> None:
    world = ResizingWorld(seed, Chaos())
    assert run_resizing(world, MESSAGES) == []
    assert world.resizes > 0


@pytest.mark.parametrize("seed", seeds(1000, 1003, usual=0))
def test_without_faults_of_ours_a_resize_sends_nothing_twice(seed: int) -> None:
    assert run_resizing(ResizingWorld(seed, CALM), MESSAGES) == []
