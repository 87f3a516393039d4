"""Worlds under load keep their guarantees; and they find what breaks them."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from fairbox import RetryPolicy, Topic
from fairbox.aws import sqs_doorbells
from fairbox.codec.shards import BUCKETS
from fairbox.dispatch import decisions, walks
from fairbox.dispatch.maintenance import sweep
from fairbox.dispatch.sending import rate_limits, sender
from fairbox.dispatch.sending.bodies_in_hand import BodiesInHand
from fairbox.dispatch.sending.circuit_breakers import Gate
from fairbox.dispatch.sending.slow_destinations import SlowDestinations
from fairbox.dispatch.visits import Visits
from fairbox.dispatch.walks import Walk
from fairbox.dynamodb import shard_rows, topic_copies
from fairbox.dynamodb.message_inserts import MessageInserts
from fairbox.model.ids import bound_of
from fairbox.model.walk_positions import Places
from fairbox_simulation.chaos import Chaos
from fairbox_simulation.load.destinations import DOWN
from fairbox_simulation.load.invariants import READY_SECONDS, late
from fairbox_simulation.load.latency import run_wide
from fairbox_simulation.load.world import LoadWorld
from fairbox_simulation.scenarios import SCENARIOS, kind_of

CHAOS = Chaos()
USUAL = {
    "backlog": ((2, 1000), (0, 3000), (1, 3000), (10, 1500), (35, 1500)),
    "latency": ((0, 30), (1, 60), (3, 60)),
    "rates": ((0, 400), (2, 400), (7, 400)),
    "payloads": ((2, 8), (0, 16), (1, 16)),
    "tenants": ((0, 1000), (1, 1000)),
    "attempts": ((0, 60), (1, 60), (2, 60)),
    "overdue": ((0, 1000),),
    "adding": ((0, 40), (1, 40), (2, 40)),
}
"""Seeds, and messages of each world, some fewer than the natural size: by day the first of each."""


def world(name: str, seed: int, size: int, **more: Any) -> Any:
    return pytest.param(name, seed, size, id=f"{name}-{seed}", **more)


# larger ones, of other seeds: minutes in all
WORLDS = [
    *(
        world(name, *each, marks=[pytest.mark.extended] * (each != small[0]))
        for name, small in USUAL.items()
        for each in small
    ),
    *(
        world(name, seed, SCENARIOS[name].per_world, marks=pytest.mark.extended)
        for name in USUAL
        for seed in (100, 101)
    ),
]


@pytest.mark.guarantee(
    "subscriptions-apart",
    "delay-on-time",
    "reads-bounded",
    "rate-visits",
    "own-pace",
    "refused-by-all",
    "bodies-once",
    "adding-again",
)
@pytest.mark.parametrize(("scenario", "seed", "messages"), WORLDS)
def test_no_subscription_waits_for_another_and_nothing_grows(
    scenario: str, seed: int, messages: int
) -> None:
    assert SCENARIOS[scenario].run(seed, CHAOS, messages) == []


@pytest.mark.extended  # a minute
def test_twenty_thousand_messages_that_wait_a_week_for_one_cost_the_other_little() -> None:
    waiting = LoadWorld(0)
    topic = Topic("deep", shards=1, retry=RetryPolicy(max_attempts=1000, cap=900))
    paused, healthy = waiting.create(topic, ["paused", "healthy"])
    waiting.pause(paused)
    began = waiting.clock.now()
    for number in range(500):
        if number == 450:  # an outage of a minute, behind 18,000 that wait
            healthy.destination.failure = DOWN
        if number == 480:
            healthy.destination.failure = None
            healthy.unready = [(began + 2 * 450 - 5, waiting.clock.now() + 150)]
        waiting.publish("deep", 40)
        waiting.timeline.sleep(2)
    waiting.timeline.sleep(READY_SECONDS + 600)
    assert len(healthy.destination.taken) == 20_000
    assert list(late(waiting, READY_SECONDS)) == []
    waiting.clock.set(waiting.clock.now() + 7 * 24 * 3600)
    waiting.timeline.sleep(120)
    # 1.04 a message; 1.46 where each walk begins at the head
    assert waiting.meter.reading().rru <= 1.2 * waiting.sent
    waiting.meter.reset()
    waiting.resume(paused)
    waiting.timeline.sleep(1800)
    assert len(paused.destination.taken) == 20_000
    assert waiting.meter.reading().rru <= 0.1 * 20_000


class TestMutants:
    """Each has one of the faults again, or breaks a rule; a world must find it."""

    def finds(self, kind: str, scenario: str, seed: int, messages: int | None = None) -> bool:
        size = messages or SCENARIOS[scenario].per_world
        return kind in map(kind_of, SCENARIOS[scenario].run(seed, CHAOS, size))

    def test_walks_that_give_up_ten_pages_from_the_head_are_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shipped = Walk._pass

        def pass_(walk: Any, messages: Any, lane: Any, place: str, result: Any) -> None:
            shipped(walk, messages, lane, place, result)
            useless = result is None or not result.progress
            walk.idle = getattr(walk, "idle", 0) + 1 if useless else 0
            walk._stop |= walk.idle >= 10

        monkeypatch.setattr(Walk, "_start", lambda _: Places())
        monkeypatch.setattr(Walk, "_pass", pass_)
        assert self.finds("late", "backlog", 0, 2200)

    def test_walks_that_pass_the_young_are_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shipped = Walk._move

        def move(walk: Any, lane: Any, passed: Any, last: Any, *, newer: str) -> None:
            beyond = bound_of(int(walk._clock.now() * 1000)) if lane == "ready" else last
            shipped(walk, lane, passed, beyond, newer=newer)

        monkeypatch.setattr(Walk, "_move", move)
        assert self.finds("late", "backlog", 8, 1500)

    def test_doorbells_that_are_each_their_own_are_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqs_doorbells, "_dedup_id", lambda _: None)
        assert self.finds("too many visits", "rates", 0)

    def test_a_dropped_doorbell_whose_place_is_noted_nowhere_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Visits, "_note_places", lambda *_: ())
        assert self.finds("under its rate", "rates", 0)

    def test_tokens_without_end_are_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rate_limits, "take", lambda _, now, __, wanted: (wanted, now))
        assert self.finds("over its rate", "rates", 0)

    def test_visits_that_wait_for_slow_lines_are_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(SlowDestinations, "slow", lambda *_: False)
        monkeypatch.setattr(SlowDestinations, "avoided", lambda *_: False)
        monkeypatch.setattr(sender, "GRACE_SECONDS", inf)
        assert self.finds("held back", "latency", 1, 60)

    @pytest.mark.parametrize(("part", "kind"), [(2, "under"), (1000, "over")])
    def test_a_limit_in_flight_that_is_another_is_found(
        self, part: int, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two in each of four groups are the eight that one webhook had of whatever limit."""
        monkeypatch.setattr(Gate, "in_flight_limit", lambda *_, **__: part)
        assert f"{kind} its limit in flight" in map(kind_of, run_wide(0, 400))

    @pytest.mark.parametrize(
        "kind", ["a held message was given away", "a claim was lost", "changed by adding it again"]
    )
    def test_adds_that_overwrite_are_found(
        self, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shipped = MessageInserts.add_many
        monkeypatch.setattr(
            MessageInserts, "add_many", lambda self, made, **_: shipped(self, made, new=True)
        )
        assert self.finds(kind, "adding", 0)

    def test_a_history_that_grows_in_its_item_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(decisions, "fitted", lambda stored, **_: stored)
        assert self.finds("too many writes", "attempts", 1, 60)

    @pytest.mark.parametrize("kind", ["never dies", "tried too often"])
    def test_attempts_without_end_are_found(
        self, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shipped = decisions.decide

        def decide(before: Any, topic: Any, *given: Any, **more: Any) -> Any:
            patient = replace(topic.topic, retry=RetryPolicy(max_attempts=1000, cap=300))
            return shipped(before, replace(topic, topic=patient), *given, **more)

        monkeypatch.setattr(decisions, "decide", decide)
        assert self.finds(kind, "attempts", 1, 10)

    def test_bodies_that_each_subscription_fetches_are_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def in_place(bodies: Any, messages: Any, away: Any) -> Any:
            fetched = {ref: bodies._store.fetch_body(body.stored) for ref, body in away.items()}
            return {m.ref: m for m in messages} | fetched

        monkeypatch.setattr(BodiesInHand, "_in_place", in_place)
        assert self.finds("fetched again", "payloads", 0)

    def test_calls_that_do_not_wait_for_room_are_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(BodiesInHand, "_room", lambda *_: True)
        assert self.finds("too many bytes in hand", "payloads", 0)

    def test_a_change_that_drops_all_copies_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def follow(copies: Any, changes: Any) -> None:
            if changes != copies.changes:
                copies.by_name, copies.changes = {}, changes

        monkeypatch.setattr(topic_copies._Copies, "follow", follow)
        assert self.finds("too many reads", "tenants", 1)

    def test_a_sweep_of_one_bucket_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shard_rows, "BUCKETS", BUCKETS[:1])
        assert self.finds("late", "overdue", 0, 300)

    def test_long_delays_that_the_sweep_alone_ends_are_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sweep, "next_delayed", lambda *_: None)
        monkeypatch.setattr(walks, "next_delayed", lambda *_: None)
        assert self.finds("delayed too long", "backlog", 0, 600)
