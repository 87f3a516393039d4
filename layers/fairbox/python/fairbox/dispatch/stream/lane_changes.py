"""Changes of the counts of a shard: one for each stream record, and the row after them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.tables.keys import message_sk
from fairbox.tables.shard_rows import NEVER_MS, ShardRow
from fairbox.tables.stream_records import Change, sequence_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.messages import OpenLane

LANES: Final[tuple[OpenLane, ...]] = ("ready", "later")
FIRST_CHECK_MS: Final = 60_000
PULLED_CHECK_MS: Final = 3_600_000


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


def lane_change_of(change: Change) -> LaneChange | None:
    """Return the effect of a change on the counts; None: it has none."""
    stored = change.stored
    # dead letters are counted by deaths and redrives, which are changes of the message itself
    if stored.lane == "dead":
        return None

    delta = {"INSERT": 1, "REMOVE": -1, "MODIFY": 0}[change.kind]
    deaths = 0
    if change.kind == "MODIFY" and change.old is not None and change.new is not None:
        redriven = change.new.redriven > change.old.redriven
        deaths = int(change.new.any_dead) - int(change.old.any_dead or redriven)
    elif change.kind == "INSERT" and stored.redriven:
        deaths = -1

    if not delta and not deaths:
        return None
    ref = stored.ref
    key = message_sk(ref.id, ref.due, stored.lane)
    due = ref.due if delta > 0 else None
    return LaneChange(stored.lane, change.sequence, delta, deaths, due, key)


def fresh_changes(row: ShardRow, changes: Sequence[LaneChange]) -> list[LaneChange]:
    """Return the changes that a row has not counted yet."""
    counted = {"ready": row.ready_sequence, "later": row.later_sequence}
    order = {lane: sequence_order(sequence) for lane, sequence in counted.items()}
    return [c for c in changes if sequence_order(c.sequence) > order[c.lane]]


def apply_changes(
    row: ShardRow,
    changes: Sequence[LaneChange],
    *,
    now: int,
    pushed: bool,
    kept_ms: int | None = None,
) -> ShardRow:
    """Return the row after the changes that it has not counted yet; the same row when they cancel.

    During a recount, the row also says that changes which cancel were counted.

    Args:
        row: as read.
        changes: in the order of each lane's stream.
        now: milliseconds since 1970 UTC.
        pushed: whether the dispatcher delivers the topic.
        kept_ms: age from which the topic's messages expire; None: they do not.
    """
    after = row
    fresh = fresh_changes(row, changes)

    for lane in LANES:
        mine = [c for c in fresh if c.lane == lane]
        delta = sum(c.delta for c in mine)
        deaths = sum(c.deaths for c in mine)
        if not delta and not deaths and not (mine and row.recount):
            continue

        last = max((c.sequence for c in mine), key=sequence_order)
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

    earliest = min((c.due for c in fresh if c.due is not None), default=None)
    first = FIRST_CHECK_MS if pushed else min(kept_ms or PULLED_CHECK_MS, PULLED_CHECK_MS)
    return _with_next_check(row, after, earliest, now=now, pushed=pushed, first=now + first)


def _with_next_check(
    before: ShardRow,
    after: ShardRow,
    earliest: int | None,
    *,
    now: int,
    pushed: bool,
    first: int,
) -> ShardRow:
    if (after.ready, after.later, after.recount) == (0, 0, None):
        # in the far future: a shard with dead letters alone stays listed, so that they are counted
        check = NEVER_MS if after.dead > 0 else None
        return replace(after, next_check=check, backoff=0) if after != before else after

    check = after.next_check if after.next_check != NEVER_MS else None
    if check is None:
        check = first
        if pushed and after.ready <= 0 and earliest is not None:
            check = max(earliest, now)
    # a delayed message may be due before all that lay there
    if pushed and earliest is not None and earliest < check:
        check = max(earliest, now)

    return replace(after, next_check=check) if check != after.next_check else after
