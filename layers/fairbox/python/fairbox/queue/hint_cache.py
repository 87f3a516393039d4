"""Cache of hint rows: a consumer that finds messages reads a row once a second, not each time.

A cached row is a hint like the row itself: a wrong one costs reads or time. It is valid for at most
a second, and only while receives find messages and lose no claims. A receive that finds nothing
reads the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.model.clock import milliseconds
from fairbox.tables.hints import group_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.model.clock import Clock
    from fairbox.model.messages import Shard
    from fairbox.tables.hints import Hint

COPY_MS: Final = 1_000
Row = tuple[str, int, int]  # topic, epoch, which row of it


class HintCache:
    """The hint rows that one process has read lately.

    Args:
        clock: how old they are.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[Row, tuple[int, dict[int, Hint]]] = {}

    def get(self, row: Row) -> Mapping[int, Hint] | None:
        """Return a row's hints by shard; None: it is not cached, or too old."""
        read_at, hints = self._rows.get(row, (0, None))
        # a clock that was set back makes no copy last
        if hints is None or not 0 <= milliseconds(self._clock) - read_at < COPY_MS:
            return None
        return hints

    def keep(self, row: Row, hints: Mapping[int, Hint]) -> None:
        """Keep a row as it was read now."""
        self._rows[row] = milliseconds(self._clock), dict(hints)

    def moved(self, shard: Shard, hint: Hint) -> None:
        """Note a hint that this process tried to write, whether it was written or not."""
        topic, epoch, number = shard
        copy = self._rows.get((topic, epoch, group_of(number)))
        if copy is not None:
            copy[1][number] = hint

    def forget(self, shard: Shard) -> None:
        """Drop the shard's row: the next receive reads it."""
        topic, epoch, number = shard
        self._rows.pop((topic, epoch, group_of(number)), None)
