"""Feeds keep their promises under random faults; and a broken rule of theirs is found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from fairbox.client.feed_positions import FeedPositions
from fairbox.feeds.pushing import Pushing
from fairbox.feeds.ringing import Ringing

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


def greedy(self: Any, entry: Any, *more: Any, shipped: Any = FeedPositions._taken) -> Any:
    after = min(entry.after, self.positions[entry.topic] or entry.after)
    return shipped(self, entry._replace(after=after), *more)


# others are in `tests/unit/feeds/test_push_interleavings.py`
TWINS: dict[str, tuple[str, Any, str, Any]] = {
    "nobody is put out": ("not level", Pushing, "_put_out", lambda *_: None),
    "late is dropped": ("not level", Ringing, "ring_again", lambda *_: None),
    "takes all": ("told lost, and is there", FeedPositions, "_taken", greedy),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_broken_rule_is_found(twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breach, owner, name, broken = TWINS[twin]
    monkeypatch.setattr(owner, name, broken)
    assert any(FeedsWorld(seed).run().bad[breach] for seed in range(2, 242, 4))
