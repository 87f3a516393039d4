"""Ordered topics keep their guarantees under faults."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.ordered_world import run_ordered

from tests.support.seeds import seeds

if TYPE_CHECKING:
    from fairbox.model.topics import OnDead

MESSAGES = 600
SEEDS = 8
AT_ONCE = replace(CALM, interleaved=0.02)  # a second visit of the same shard, no other fault
LATE_WORKERS = replace(CALM, interleaved=0.15, refused=0.3)


@pytest.mark.guarantee("order-of-keys", "deferred-keys", "due-keys")
@pytest.mark.parametrize("on_dead", ["skip", "block"])
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_order_holds_and_nothing_is_forgotten_whatever_fails(seed: int, on_dead: OnDead) -> None:
    assert run_ordered(seed, Chaos(), MESSAGES, on_dead).breaches == []


@pytest.mark.parametrize("on_dead", ["skip", "block"])
@pytest.mark.parametrize("seed", seeds(1000, 1002, usual=0))
def test_without_faults_of_ours_nothing_comes_twice(seed: int, on_dead: OnDead) -> None:
    assert run_ordered(seed, CALM, MESSAGES, on_dead).breaches == []


@pytest.mark.extended  # more worlds
@pytest.mark.parametrize("chaos", [AT_ONCE, pytest.param(LATE_WORKERS, marks=pytest.mark.extended)])
@pytest.mark.parametrize("seed", seeds(2000, 2003))
def test_two_visits_at_once_never_reorder_first_deliveries(seed: int, chaos: Chaos) -> None:
    assert run_ordered(seed, chaos, MESSAGES, "block", poison=0.03).breaches == []
