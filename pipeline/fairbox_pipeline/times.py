"""Times and latencies: what is known of them, and their texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

COARSE: Final = "s"
"""Precision of a time that is a whole second, rounded down."""
SECOND_MS: Final = 1000
UNDER_A_SECOND: Final = "< 1 s"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time(ms: int) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds; one that no calendar has, as `N ms`."""
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_unknown(latency: float | None, precision: str | None) -> bool:
    """Whether a latency (ms) is only known to be under a second: then it is given as 1,000."""
    return latency is not None and precision == COARSE and latency <= SECOND_MS
