"""Sizes and units of the in-memory engine, as DynamoDB counts them."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox.testing.units import item_size, number_size, read_units, value_size, write_units


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": ""}, 0),
        ({"S": "ü"}, 2),
        ({"B": b"123"}, 3),
        ({"N": "0"}, 1),
        ({"N": "100"}, 2),
        ({"N": "-123.45"}, 5),
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"SS": ["ab", "c"]}, 3),
        ({"NS": ["1", "22"]}, 4),
        ({"BS": [b"1", b"22"]}, 3),
        ({"L": []}, 3),
        ({"L": [{"S": "ab"}, {"N": "1"}]}, 3 + 2 + 2 + 2),
        ({"M": {"k": {"S": "ab"}}}, 3 + 1 + 1 + 2),
    ],
)
def test_a_value_has_the_size_that_dynamodb_counts(value: Any, size: int) -> None:
    assert value_size(value) == size
    assert item_size({"näme": value}) == 5 + size


def test_units_round_up_and_are_never_nothing() -> None:
    assert [write_units(size) for size in (0, 1, 1024, 1025)] == [1, 1, 1, 2]
    assert [read_units(size) for size in (0, 4096, 4097)] == [0.5, 0.5, 1.0]
    assert [read_units(size, consistent=True) for size in (0, 4096, 4097)] == [1.0, 1.0, 2.0]
    assert number_size("1") == 2
