"""Slots: calls run at once or in turn with one result, and slow ones keep no fast one waiting."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from fairbox.dispatch.sending.sender import MOST, SLOTS, run_concurrently, run_sequentially

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.dispatch.sending.sender import Call, Finish


def lines(depth: int, done: list[tuple[str, int]]) -> Callable[[], list[Call]]:
    """Three lines of so many calls, each of which begins when the one before is answered."""
    left = {name: iter(range(depth)) for name in "abc"}
    ready = list(left)

    def finish(name: str, n: int) -> None:
        done.append((name, n))
        ready.append(name)

    def begin() -> list[Call]:
        calls: list[Call] = []
        for name in ready:
            n = next(left[name], None)
            if n is not None:
                calls.append(lambda name=name, n=n: lambda: finish(name, n))  # type: ignore[misc]  # bound here
        ready.clear()
        return calls

    return begin


@pytest.mark.parametrize("run", [run_concurrently, run_sequentially])
def test_every_call_is_made_once_and_those_of_a_line_in_order(
    run: Callable[[Callable[[], list[Call]]], None],
) -> None:
    done: list[tuple[str, int]] = []
    run(lines(4, done))
    assert sorted(done) == [(name, n) for name in "abc" for n in range(4)]
    for name in "abc":
        assert [n for one, n in done if one == name] == list(range(4))


def test_what_a_call_raises_is_raised() -> None:
    def call() -> Finish:
        raise RuntimeError("no")

    calls: list[list[Call]] = [[call]]
    with pytest.raises(RuntimeError, match="no"):
        run_concurrently(lambda: calls.pop() if calls else [])


def test_a_fast_call_does_not_wait_for_a_slot_that_slow_ones_hold() -> None:
    fast_was_made = threading.Event()

    def slow() -> Finish:
        # more of these than there are slots: each waits until the fast one, which is last, is made
        assert fast_was_made.wait(10), "the fast call waited for the slow ones"
        return lambda: None

    def fast() -> Finish:
        fast_was_made.set()
        return lambda: None

    calls: list[list[Call]] = [[*[slow] * (3 * SLOTS), fast]]
    run_concurrently(lambda: calls.pop() if calls else [])


def test_no_more_than_the_most_run_at_once() -> None:
    lock, release = threading.Lock(), threading.Event()
    running = most = 0

    def call() -> Finish:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == MOST:
                release.set()
        release.wait(10)
        with lock:
            running -= 1
        return lambda: None

    calls: list[list[Call]] = [[call] * (MOST + 10)]
    run_concurrently(lambda: calls.pop() if calls else [])
    assert most == MOST
