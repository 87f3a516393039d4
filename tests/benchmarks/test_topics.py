"""Reads of producers and relay depend neither on the number of topics nor on their changes."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks.deployment import Load
from benchmarks.topics import MOST, RATE, TopicsDeployment

SECONDS = 25
FUNCTIONS = ("producer", "relay", "visit")


@cache
def reads(topics: int, *, administration: bool = False) -> dict[str, float]:
    """Return the read units a message of each function."""
    deployment = TopicsDeployment(topics, administration=administration)
    count = deployment.run(Load(rate=RATE, seconds=SECONDS))
    return {name: deployment.accounts.rru(name) / count for name in FUNCTIONS}


@pytest.fixture(scope="module")
def fifty() -> dict[str, float]:
    return reads(50)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_eight_times_as_many_topics_cost_a_function_no_read_more(
    fifty: dict[str, float], function: str
) -> None:
    many = reads(400)
    assert many[function] <= fifty[function] + 0.01
    assert sum(many.values()) <= MOST


def test_topics_that_are_created_and_circuits_that_open_cost_a_tenth_at_most() -> None:
    assert sum(reads(400, administration=True).values()) <= MOST
