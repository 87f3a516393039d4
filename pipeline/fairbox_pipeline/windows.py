"""Windows: the part of the history that a run describes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the history: `since` <= time < `until`, ms since 1970 UTC; None: open."""

    since: int | None = None
    until: int | None = None

    def __bool__(self) -> bool:
        """Whether it is a part, not the whole history."""
        return self.since is not None or self.until is not None

    def is_under(self, ms: int, now: int) -> bool:
        """Whether it is known to be shorter than a time."""
        end = now if self.until is None else self.until
        return self.since is not None and end - self.since < ms

    def of(self, frame: DataFrame, time: str) -> DataFrame:
        """Keep the rows whose column `time` (ms) lies in the window."""
        if self.since is not None:
            frame = frame.where(F.col(time) >= self.since)
        if self.until is not None:
            frame = frame.where(F.col(time) < self.until)
        return frame
