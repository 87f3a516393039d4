"""Messages expire while consumers work: none early, none that is held, and all in the end."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from fairbox.dispatch.maintenance import expiry
from fairbox.dynamodb import expiries
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.expiring_world import ExpiringWorld, finish_expiring, run_expiring

from tests.support.seeds import seeds

MESSAGES = 150


@pytest.mark.guarantee("expiry")
@pytest.mark.parametrize("seed", seeds(12))
def test_no_message_expires_early_or_while_it_is_held_and_none_stays(seed: int) -> None:
    assert run_expiring(seed, Chaos(), MESSAGES) == []


@pytest.mark.extended  # only to see that its events happen
def test_messages_expire_and_are_taken_in_one_world() -> None:
    world = ExpiringWorld(3, CALM)
    assert finish_expiring(world, MESSAGES) == []
    told = Counter(
        kind
        for line in world.app.archive.lines
        for kind in ("expired", "delivered")
        if f'"event":"{kind}"'.encode() in line
    )
    assert min(told["expired"], world.consumers.done["acked"], world.kept) > 5


class TestMutants:
    """Each breaks one rule on purpose; a simulation that does not see it would prove nothing."""

    def finds(self, breach: str, chaos: Chaos = CALM) -> bool:
        """Whether one of a few seeds shows the breach."""
        found = (run_expiring(seed, chaos, MESSAGES) for seed in range(4))
        return any(breach in text for breaches in found for text in breaches)

    def test_what_looks_at_no_holder_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(expiry, "_held", lambda *_: False)
        assert self.finds("expired though held: ")

    def test_what_counts_from_the_id_of_a_delayed_message_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        page = expiries.Expiries.page

        def mutant(self: Any, lane: Any, shard: Any, *, until: int, **more: Any) -> Any:
            return page(self, lane, shard, until=until + 3_600_000 * (lane == "later"), **more)

        monkeypatch.setattr(expiries.Expiries, "page", mutant)
        assert self.finds("expired early: ")

    def test_a_sweep_that_lets_nothing_expire_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(expiry.Expiry, "_page", lambda _, walk: setattr(walk, "ended", True))
        assert self.finds("never expired: ")
