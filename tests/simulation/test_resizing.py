"""Resizes under load keep every guarantee; and the simulation finds what breaks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fairbox.client import topic_resize as resizing
from fairbox.dispatch.ordered.resize_barrier import NOTHING, ResizeBarrier
from fairbox.dynamodb.epochs import EpochTable
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.resizing_world import ResizingWorld, run_resizing

from tests.support.seeds import seeds

if TYPE_CHECKING:
    from fairbox.model.epochs import Epoch

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


class TestMutants:
    """Each breaks one rule on purpose; a simulation that does not see it would prove nothing."""

    def finds(self, breach: str, *, first: int, messages: int = 200) -> bool:
        """Whether one of a few seeds shows the breach, beginning with one that did."""
        worlds = (ResizingWorld(seed, CALM) for seed in range(first, first + 12))
        return any(breach in found for w in worlds for found in run_resizing(w, messages))

    def test_a_cut_that_is_not_announced_puts_messages_into_the_wrong_epoch(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(resizing, "ANNOUNCE_MS", 0)
        assert self.finds("misplaced: ", first=0)

    def test_a_cut_that_is_not_announced_breaks_the_order(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(resizing, "ANNOUNCE_MS", 0)
        assert self.finds("out of order: ", first=51)

    def test_a_new_shard_that_does_not_wait_breaks_the_order(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ResizeBarrier, "waits", lambda *_, **__: NOTHING)
        assert self.finds("out of order: ", first=5)

    def test_an_epoch_that_leaves_with_dead_letters_strands_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def holds(self: EpochTable, topic: str, epoch: int, shard: int) -> bool:
            lanes = self._tables.lanes
            return any(
                lanes.count(lane, topic, epoch, shard, limit=1)
                for lane in ("ready", "later")  # and not in `dead`
            )

        def counted(_: EpochTable, topic: str, epoch: Epoch) -> bool:
            return False

        monkeypatch.setattr(EpochTable, "holds", holds)
        monkeypatch.setattr(EpochTable, "counted", counted)
        assert self.finds("a dead letter that nobody lists: ", first=3)
