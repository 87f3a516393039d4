"""The full-system scenario keeps its guarantees under faults."""

from __future__ import annotations

from collections import Counter

import pytest
from fairbox import Message
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.whole_run import finish, run_whole
from fairbox_simulation.whole_world import FED, FEEDER, WholeWorld

from tests.support.seeds import seeds

SEEDS = 6
MESSAGES = 150


@pytest.mark.guarantee(
    "pulled-accounted", "one-receipt", "stale-receipt", "one-holder-of-a-key", "batch-kept-a-week"
)
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_the_full_system_keeps_every_guarantee_whatever_fails(seed: int) -> None:
    assert run_whole(seed, Chaos(), MESSAGES) == []


def test_without_faults_of_ours_the_full_system_keeps_every_guarantee() -> None:
    assert run_whole(1000, CALM, MESSAGES) == []


@pytest.mark.extended  # three worlds, only to see that their faults strike
def test_all_faults_strike_and_all_actors_act() -> None:
    seen: Counter[str] = Counter()
    for seed in range(3):
        world = WholeWorld(seed, Chaos(frozen=0.2, late=0.05, twice=0.2, kills=0.1))
        assert finish(world, MESSAGES) == []
        seen.update(world.consumers.done)
        seen.update(freezes=world.freezes, kills=world.kills, twice=world.given_twice)
        seen.update(late=world.relay.late + world.marking.late)
        seen.update(lost_leases=world.relay.taken_away + world.marking.taken_away)
        seen.update(stale=world.app.client.stale_reads, resizes=world.resizes)
        seen.update(
            tracked=len(world.tracked), cleaned=world.cleaned, edits=world.producers.changed
        )
        seen.update(redriven=_events(world, "redriven"), dead=_events(world, "dead"))
    assert all(count > 0 for count in seen.values()), seen


def test_what_a_topic_feeds_to_a_wider_one_is_not_taken_for_added_twice() -> None:
    world = WholeWorld(3, CALM)
    world.another().resize(FED, 5)
    world.app.clock.advance(600)  # ids have their time in the new epoch
    for _ in range(8):
        world.app.outbox.add(Message(topic=FEEDER, body=b"", id=world.app.ids.next()))
    assert finish(world, 5) == []


def _events(world: WholeWorld, kind: str) -> int:
    return sum(f'"event":"{kind}"'.encode() in line for line in world.app.archive.lines)
