"""Times, latencies and windows: what is known of them, and their texts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COARSE: Final = "s"
"""Precision of a time that is a whole second, rounded down."""
SECOND_MS: Final = 1000
UNDER_A_SECOND: Final = "< 1 s"
_LAST: Final = 253_402_300_799_999  # of the year 9999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time(ms: int) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds; one that no calendar has, as `N ms`."""
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_text(ms: Column, pattern: str = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'") -> Column:
    """Return times (ms) as `iso_time` has them, or in another pattern; else the number."""
    text = F.date_format(F.timestamp_millis(ms), pattern)
    return F.when(ms.between(0, _LAST), text).otherwise(ms.cast("string"))


def is_unknown(latency: float | None, precision: str | None) -> bool:
    """Whether a latency (ms) is only known to be under a second: then it is given as 1,000."""
    return latency is not None and precision == COARSE and latency <= SECOND_MS


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the history: `since` <= time < `until`, ms since 1970 UTC; None: open."""

    since: int | None = None
    until: int | None = None

    def __bool__(self) -> bool:
        """Whether it is a part, not the whole history."""
        return self.since is not None or self.until is not None

    def of(self, frame: DataFrame, time: str) -> DataFrame:
        """Keep the rows whose column `time` (ms) lies in the window."""
        if self.since is not None:
            frame = frame.where(F.col(time) >= self.since)
        if self.until is not None:
            frame = frame.where(F.col(time) < self.until)
        return frame
