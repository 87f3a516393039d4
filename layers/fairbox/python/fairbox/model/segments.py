"""Segments: stretches of a lane that receives have passed, each to be read again at a time. Pure.

A receive begins behind messages that are held. For each stretch that it passes it files a segment,
so that the message of a crashed consumer is found when its claim ends, not when all that is held
before it has been read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairbox.model.stored_messages import OpenLane

TOGETHER_MS: Final = 1_000
"""Claims that end within this time are read again together, when the last of them ends."""
MOST: Final = 8
"""Segments of one stretch: each costs a write unit."""


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A stretch of a lane whose claims end at a time.

    Attributes:
        end: when to read it again, in milliseconds since 1970 UTC.
        after: the sort key behind which it begins; empty: at the head of lane `ready`.
        last: its last sort key.
    """

    end: int
    after: str
    last: str

    @property
    def lane(self) -> OpenLane:
        """The lane that it is a part of."""
        return "later" if "#" in self.last else "ready"


@dataclass(frozen=True, slots=True)
class ClaimEnd:
    """A message that is passed: its sort key, and until when it is held (ms)."""

    key: str
    until: int


def segments_of(passed: Sequence[ClaimEnd], after: str) -> list[Segment]:
    """Return the segments of a stretch, eight at most.

    Args:
        passed: the held messages of the stretch, in the order of their keys.
        after: the sort key behind which the stretch begins.
    """
    runs: list[list[ClaimEnd]] = []
    for claim in passed:
        if runs and _spread([*runs[-1], claim]) <= TOGETHER_MS:
            runs[-1].append(claim)
        else:
            runs.append([claim])
    kept, rest = runs[: MOST - 1], [claim for run in runs[MOST - 1 :] for claim in run]
    segments = []
    for run in [*kept, *([rest] if rest else [])]:
        first = min(claim.until for claim in run)
        end = max(claim.until for claim in run if claim.until <= first + TOGETHER_MS)
        segments.append(Segment(end, after, run[-1].key))
        after = run[-1].key
    return segments


def _spread(run: Sequence[ClaimEnd]) -> int:
    ends = [claim.until for claim in run]
    return max(ends) - min(ends)


def joined(segments: Iterable[Segment]) -> list[Segment]:
    """Return segments of one lane, those that touch or overlap as one, in the order of keys."""
    whole: list[Segment] = []
    for segment in sorted(segments, key=lambda one: (one.after, one.last)):
        if whole and segment.after <= whole[-1].last:
            before = whole[-1]
            last, end = max(before.last, segment.last), min(before.end, segment.end)
            whole[-1] = Segment(end, before.after, last)
        else:
            whole.append(segment)
    return whole
