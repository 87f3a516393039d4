"""The consumer checker judges only receipts of which it knows the order."""

from __future__ import annotations

import pytest
from fairbox import Message
from fairbox.testing.application import MemoryApplication
from fairbox_simulation.consumer_checker import ConsumerChecker, Holding

ID = "0199c8af-81d9-72a2-8bbe-90e03080f658"


@pytest.fixture
def checker() -> ConsumerChecker:
    return ConsumerChecker(MemoryApplication(), ordered=("steps",), repeated=())


def holding(receipt: str, until: int) -> Holding:
    return Holding("steps", Message(topic="steps", body=b"", id=ID), receipt, until)


def test_an_ack_by_a_receipt_that_another_followed_is_a_breach(checker: ConsumerChecker) -> None:
    first, second = holding("a", 1_000), holding("b", 3_000)
    checker.received(first, 500)
    checker.received(second, 2_500)
    checker.acked(first, 2_600)
    assert checker.breaches == [f"acked by a receipt that was followed: {first.place}"]


def test_who_was_told_too_late_may_be_the_last_and_is_not_judged(checker: ConsumerChecker) -> None:
    first, slept = holding("a", 1_000), holding("b", 2_000)
    checker.received(first, 500)
    checker.received(slept, 2_500)
    checker.acked(slept, 2_600)
    assert checker.breaches == []


def test_who_was_told_too_late_is_followed_by_whoever_is_told_in_time_later(
    checker: ConsumerChecker,
) -> None:
    slept, last = holding("a", 1_000), holding("b", 4_000)
    checker.received(slept, 1_500)
    checker.received(last, 3_000)
    checker.acked(slept, 3_100)
    assert checker.breaches == [f"acked by a receipt that was followed: {slept.place}"]
