"""Shards whose rows marking need not read, because their inserts and removals cancel out.

A row's stored sequence number says which records it has counted. For a shard whose changes cancel
out, it matters only if it lies between them: if an earlier invocation ended between the insert and
the removal of a message, and counted the insert. Every invocation that writes a row therefore
writes first where it ends, one item for all its rows. An invocation in whose records no other
ended need not read the rows of such shards: one query says so, in place of a read for each shard.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fairbox.dispatch.ports import MarkingStore
    from fairbox.dispatch.stream.lane_changes import LaneChange, Shard
    from fairbox.model.clock import Clock

WORTHWHILE: Final = 4
"""Shards from which on the two queries cost less than the rows."""
ROLLOUT_SECONDS: Final = 120.0
"""Time after a process began in which functions of a release without checkpoints may still run."""
_LONGEST_MS: Final = 3_600_000  # a backlog covers more; the others' checkpoints add up


@dataclass(frozen=True, slots=True)
class Span:
    """The stream records of an invocation.

    Attributes:
        sequences: their sequence numbers, in the order of the stream.
        first, last: when the oldest and the newest were made, in milliseconds since 1970 UTC.
        end: when the last in the order of the stream was made, in the same unit.
    """

    sequences: Sequence[str]
    first: int
    last: int
    end: int

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]]) -> Span | None:
        """Return the span of the records that say when they were made; None where none does."""
        times: list[int] = []
        sequences: list[str] = []
        for record in records:
            with suppress(LookupError, TypeError, ValueError):
                body = record["dynamodb"]
                at = int(float(body["ApproximateCreationDateTime"])) * 1000
                sequences.append(str(body["SequenceNumber"]))
                times.append(at)
        return cls(sequences, min(times), max(times), times[-1]) if times else None


class Checkpoints:
    """The checkpoints of all invocations.

    Args:
        store: keeps them.
        clock: tells when the process began.
    """

    def __init__(self, store: MarkingStore, clock: Clock) -> None:
        self._store = store
        self._from = (clock.now() + ROLLOUT_SECONDS) * 1000

    def write(self, span: Span) -> None:
        """Write where an invocation ends, before it writes a row (1 WRU).

        Raises:
            Unavailable: it is not written, and no row may be.
        """
        self._store.write_checkpoint(span.sequences[-1], span.end)

    def to_read(
        self, changes: Mapping[Shard, Sequence[LaneChange]], span: Span | None
    ) -> Collection[Shard]:
        """Return the shards whose rows must be read (2 RRU, if any may be left out)."""
        settled = {shard for shard, own in changes.items() if _cancel(own)}
        if (
            span is None
            or len(settled) < WORTHWHILE
            or span.first < self._from
            or span.last - span.first > _LONGEST_MS
            or not self._store.checkpoints(span.first, span.last).isdisjoint(span.sequences[:-1])
        ):
            return list(changes)
        settled -= self._store.recounted()  # their changes are kept even if they cancel out
        return [shard for shard in changes if shard not in settled]


def _cancel(changes: Sequence[LaneChange]) -> bool:
    """Whether changes of a shard leave each of its counts as it was."""
    sums: dict[str, list[int]] = {}
    for change in changes:
        lane = sums.setdefault(change.lane, [0, 0])
        lane[0] += change.delta
        lane[1] += change.deaths
    return not any(any(lane) for lane in sums.values())
