"""Shards and partitions: golden vectors, and that the two never correlate."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from fairbox.model.epochs import partition_number, shard_number
from hypothesis import given
from hypothesis import strategies as st

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "hashing.md"
MODULI = (8, 1000, 2**32, 4, 1000, 2**64)


def rows() -> list[tuple[str, list[int]]]:
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            name, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
            text, _, times = name.strip("`").partition(" * ")
            found.append((json.loads(text) * int(times or 1), [int(n) for n in numbers]))
    return found


def test_the_page_covers_what_keys_look_like() -> None:
    keys = [key for key, _ in rows()]
    assert len(set(keys)) >= 12
    sizes = {len(key.encode()) for key in keys}
    assert {0, 1, 256} <= sizes
    assert any(not key.isascii() for key in keys)


@pytest.mark.parametrize(("key", "numbers"), rows())
def test_every_vector_of_the_page_holds(key: str, numbers: list[int]) -> None:
    functions = [shard_number] * 3 + [partition_number] * 3
    assert [f(key, m) for f, m in zip(functions, MODULI, strict=True)] == numbers


def test_the_empty_key_is_read_unsigned_and_little_endian() -> None:
    # SHA-256("") = e3b0c442 98fc1c14 ...
    assert shard_number("", 2**32) == 0x42C4B0E3
    # SHA-256("a") = ca978112 ...
    assert shard_number("a", 2**32) == 0x128197CA


def test_partitions_are_big_endian_in_a_domain_of_their_own() -> None:
    digest = hashlib.sha256(b"fairbox/partition\0customer-42").digest()
    assert partition_number("customer-42", 2**64) == int.from_bytes(digest[:8], "big")


@given(st.text(max_size=80), st.integers(1, 1000))
def test_numbers_lie_within_the_count(key: str, count: int) -> None:
    assert 0 <= shard_number(key, count) < count
    assert 0 <= partition_number(key, count) < count


def test_keys_spread_evenly_and_partition_says_nothing_of_shard() -> None:
    pairs = Counter((shard_number(f"k{n}", 4), partition_number(f"k{n}", 4)) for n in range(16_000))
    assert len(pairs) == 16
    assert all(800 < count < 1200 for count in pairs.values())
