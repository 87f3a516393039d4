"""Ids: UUIDv7, ascending whatever the clock does."""

from __future__ import annotations

import random
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from fairbox import InvalidInput
from fairbox.model.ids import IdGenerator, new_id, parse_id, time_of
from fairbox.testing import ManualClock
from hypothesis import given
from hypothesis import strategies as st

LAST = "ffffffff-ffff-7fff-bfff-ffffffffffff"


def generator(clock: ManualClock | None = None, seed: int = 1) -> IdGenerator:
    return IdGenerator(clock or ManualClock(), random.Random(seed).getrandbits)


def test_an_id_has_the_bits_of_rfc_9562() -> None:
    clock = ManualClock(1_700_000_000.123)
    made = uuid.UUID(generator(clock).next())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == 1_700_000_000_123
    assert time_of(str(made)) == 1_700_000_000_123


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=60))
def test_ids_ascend_whatever_the_clock_does(steps: list[float]) -> None:
    clock = ManualClock()
    ids = generator(clock)
    made = []
    for step in steps:
        clock.set(clock.now() + step)
        made.append(ids.next())
    assert made == sorted(set(made))


def test_after_a_step_back_ids_go_on_from_the_last_millisecond() -> None:
    clock = ManualClock()
    ids = generator(clock)
    first = ids.next()
    clock.set(clock.now() - 3600)
    second = ids.next()
    assert second > first
    assert time_of(second) == time_of(first)


@given(st.integers(0, 299), st.booleans())
def test_an_id_sorts_above_after(ahead: int, past: bool) -> None:
    other = generator(ManualClock(1_760_000_000 + (-ahead if past else ahead)), seed=2).next()
    assert generator().next(other) > other


def test_ids_of_one_millisecond_do_not_run_out_at_the_end_of_the_random_part() -> None:
    clock = ManualClock()
    top = IdGenerator(clock, lambda bits: (1 << bits) - 1)
    made = [top.next() for _ in range(3)]
    full = "".join([made[0][:14], "7fff-bfff-ffffffffffff"])
    above = top.next(full)
    assert above > full
    assert time_of(above) == time_of(full) + 1


def test_an_id_above_another_moves_no_later_id() -> None:
    ids = generator()
    other = generator(ManualClock(1_760_000_200), seed=2).next()
    assert ids.above(other) > other
    assert time_of(ids.next()) == 1_760_000_000_000


def test_above_the_last_id_there_is_none() -> None:
    ids = generator()
    with pytest.raises(InvalidInput) as caught:
        ids.next(LAST)
    assert caught.value.field == "after"
    assert time_of(ids.next()) == 1_760_000_000_000  # and the process goes on as before


def test_threads_share_one_order_without_repetition() -> None:
    def make(_: int) -> list[str]:
        return [new_id() for _ in range(500)]

    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(make, range(8)))
    assert all(part == sorted(part) for part in parts)
    assert len({i for part in parts for i in part}) == 4000


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x",
        None,
        7,
        b"0198f3c2-7d7e-7abc-8def-0123456789ab",
        "0198f3c2-7d7e-7abc-8def-0123456789AB",
        "0198f3c2-7d7e-4abc-8def-0123456789ab",
        "0198f3c2-7d7e-7abc-0def-0123456789ab",
        "0198f3c27d7e7abc8def0123456789ab",
        "{198f3c2-7d7e-7abc-8def-0123456789a}",
        "0198f3c2-7d7e-7abc-8def-0123456789ab ",
    ],
)
def test_what_is_no_canonical_uuidv7_is_refused_by_name(bad: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_id(bad, field="ref.id")
    assert caught.value.field == "ref.id"
