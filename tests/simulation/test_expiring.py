"""Messages expire while consumers work: none early, none that is held, and all in the end."""

from __future__ import annotations

from collections import Counter

import pytest
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
