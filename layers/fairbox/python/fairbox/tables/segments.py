"""Segments: stretches of a lane that receives have passed, each to be read again at a time.

A receive begins behind messages that are held. For each stretch that it passes it files a segment,
so that the message of a crashed consumer is found when its claim ends, not when all held messages
before it have been read. The key of a segment's row says all, and rows expire by themselves.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import Unreadable
from fairbox.model.ids import before, time_of
from fairbox.tables.calls import Rows, key_condition
from fairbox.tables.keys import EXPIRES_AT, SK, Item, due_sk, key, message_sk, segments_pk
from fairbox.tables.partiql import Statement, execute, insertion, raise_first
from fairbox.tables.stored_messages import number
from fairbox.tables.unreadable_items import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fairbox.model.messages import Lane, MessageRef, OpenLane, Shard

TOGETHER_MS: Final = 1_000
"""Claims that end within this time are read again together, when the last of them ends."""
MOST: Final = 8
"""Segments of one stretch: each costs a write unit."""
_KEPT_SECONDS: Final = 86_400
_BETWEEN: Final = "/"
_NEAR_MS: Final = 200
_PAGE: Final = 60


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

    # a segment costs a write unit: what is behind the first seven shares one
    kept, rest = runs[: MOST - 1], [claim for run in runs[MOST - 1 :] for claim in run]
    segments = []
    for run in [*kept, *([rest] if rest else [])]:
        first = min(claim.until for claim in run)
        # the claims of the rest may end far apart: those still held then are filed again
        end = max(claim.until for claim in run if claim.until <= first + TOGETHER_MS)
        segments.append(Segment(end, after, run[-1].key))
        after = run[-1].key

    return segments


def _spread(run: Sequence[ClaimEnd]) -> int:
    ends = [claim.until for claim in run]
    return max(ends) - min(ends)


def joined(segments: Iterable[Segment]) -> list[Segment]:
    """Return segments of one lane in the order of keys, touching or overlapping ones as one."""
    whole: list[Segment] = []
    for segment in sorted(segments, key=lambda one: (one.after, one.last)):
        if whole and segment.after <= whole[-1].last:
            before = whole[-1]
            # the sooner end: what is still held then is filed again
            last, end = max(before.last, segment.last), min(before.end, segment.end)
            whole[-1] = Segment(end, before.after, last)
        else:
            whole.append(segment)
    return whole


def segment_item(shard: tuple[str, int, int], segment: Segment) -> Item:
    """Return the row of a segment; equal segments have one row."""
    sk = _BETWEEN.join((due_sk(segment.end), segment.after, segment.last))
    expires = number(segment.end // 1000 + _KEPT_SECONDS)
    return key(segments_pk(*shard), sk) | {EXPIRES_AT: expires}


def segment_of(ref: MessageRef, end: int) -> Segment:
    """Return the segment of one message, to be read at `end` (ms)."""
    lane: Lane = "ready" if ref.due is None else "later"
    below = message_sk(before(ref.id), ref.due, lane)
    return Segment(end, below, message_sk(ref.id, ref.due, lane))


def segments_of_refs(refs: Iterable[MessageRef], end: int) -> list[Segment]:
    """Return the segments of some messages of a shard, to be read at `end` (ms).

    Neighbours in time share a segment: they were mostly received together.
    """
    segments: list[Segment] = []
    time = 0
    for ref in sorted(refs, key=lambda ref: (ref.due is not None, ref.due or 0, ref.id)):
        one, at = segment_of(ref, end), ref.due or time_of(ref.id)
        near = segments and segments[-1].lane == one.lane and at - time <= _NEAR_MS
        if near:
            segments[-1] = Segment(end, segments[-1].after, one.last)
        else:
            segments.append(one)
        time = at
    return segments


def read_segment(item: Mapping[str, Any]) -> Segment:
    """Return the segment of a row.

    Raises:
        Unreadable: it is none.
    """
    with reading(item, LookupError, ValueError, TypeError, AttributeError):
        end, after, last = item[SK]["S"].split(_BETWEEN)
        return Segment(int(end), after, last)


class SegmentRows(Rows):
    """Reads and files segments."""

    def read(self, shard: Shard, checked: int) -> tuple[list[Segment], bool]:
        """Return the next segments that end behind a time (ms), and whether there are more.

        They are 60, or more that end at one time, so that the next call goes on. They are
        consistent: one that was filed before a check was asked for is among them.
        """
        low, high = due_sk(checked + 1), "~"
        more = False

        pages = self._calls.pages(
            "query",
            TableName=self._table,
            ConsistentRead=True,
            Limit=_PAGE,
            **key_condition(segments_pk(*shard), "#sk BETWEEN :low AND :high", low=low, high=high),
        )

        found = []
        for page in pages:
            for item in page["Items"]:
                with suppress(Unreadable):  # of a newer release, or damaged: a scan finds its part
                    found.append(read_segment(item))

            more = "LastEvaluatedKey" in page
            # a page of damaged rows alone would leave the reader where it was
            if not more or (found and found[0].end != found[-1].end):
                break

        return found, more

    def statements(self, shard: Shard, segments: Sequence[Segment]) -> list[Statement]:
        """Return the statements that file segments (1 WRU each)."""
        return [insertion(self._table, segment_item(shard, segment)) for segment in segments]

    def file(self, shard: Shard, segments: Sequence[Segment]) -> None:
        """File segments (1 WRU each); one that is filed already stays.

        Raises:
            Throttled, Unavailable: some may not be filed.
        """
        raise_first(execute(self._calls, self.statements(shard, segments)))
