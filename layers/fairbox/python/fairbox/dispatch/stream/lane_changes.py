"""Changes of the counts of a shard, one for each stream record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairbox.model.messages import OpenLane


@dataclass(frozen=True, slots=True)
class LaneChange:
    """The effect of one record on the counts of a shard.

    Attributes:
        lane: the lane in whose stream order the sequence number is.
        sequence: the record's.
        delta: messages in the lane: +1, 0, -1.
        deaths: +1 for a death, -1 for a redrive.
        due: of an insert into lane `later`, in milliseconds since 1970 UTC.
        key: the sort key in the lane.
    """

    lane: OpenLane
    sequence: str
    delta: int
    deaths: int = 0
    due: int | None = None
    key: str = ""
