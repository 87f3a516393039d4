"""Compare-and-set: decided anew on what others wrote, and given up when they always are faster."""

from __future__ import annotations

from fairbox.model.swap import swap


class Row:
    """A number that others change before our first writes."""

    def __init__(self, *others: int) -> None:
        self.number = 1
        self.others = list(others)

    def write(self, wanted: int, before: int) -> int | None:
        if self.others:
            self.number = self.others.pop(0)
        if self.number != before:
            return self.number
        self.number = wanted
        return None


def test_a_row_that_others_changed_is_decided_on_anew() -> None:
    row = Row(10, 20)
    assert swap(1, lambda number: number + 5, row.write) == row.number == 25


def test_a_row_that_is_as_it_shall_be_is_not_written() -> None:
    row = Row(10, 20)
    assert swap(1, lambda number: max(number, 10), row.write) == 10
    assert row.others == [20]


def test_a_row_that_others_always_change_first_is_left_to_them() -> None:
    row = Row(2, 3, 4)
    assert swap(1, lambda number: number + 5, row.write, tries=3) is None
    assert row.number == 4
