"""Pace: a slow destination is left alone for ever longer, until one call was fast."""

from __future__ import annotations

from fairbox.dispatch.sending.sender import (
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
