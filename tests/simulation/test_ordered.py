"""Ordered topics keep their guarantees under faults; and the simulation finds what breaks them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fairbox.dispatch.ordered import visit as ordered_visit
from fairbox.dispatch.ordered.key_order import KeyOrder
from fairbox.dynamodb.delivery_store import DynamoStore
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.ordered_world import run_ordered

from tests.support.seeds import seeds

if TYPE_CHECKING:
    from fairbox.model.deferred_keys import DeferredKeys
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


class TestMutants:
    """Each breaks one rule on purpose; a simulation that does not see it would prove nothing."""

    def finds(
        self, breach: str, chaos: Chaos, on_dead: OnDead = "skip", *, first: int, messages: int
    ) -> bool:
        """Whether one of a few seeds shows the breach, beginning with one that did."""
        numbers = range(first, first + 8)
        worlds = (run_ordered(seed, chaos, messages, on_dead, poison=0.01) for seed in numbers)
        return any(breach in found for world in worlds for found in world.breaches)

    def test_sending_a_follower_while_its_key_is_held_breaks_the_order(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(KeyOrder, "_covering", lambda *_: iter(()))
        assert self.finds("out of order: ", CALM, first=4, messages=60)

    def test_beginning_behind_a_young_id_passes_messages_by(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ordered_visit, "YOUNG_MS", 0)
        assert self.finds("passed by: ", CALM, first=6, messages=200)

    def test_a_late_workers_write_without_version_breaks_the_order(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = DynamoStore.write_holds

        def mutant(
            self: DynamoStore, shard: tuple[str, int, int], holds: DeferredKeys, _: int
        ) -> DeferredKeys | None:
            now = self.holds(shard)[1].version
            return write(self, shard, replace(holds, version=now), now)

        monkeypatch.setattr(DynamoStore, "write_holds", mutant)
        assert self.finds("out of order: ", LATE_WORKERS, "block", first=16, messages=120)

    def test_forgetting_what_is_due_leaves_messages_behind(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(KeyOrder, "due", lambda *_, **__: [])
        assert self.finds("forgotten: ", CALM, first=5, messages=60)
