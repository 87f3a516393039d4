"""Exact counts per lane from a stream that repeats itself, and the next look that follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from fairbox.codec.stream_records import sequence_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.stored_messages import ShardRow

FIRST_LOOK_MS: Final = 60_000
PULLED_LOOK_MS: Final = 3_600_000
NEVER_MS: Final = 253_402_300_799_000  # lists a shard that holds dead letters only: 9999-12-31


@dataclass(frozen=True, slots=True)
class LaneChange:
    """What one record does to the counts of a shard.

    Attributes:
        lane: whose stream order the sequence number is in.
        sequence: the record's.
        delta: messages in the lane: +1, 0, -1.
        deaths: +1 for a death, -1 for a redrive.
        due: of an insert into lane `later`, in milliseconds since 1970 UTC.
    """

    lane: Literal["ready", "later"]
    sequence: str
    delta: int
    deaths: int = 0
    due: int | None = None


def apply_changes(
    row: ShardRow, changes: Sequence[LaneChange], *, now: int, pushed: bool
) -> ShardRow:
    """Return the row after the changes that it has not counted yet; the same row when they cancel.

    Args:
        row: as read.
        changes: in the order of each lane's stream.
        now: milliseconds since 1970 UTC.
        pushed: whether the dispatcher delivers the topic.
    """
    after = row
    earliest: int | None = None
    for lane in ("ready", "later"):
        counted = sequence_order(row.ready_sequence if lane == "ready" else row.later_sequence)
        fresh = [c for c in changes if c.lane == lane and sequence_order(c.sequence) > counted]
        dues = [c.due for c in fresh if c.due is not None]
        earliest = min([*dues, *([] if earliest is None else [earliest])], default=None)
        delta = sum(c.delta for c in fresh)
        deaths = sum(c.deaths for c in fresh)
        if not delta and not deaths:
            continue
        last = max((c.sequence for c in fresh), key=sequence_order)
        if lane == "ready":
            after = replace(
                after,
                ready=after.ready + delta,
                ready_deaths=after.ready_deaths + deaths,
                ready_sequence=last,
            )
        else:
            after = replace(
                after,
                later=after.later + delta,
                later_deaths=after.later_deaths + deaths,
                later_sequence=last,
            )
    return _with_look(row, after, earliest, now=now, pushed=pushed)


def _with_look(
    before: ShardRow, after: ShardRow, earliest: int | None, *, now: int, pushed: bool
) -> ShardRow:
    if after.ready <= 0 and after.later <= 0:
        look = NEVER_MS if after.dead > 0 else None
        return replace(after, look_at=look, backoff=0) if after != before else after
    look = after.look_at if after.look_at != NEVER_MS else None
    if look is None:
        look = now + (FIRST_LOOK_MS if pushed else PULLED_LOOK_MS)
        if pushed and after.ready <= 0 and earliest is not None:
            look = max(earliest, now)
    if pushed and earliest is not None and earliest < look:
        look = max(earliest, now)
    return replace(after, look_at=look) if look != after.look_at else after
