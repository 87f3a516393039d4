"""Deferred keys: packed into the shard row and read again, and never too many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Unreadable
from fairbox.tables.deferred_keys import (
    EVERY_KEY,
    HOLDS,
    MAX_DEFERRED,
    NAME_BYTES,
    DeferredKey,
    DeferredKeys,
    deferred_values,
    ordered,
    read_deferred,
)
from fairbox.tables.key_claims import read_claims
from fairbox.tables.keys import shard_key
from fairbox.tables.shard_rows import ROW_VERSION
from fairbox.testing.units import item_size
from hypothesis import given
from hypothesis import strategies as st

from tests.support import strategies

if TYPE_CHECKING:
    from collections.abc import Sequence

ROW = shard_key("orders", 0, 3)


@given(
    st.integers(0, 10**9),
    st.lists(strategies.holds, max_size=70),
    st.just("") | strategies.ids(),
    strategies.times,
    st.binary(min_size=NAME_BYTES, max_size=NAME_BYTES),
)
def test_a_row_is_read_as_it_was_written(
    version: int, entries: list[DeferredKey], start: str, since: int, audience: bytes
) -> None:
    row = DeferredKeys(version, tuple(entries), start, since, audience)
    nothing = not entries and not start
    assert read_deferred(ROW | deferred_values(row)) == (DeferredKeys(version) if nothing else row)


def test_twenty_entries_cost_one_write_unit_and_64_three() -> None:
    hold = DeferredKey(b"name", b"digest!!", "0199c82d-089c-769e-9208-19774465901f", 1)
    for count, units in ((20, 1), (MAX_DEFERRED, 3)):
        item = ROW | deferred_values(DeferredKeys(7, (hold,) * count))
        assert -(-item_size(item) // 1024) == units


@pytest.mark.parametrize(
    "packed", [b"", b"\x01", b"\x02" + bytes(28), b"\x01" + bytes(28) + b"half an entry"]
)
def test_what_is_not_ours_is_unreadable(packed: bytes) -> None:
    item: dict[str, Any] = ROW | {
        ROW_VERSION: {"N": "1"},
        HOLDS: {"B": packed},
    }
    with pytest.raises(Unreadable):
        read_deferred(item)


def test_consumers_and_visits_do_not_read_each_others_entries() -> None:
    row = ROW | deferred_values(
        DeferredKeys(4, (), "0199c82d-089c-769e-9208-19774465901f", 5, b"abcd")
    )
    assert read_claims(row).version == 4
    assert read_claims(row).after == ""
    assert read_claims(row).entries == ()


def _covered(entries: Sequence[DeferredKey], hold: DeferredKey) -> bool:
    return any(
        e.subscription == hold.subscription and e.key in (hold.key, EVERY_KEY) and e.id <= hold.id
        for e in entries
    )


@given(st.lists(strategies.holds, max_size=150), st.integers(1, 3))
def test_too_many_entries_become_a_wait_of_their_subscription_that_covers_them(
    drawn: list[DeferredKey], subscriptions: int
) -> None:
    entries = [
        DeferredKey(bytes([0, 0, 0, n % subscriptions]), e.key, e.id, e.due, e.state)
        for n, e in enumerate(drawn)
    ]
    kept = ordered(entries)
    blocked = [e for e in entries if e.state == "blocked"]
    assert len(kept) <= max(MAX_DEFERRED, len(blocked) + subscriptions)
    assert list(kept) == sorted(kept, key=lambda e: e.id)
    assert all(e in kept for e in blocked)
    for entry in entries:
        assert _covered(kept, entry)
    for entry in (e for e in kept if e.whole and e not in entries):
        mine = [e for e in entries if e.subscription == entry.subscription and e not in blocked]
        assert entry.due == min(e.due for e in mine)
