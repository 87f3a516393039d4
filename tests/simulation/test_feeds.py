"""Feeds keep their promises under random faults."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.feeds_world import FeedsWorld

# a schedule in which nothing goes wrong shows nothing
SEEN = ("received", "told", "put out", "gone", "frozen", "crashes", "reconnects", "doorbells twice")
BY_NIGHT = pytest.param(range(12, 162), marks=pytest.mark.extended)


@pytest.mark.guarantee("feed-accounted")
@pytest.mark.guarantee("feed-private")
@pytest.mark.parametrize("seeds", [range(6), range(6, 12), BY_NIGHT], ids=str)
def test_each_client_is_level_and_nothing_is_lost_in_silence(seeds: range) -> None:
    counts = Counter[str]()
    for seed in seeds:
        world = FeedsWorld(seed).run()
        assert +world.bad == {}, f"seed {seed}"
        counts += world.counts
    assert [name for name in SEEN if not counts[name]] == []
