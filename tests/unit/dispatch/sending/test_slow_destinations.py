"""Pace: a slow destination is left alone for ever longer, until one call was fast."""

from __future__ import annotations

from fairbox.dispatch.sending.lines import (
    FIRST_REST_SECONDS,
    LONGEST_REST_SECONDS,
    SLOW_SECONDS,
    SlowDestinations,
)


def test_a_slow_line_rests_twice_as_long_each_time_up_to_a_bound() -> None:
    pace, now, rests = SlowDestinations(), 0.0, []
    for _ in range(7):
        assert not pace.slow("a", now)
        pace.took("a", SLOW_SECONDS, now)
        began = now
        while pace.slow("a", now):
            now += 1
        rests.append(now - began)
    assert rests[:3] == [FIRST_REST_SECONDS, 2 * FIRST_REST_SECONDS, 4 * FIRST_REST_SECONDS]
    assert rests[-1] == LONGEST_REST_SECONDS


def test_a_fast_call_ends_the_rest_and_forgets_how_long_it_was() -> None:
    pace = SlowDestinations()
    pace.took("a", 5, 0)
    pace.took("a", 5, 100)
    pace.took("a", 0.01, 101)
    assert not pace.slow("a", 101)
    pace.took("a", 5, 102)
    assert not pace.slow("a", 102 + FIRST_REST_SECONDS)


def test_calls_that_were_under_way_do_not_lengthen_the_rest() -> None:
    pace = SlowDestinations()
    for _ in range(8):
        pace.took("a", 2, 10)
    assert not pace.slow("a", 10 + FIRST_REST_SECONDS)


def test_one_line_says_nothing_of_another() -> None:
    pace = SlowDestinations()
    pace.took("a", 2, 0)
    assert (pace.slow("a", 1), pace.slow("b", 1)) == (True, False)


def test_a_process_waits_a_tenth_of_its_time_for_lines_that_it_does_not_know() -> None:
    """Else thirty slow webhooks would take each of fifty workers for a minute."""
    pace, now, waited = SlowDestinations(0.2), 0.0, 0.0
    pace.took("quick", 0.01, now)
    while now < 600:
        tried = next((f"slow{n}" for n in range(30) if not pace.avoided(f"slow{n}", now)), None)
        assert not pace.avoided("quick", now)
        if tried is not None:
            waited += 2
            now += 2
            pace.took(tried, 2, now, waited=True)
        else:
            now += 0.1
    assert 0.08 * now < waited < 0.12 * now


def test_calls_of_visits_apart_keep_nobody_waiting() -> None:
    pace = SlowDestinations(0.2)
    pace.took("slow", 2, 10, waited=False)
    assert (pace.avoided("slow", 11), pace.avoided("unknown", 11)) == (True, False)
    pace.took("other", 2, 12, waited=True)
    assert pace.avoided("unknown", 13)
