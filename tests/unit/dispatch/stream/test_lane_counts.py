"""Counts: exact under any batching, repetition and bisection; and the next look that follows."""

from __future__ import annotations

import random

import pytest
from fairbox.dispatch.stream.lane_changes import (
    FIRST_CHECK_MS,
    PULLED_CHECK_MS,
    LaneChange,
    apply_changes,
)
from fairbox.tables.shard_rows import NEVER_MS, ShardRow
from hypothesis import given, settings
from hypothesis import strategies as st

NOW = 1_760_000_000_000
ROW = ShardRow("orders", 0, 3)


def changes_of(seed: int, count: int) -> list[LaneChange]:
    """A history of two lanes that could have happened, with sequences that grow in digits."""
    rng = random.Random(seed)
    made: list[LaneChange] = []
    inside = {"ready": 0, "later": 0}
    for n in range(count):
        lane = "ready" if rng.random() < 0.6 else "later"
        leave = inside[lane] > 0 and rng.random() < 0.5
        inside[lane] += -1 if leave else 1
        deaths = 1 if leave and rng.random() < 0.2 else 0
        due = NOW + rng.randrange(10**6) if lane == "later" and not leave else None
        sequence = str(85 + 4 * n)  # 97, 101: more digits
        made.append(LaneChange(lane, sequence, -1 if leave else 1, deaths, due))  # type: ignore[arg-type]  # one of both
    return made


def handled(row: ShardRow, batch: list[LaneChange], rng: random.Random, depth: int = 0) -> ShardRow:
    """A batch as a stream reader hands it over: maybe again, maybe in halves, in order."""
    row = apply_changes(row, batch, now=NOW, pushed=True)
    if depth < 3 and rng.random() < 0.5:
        middle = len(batch) // 2
        if middle and rng.random() < 0.6:
            row = handled(row, batch[:middle], rng, depth + 1)
            return handled(row, batch[middle:], rng, depth + 1)
        return handled(row, batch, rng, depth + 1)
    return row


@settings(max_examples=300)
@given(st.integers(0, 10**9), st.integers(1, 40))
def test_any_batching_with_repetitions_gives_exact_counts(seed: int, count: int) -> None:
    rng = random.Random(seed)
    changes = changes_of(seed, count)
    row, at = ROW, 0
    while at < len(changes):
        size = rng.randint(1, 12)
        row = handled(row, changes[at : at + size], rng)
        at += size
    for lane, got, deaths in (
        ("ready", row.ready, row.ready_deaths),
        ("later", row.later, row.later_deaths),
    ):
        mine = [c for c in changes if c.lane == lane]
        assert got == sum(c.delta for c in mine)
        assert deaths == sum(c.deaths for c in mine)


def test_inserts_and_removals_that_cancel_out_write_nothing() -> None:
    changes = [LaneChange("ready", "1", 1), LaneChange("ready", "2", -1)]
    assert apply_changes(ROW, changes, now=NOW, pushed=True) == ROW


def test_a_longer_sequence_number_is_a_later_one() -> None:
    row = apply_changes(ROW, [LaneChange("ready", "99", 1)], now=NOW, pushed=True)
    assert apply_changes(row, [LaneChange("ready", "100", 1)], now=NOW, pushed=True).ready == 2
    assert apply_changes(row, [LaneChange("ready", "98", 1)], now=NOW, pushed=True).ready == 1


@pytest.mark.parametrize(("pushed", "ahead"), [(True, FIRST_CHECK_MS), (False, PULLED_CHECK_MS)])
def test_a_lane_that_fills_is_looked_at_later(pushed: bool, ahead: int) -> None:
    row = apply_changes(ROW, [LaneChange("ready", "1", 1)], now=NOW, pushed=pushed)
    assert row.next_check == NOW + ahead


def test_delayed_messages_alone_are_looked_at_when_the_first_is_due() -> None:
    dues = [NOW + 900_000, NOW + 300_000]
    changes = [LaneChange("later", str(n), 1, due=d) for n, d in enumerate(dues, 1)]
    row = apply_changes(ROW, changes, now=NOW, pushed=True)
    assert row.next_check == NOW + 300_000
    sooner = [LaneChange("later", "9", 1, due=NOW + 5_000)]
    assert apply_changes(row, sooner, now=NOW, pushed=True).next_check == NOW + 5_000
    late = [LaneChange("later", "9", 1, due=NOW + 10**9)]
    assert apply_changes(row, late, now=NOW, pushed=True).next_check == NOW + 300_000


def test_an_empty_shard_leaves_the_index_and_one_with_dead_letters_is_listed_last() -> None:
    filled = apply_changes(ROW, [LaneChange("ready", "1", 1)], now=NOW, pushed=True)
    emptied = apply_changes(filled, [LaneChange("ready", "2", -1)], now=NOW, pushed=True)
    assert (emptied.next_check, emptied.backoff) == (None, 0)
    died = apply_changes(filled, [LaneChange("ready", "2", -1, 1)], now=NOW, pushed=True)
    assert died.next_check == NEVER_MS
    again = apply_changes(died, [LaneChange("ready", "3", 1)], now=NOW, pushed=True)
    assert again.next_check == NOW + FIRST_CHECK_MS
