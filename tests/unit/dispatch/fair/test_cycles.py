"""Cycles over destinations: only who is ready is visited, and all get a message in one cycle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.dispatch.fair import Cycles, Work
from fairbox.dispatch.ports import Limits
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

TEN = Limits(10, 1 << 20)
ONE = Limits(1, 1 << 20)


def cycles(fill: bool = True) -> Cycles[str, int]:
    return Cycles(limits=lambda _: TEN, fill=fill)


def given_to(found: Cycles[str, int]) -> dict[str, list[int]]:
    return dict(found.cycle())


def test_who_was_given_a_call_gets_no_other_until_it_is_answered() -> None:
    turns = cycles()
    for n in range(25):
        turns.add("slow", Work(n, "t"))
        turns.add("fast", Work(n, "t"))
    assert set(given_to(turns)) == {"slow", "fast"}
    turns.answered("fast")
    assert set(given_to(turns)) == {"fast"}
    assert given_to(turns) == {}
    turns.answered("slow")
    assert list(given_to(turns)) == ["slow"]


def several(in_flight: int, limits: Limits = ONE) -> Cycles[str, int]:
    turns: Cycles[str, int] = Cycles(
        limits=lambda _: limits, in_flight=lambda d: in_flight if d == "a" else None
    )
    for n in range(20):
        for destination in ("a", "b"):
            turns.add(destination, Work(n, "t"))
    return turns


def test_who_may_have_several_in_flight_gets_a_call_in_each_cycle_until_it_has_them() -> None:
    turns = several(3)
    assert given_to(turns) == {"a": [0], "b": [0]}
    assert [given_to(turns) for _ in range(3)] == [{"a": [1]}, {"a": [2]}, {}]
    turns.answered("a", 1)
    assert given_to(turns) == {"a": [3]}
    assert not turns.idle("a")


def test_what_is_in_flight_is_counted_in_messages_not_in_calls() -> None:
    turns = several(13, TEN)
    made = [given_to(turns)["a"] for _ in range(2)]
    assert [len(call) for call in made] == [10, 3]
    assert given_to(turns) == {}
    turns.answered("a", 10)
    assert [len(call) for call in given_to(turns).values()] == [7]
    turns.answered("a", 3)
    turns.answered("a", 7)
    assert turns.idle("a")


@given(st.integers(1, 12), st.lists(st.integers(0, 11), max_size=60), st.integers(1, 5))
def test_no_order_of_answers_lets_more_be_in_flight(
    most: int, answers: Sequence[int], messages: int
) -> None:
    turns = several(most, Limits(messages, 1 << 20))
    unanswered: list[list[int]] = []
    seen: list[int] = []
    for which in [*answers, *[0] * 40]:
        while call := given_to(turns).get("a"):
            unanswered.append(call)
            seen += call
        assert sum(map(len, unanswered)) <= most
        if unanswered:
            turns.answered("a", len(unanswered.pop(which % len(unanswered))))
    assert seen == list(range(20))


def test_what_is_dropped_is_forgotten_and_what_comes_later_is_not() -> None:
    turns = cycles()
    turns.add("a", Work(1, "t"))
    turns.drop("a")
    assert (given_to(turns), len(turns)) == ({}, 0)
    turns.add("a", Work(2, "t"))
    assert given_to(turns) == {"a": [2]}


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(1, 4096)), max_size=40))
def test_a_message_reaches_all_destinations_that_are_ready_in_the_same_cycle(
    messages: Sequence[tuple[str, int]],
) -> None:
    turns = cycles(fill=False)
    for destination in ("a", "b", "c"):
        for n, (topic, size) in enumerate(messages):
            turns.add(destination, Work(n, topic, size=size))
    seen = 0
    while made := given_to(turns):
        assert made["a"] == made["b"] == made["c"]
        seen += len(made["a"])
        for destination in made:
            turns.answered(destination)
    assert seen == len(messages)


def test_idle_and_unready_destinations_are_not_looked_at() -> None:
    asked: list[str] = []

    def limits(destination: str) -> Limits:
        asked.append(destination)
        return TEN

    turns: Cycles[str, int] = Cycles(limits=limits)
    for n in range(1000):
        turns.add(f"idle-{n}", Work(n, "t"))
    for destination, _ in turns.cycle():
        turns.answered(destination)  # nothing is left for it
    for n in range(1000):
        turns.add(f"busy-{n}", Work(n, "t"))
    list(turns.cycle())  # nobody answers
    asked.clear()
    turns.add("active", Work(0, "t"))
    assert given_to(turns) == {"active": [0]}
    assert asked == ["active"]
