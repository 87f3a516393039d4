"""Compare-and-set of one row, tried again from the row that others have written meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Row = TypeVar("Row")
TRIES: Final = 8


def swap(
    row: Row,
    decide: Callable[[Row], Row],
    write: Callable[[Row, Row], Row | None],
    tries: int = TRIES,
) -> Row | None:
    """Change a row if it is unchanged since it was read.

    Args:
        row: as it was read.
        decide: returns the wanted row; it is called again with the row that others have written.
        write: writes the wanted row (first) over the row as it was read (second); returns None when
            it is written, else the row that others have written.
        tries: how often to write.

    Returns:
        The row as it stands now; None: others were faster each time, and nothing is written.
    """
    for _ in range(tries):
        wanted = decide(row)
        # nothing to change, so no write is paid
        if wanted == row:
            return row
        theirs = write(wanted, row)
        if theirs is None:
            return wanted
        row = theirs
    return None
