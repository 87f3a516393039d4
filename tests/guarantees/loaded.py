"""Guarantees of worlds under load: depth, crowds, slow destinations, rates, bodies, many topics."""

from __future__ import annotations

from typing import Final

from tests.guarantees.guarantee import Guarantee

_INVARIANTS: Final = "fairbox_simulation.load.invariants"
_WORLDS: Final = "fairbox_simulation.load"
_ADDING: Final = "fairbox_simulation.load.adding:AddingWorld"
_MUTANTS: Final = "tests/simulation/test_loaded.py::TestMutants"
_WALKS: Final = "tests/unit/dispatch/test_walks.py"
_CIRCUITS: Final = "explanation/circuits.md"
_DELIVERY: Final = "explanation/delivery.md"

LOADED: Final = (
    Guarantee(
        text="Whatever set of subscriptions is paused, closed or away, and however much waits for "
        "them, each one that is ready gets what it lacks: within three minutes, or within two "
        "hours where doorbells were lost.",
        page=f"{_DELIVERY}#walks",
        kinds=("late",),
        invariants=(f"{_INVARIANTS}:late",),
        mutants=(
            f"{_MUTANTS}.test_walks_that_give_up_ten_pages_from_the_head_are_found",
            f"{_MUTANTS}.test_walks_that_pass_the_young_are_found",
            f"{_MUTANTS}.test_a_sweep_of_one_bucket_is_found",
        ),
        scenarios=("backlog", "latency", "rates", "payloads", "tenants", "overdue"),
        checks=(
            f"{_WALKS}::test_a_paused_week_costs_the_others_little_and_all_is_sent_when_it_ends",
            f"{_WALKS}::test_a_walk_that_stops_at_young_messages_passes_none_of_their_page",
        ),
    ),
    Guarantee(
        text="A delayed message is sent at most five seconds after its time, however long the "
        "delay, and not before it.",
        page=f"{_DELIVERY}#an-index-of-shards-not-of-messages",
        kinds=("delayed too long",),
        invariants=(f"{_INVARIANTS}:delayed",),
        mutants=(f"{_MUTANTS}.test_long_delays_that_the_sweep_alone_ends_are_found",),
        scenarios=("backlog",),
    ),
    Guarantee(
        text="Reads are bounded by what is sent: 2 RRU a message behind a backlog, 3 where it "
        "waits for a rate, and 0.1 on the relay's path whatever the number of topics.",
        page="explanation/costs.md#many-topics",
        kinds=("too many reads",),
        invariants=(f"{_INVARIANTS}:reads",),
        mutants=(f"{_MUTANTS}.test_a_change_that_drops_all_copies_is_found",),
        scenarios=("backlog", "rates", "tenants"),
    ),
    Guarantee(
        text="A rate is kept and used, and its visits do not multiply: two a second and shard.",
        page=f"{_CIRCUITS}#limits",
        kinds=("too many visits", "over its rate", "under its rate"),
        invariants=(f"{_INVARIANTS}:visits", f"{_INVARIANTS}:paced"),
        mutants=(
            f"{_MUTANTS}.test_doorbells_that_are_each_their_own_are_found",
            f"{_MUTANTS}.test_a_dropped_doorbell_whose_place_is_noted_nowhere_is_found",
            f"{_MUTANTS}.test_tokens_without_end_are_found",
        ),
        scenarios=("rates",),
    ),
    Guarantee(
        text="The pace of a subscription depends on itself: beside slow, dead, paused and limited "
        "siblings its median is at most twice what it is alone, and a limit in flight is kept and "
        "used.",
        page=f"{_CIRCUITS}#limits",
        kinds=("held back", "over its limit in flight", "under its limit in flight"),
        invariants=(f"{_INVARIANTS}:held_back", f"{_INVARIANTS}:in_flight"),
        mutants=(
            f"{_MUTANTS}.test_visits_that_wait_for_slow_lines_are_found",
            f"{_MUTANTS}.test_a_limit_in_flight_that_is_another_is_found",
        ),
        scenarios=("latency",),
    ),
    Guarantee(
        text="A message that up to sixty subscriptions refuse dies for each of them at its last "
        "attempt, and an attempt of a message of 1 KB costs at most 1.1 WRU.",
        page=f"{_DELIVERY}#failures-stay-in-place",
        kinds=("never dies", "tried too often", "too many writes"),
        invariants=(f"{_WORLDS}.attempts:_breaches",),
        mutants=(
            f"{_MUTANTS}.test_attempts_without_end_are_found",
            f"{_MUTANTS}.test_a_history_that_grows_in_its_item_is_found",
        ),
        scenarios=("attempts",),
    ),
    Guarantee(
        text="An invocation fetches an offloaded body once for all subscriptions, and holds at "
        "most 32 MiB of bodies.",
        page="how-to/large-bodies.md#memory-of-a-visit",
        kinds=("fetched again", "too many bytes in hand"),
        invariants=(f"{_WORLDS}.payloads:_breaches",),
        mutants=(
            f"{_MUTANTS}.test_bodies_that_each_subscription_fetches_are_found",
            f"{_MUTANTS}.test_calls_that_do_not_wait_for_room_are_found",
        ),
        scenarios=("payloads",),
    ),
    Guarantee(
        text="Adding again what is outstanding changes nothing, and takes it from no consumer.",
        page="how-to/deduplicate.md#add-the-same-message-again",
        kinds=("a held message was given away", "a claim was lost", "changed by adding it again"),
        invariants=(f"{_ADDING}._receive", f"{_ADDING}._settle", f"{_ADDING}._changed"),
        mutants=(f"{_MUTANTS}.test_adds_that_overwrite_are_found",),
        scenarios=("adding",),
    ),
)
