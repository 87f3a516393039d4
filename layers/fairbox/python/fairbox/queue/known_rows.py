"""Rows that a process knows from its receives: hints, and rows of ordered shards.

What is kept may be old: a wrong hint costs reads or time, and a write is conditional on the version
of the row that it changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.model.clock import Clock, milliseconds
from fairbox.tables.hints import Hint, group_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.model.messages import Shard
    from fairbox.tables.key_claims import KeyClaims

COPY_MS: Final = 1_000
Row = tuple[str, int, int]  # topic, epoch, which row of it
_FRESH_MS: Final = 2_000  # how late a message is found that another process gives back
_SHARED_MS: Final = 10_000  # how long a row is read that another process changed
_DELETED: Final = 10_000


class HintCache:
    """Keeps hint rows: a consumer that finds messages reads a row once a second, not each time.

    A copy is valid only while receives find messages and lose no claims. A receive that finds
    nothing reads the row.
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


@dataclass(slots=True)
class _Known:
    """A row, when it was so (ms), and the id behind which there was nothing; empty: unknown."""

    row: KeyClaims
    at: int
    quiet: str | None = None


class KnownRows:
    """Keeps the rows of ordered shards that this process read or wrote last.

    Attributes:
        deleted: messages that this process has deleted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[Shard, _Known] = {}
        self._shared: dict[Shard, int] = {}
        self.deleted: dict[str, None] = {}

    def keep(self, shard: Shard, row: KeyClaims) -> None:
        """Keep a row as it was read or written just now."""
        self._rows[shard] = _Known(row, milliseconds(self._clock))

    def take(self, shard: Shard) -> KeyClaims | None:
        """Return a row that is to be changed, and forget it."""
        known = self._rows.pop(shard, None)
        return None if known is None else known.row

    def forget(self, shard: Shard, *, shared: bool = False) -> None:
        """Forget a row; one that another process changes is read for a while."""
        self._rows.pop(shard, None)
        if shared:
            self._shared[shard] = milliseconds(self._clock) + _SHARED_MS

    def fresh(self, shard: Shard) -> KeyClaims | None:
        """Return a row that is 2 s old at most, and that no other process changes."""
        known = self._fresh(shard)
        return None if known is None else known.row

    def _fresh(self, shard: Shard) -> _Known | None:
        known, now = self._rows.get(shard), milliseconds(self._clock)
        if known is None or not known.at <= now <= known.at + _FRESH_MS:
            return None
        return None if now < self._shared.get(shard, 0) else known

    def silence(self, shard: Shard, behind: str) -> None:
        """Note that nothing could be received up to an id, and nothing lay behind it."""
        known = self._rows.get(shard)  # other threads settle meanwhile
        if known is not None:
            known.quiet = behind

    def quiet(self, shard: Shard) -> str | None:
        """Return the id up to which nothing could be received; None: look from the beginning."""
        known = self._fresh(shard)
        return None if known is None else known.quiet

    def delete(self, ids: list[str]) -> None:
        """Note that messages were deleted."""
        if len(self.deleted) > _DELETED:
            self.deleted.clear()
        self.deleted |= dict.fromkeys(ids)
