"""Claims of keys in a shard's row: small, and read as they were written."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace

import pytest
from fairbox.errors import NewerVersion, Unreadable
from fairbox.tables.key_claims import (
    HELD,
    Failure,
    KeyClaim,
    KeyClaims,
    KeysAside,
    claim_values,
    read_claims,
)
from fairbox.tables.keys import EXPIRES_AT, shard_key
from fairbox.tables.keys_aside import (
    FOLLOWER,
    aside_due_item,
    aside_item,
    read_aside,
    read_aside_due,
)
from hypothesis import given
from hypothesis import strategies as st

SHARD = ("jobs", 0, 3)
IDS = st.uuids().map(str)
TIMES = st.integers(0, 1 << 42)
COUNTS = st.integers(0, 0xFFFF)


def entries() -> st.SearchStrategy[KeyClaim]:
    claim = st.builds(
        KeyClaim,
        st.binary(min_size=8, max_size=8),
        IDS,
        st.sampled_from(["claimed", "waiting", "acked"]),
        TIMES,
        COUNTS,
        st.binary(min_size=12, max_size=12),
        st.just("") | IDS,
        st.lists(IDS, max_size=3).map(tuple),
        st.lists(IDS, max_size=3).map(tuple),
        st.none() | st.builds(Failure, IDS, TIMES, COUNTS),
    )
    return claim.map(lambda e: replace(e, token=b"") if e.state == "waiting" else e)


ROWS = st.builds(
    KeyClaims,
    st.integers(1, 9),
    st.lists(entries(), max_size=30, unique_by=lambda e: e.id).map(tuple),
    aside=st.just(KeysAside())
    | st.builds(KeysAside, st.integers(1, 9), TIMES, st.binary(min_size=8, max_size=8), COUNTS),
)


@given(ROWS)
def test_a_row_is_read_as_it_was_written(row: KeyClaims) -> None:
    assert read_claims(shard_key(*SHARD) | claim_values(row)) == row


@given(entries())
def test_a_key_beside_the_row_is_read_as_it_was_written(entry: KeyClaim) -> None:
    item = aside_item(SHARD, b"12345678", entry)
    assert read_aside(item) == entry
    follower = "00000000-0000-7000-8000-000000000000"
    passed = item | {FOLLOWER: {"B": uuid.UUID(follower).bytes}}
    assert read_aside(passed).follower == follower
    due = aside_due_item(SHARD, b"12345678", entry)
    assert read_aside_due(due) == (entry.until, entry.key)
    assert item[EXPIRES_AT] == {"N": str(entry.until // 1000 + 366 * 86_400)}


@given(ROWS, st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_row_is_unreadable_or_another(row: KeyClaims, place: int, byte: int) -> None:
    values = shard_key(*SHARD) | claim_values(row)
    if HELD in values:
        packed = bytearray(values[HELD]["B"])
        packed[place % len(packed)] = byte
        for cut in (bytes(packed), bytes(packed[:place])):
            try:
                read_claims(values | {HELD: {"B": cut}})
            except (Unreadable, NewerVersion):
                continue


def test_an_item_beside_the_row_that_is_damaged_is_unreadable() -> None:
    for item in (
        {},
        {HELD: {"B": b""}},
        {HELD: {"B": b"\x00" * 9}},
        {"sk": {"S": "t#x#y"}},
    ):
        with pytest.raises(Unreadable):
            read_aside(item)
        with pytest.raises(Unreadable):
            read_aside_due(item)


def claimed(count: int, *, calls: int = 10) -> KeyClaims:
    """Return a row of keys that were claimed so many a call, within some seconds."""
    rng = random.Random(1)
    made = []
    for n in range(count):
        call, place = divmod(n, calls)
        token = bytes(10) + bytes((call % 256, place))
        ms = 1_760_000_000_000 + 50 * n
        message = str(uuid.UUID(int=(ms << 80) | (7 << 76) | rng.getrandbits(76)))
        key = rng.getrandbits(64).to_bytes(8, "big")
        until = 1_760_000_030_000 + 500 * call
        made.append(KeyClaim(key, message, "claimed", until, 1, token))
    return KeyClaims(1, tuple(made))


@pytest.mark.parametrize(("keys", "most"), [(10, 500), (64, 1_700), (300, 8_000), (1_000, 26_000)])
def test_an_entry_takes_some_25_bytes(keys: int, most: int) -> None:
    assert len(claim_values(claimed(keys))[HELD]["B"]) <= most


def test_a_row_of_a_newer_format_is_left_to_those_who_know_it() -> None:
    row = shard_key(*SHARD) | claim_values(claimed(1))
    with pytest.raises(NewerVersion):
        read_claims(row | {HELD: {"B": b"\x03"}})
    with pytest.raises(Unreadable):
        read_claims(row | {HELD: {"B": b"\x01"}})
