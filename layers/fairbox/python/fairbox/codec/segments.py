"""Segments as rows of the deliveries table: the key says all, and rows expire by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.keys import due_sk, key, key_text, message_sk, segments_pk
from fairbox.codec.messages import number
from fairbox.errors import Unreadable
from fairbox.model.ids import before, time_of
from fairbox.model.segments import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.codec.keys import Item
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import Lane

_KEPT_SECONDS: Final = 86_400
_BETWEEN: Final = "/"
_NEAR_MS: Final = 200


def segment_item(shard: tuple[str, int, int], segment: Segment) -> Item:
    """Return the row of a segment; equal segments have one row."""
    sk = _BETWEEN.join((due_sk(segment.end), segment.after, segment.last))
    expires = number(segment.end // 1000 + _KEPT_SECONDS)
    return key(segments_pk(*shard), sk) | {attr.EXPIRES_AT: expires}


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


def segments_behind(checked: int) -> tuple[str, str]:
    """Return the first and last sort key of the segments that end behind a time (ms)."""
    return due_sk(checked + 1), "~"


def read_segment(item: Mapping[str, Any]) -> Segment:
    """Return the segment of a row.

    Raises:
        Unreadable: it is none.
    """
    try:
        end, after, last = item[attr.SK]["S"].split(_BETWEEN)
        return Segment(int(end), after, last)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error
