"""Hint rows: where receives begin in each of sixteen shards, and the times of the next checks.

A hint is written if it is unchanged since it was read.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.model.clock import milliseconds
from fairbox.model.ids import before
from fairbox.model.swap import swap
from fairbox.tables.calls import Calls, ConditionFailed, Rows
from fairbox.tables.keys import Key, due_sk, hint_key, message_sk, walk_key
from fairbox.tables.partiql import Statement, same, statement
from fairbox.tables.stored_messages import number
from fairbox.tables.write_expressions import WriteExpressions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairbox.model.messages import MessageRef, Shard
    from fairbox.tables.segments import Segment, SegmentRows

# of a row for sixteen shards: for each of them, the name with its place behind
HINT_AFTER: Final = "f"  # B, the UUID up to which all was claimed
HINT_LOOK: Final = "l"  # N, ms, when to look at what receives have passed
HINT_TIMES: Final = "g"  # B, when to scan from the head, segments read, delayed messages passed

RECEIVES_CHECK_MS: Final = 60_000
"""Time between two checks of what receives have passed in a shard, at most."""

MAX_CHECK_AHEAD_MS: Final = 120_000
"""A minute, and what clocks may be apart."""
SHARDS_A_ROW: Final = 16
_TIME_BYTES: Final = 6
_TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class Hint:
    """The place where a receive begins in a shard, and when passed messages are checked next.

    All times are in milliseconds since 1970 UTC.

    Attributes:
        after: all ids up to this one were claimed when it was written; empty: begin at the head.
        next_check: when the earliest of those claims ends or a delayed message is due; None: nobody
            has looked yet.
        scan_at: when to scan from the head up to `after`; 0: at the next check.
        checked: segments that end up to then have been read.
        later: all delayed messages up to this sort key were claimed when it was written; empty:
            begin at the head.
    """

    after: str = ""
    next_check: int | None = None
    scan_at: int = 0
    checked: int = 0
    later: str = ""

    def check_due(self, now: int) -> bool:
        """Whether the check is due at a time (ms).

        Checks are a minute apart at most: one further off was written under another clock.
        """
        return self.next_check is None or not now < self.next_check <= now + MAX_CHECK_AHEAD_MS

    def scan_due(self, now: int) -> bool:
        """Whether to scan from the head at a time (ms), at most a minute after the last scan."""
        return not now < self.scan_at <= now + MAX_CHECK_AHEAD_MS


def group_of(shard: int) -> int:
    """Return the number of the hint row, in its epoch, that holds a shard's hint."""
    return shard // SHARDS_A_ROW


def hint_keys(topic: str, epoch: int, shards: int) -> list[Key]:
    """Return the keys of all hint rows and walk positions that an epoch of so many shards has."""
    groups = [hint_key(topic, epoch, group) for group in range(group_of(shards - 1) + 1)]
    return groups + [walk_key(topic, epoch, shard) for shard in range(shards)]


def after_name(shard: int) -> str:
    """Return the attribute that holds the place where a receive begins in the shard."""
    return f"{HINT_AFTER}{shard % SHARDS_A_ROW}"


def check_name(shard: int) -> str:
    """Return the attribute that holds the time of the next check of the shard."""
    return f"{HINT_LOOK}{shard % SHARDS_A_ROW}"


def times_name(shard: int) -> str:
    """Return the attribute that holds the shard's other times."""
    return f"{HINT_TIMES}{shard % SHARDS_A_ROW}"


def hint_names(shard: int) -> tuple[str, str, str]:
    """Return the attributes that hold a shard's hint."""
    return after_name(shard), check_name(shard), times_name(shard)


def hint_values(hint: Hint, shard: int) -> dict[str, Any]:
    """Return the attributes of a shard's hint, without empty ones."""
    values: dict[str, Any] = {}
    if hint.after:
        values[after_name(shard)] = {"B": uuid.UUID(hint.after).bytes}
    if hint.next_check is not None:
        values[check_name(shard)] = number(hint.next_check)
    if hint.scan_at or hint.checked or hint.later:
        values[times_name(shard)] = {"B": _pack(hint)}
    return values


def read_hint(item: Mapping[str, Any], shard: int) -> Hint:
    """Return a shard's hint; the empty one where there is none, or none that can be read."""
    after, next_check = "", None
    # each part for itself: a missing one costs reads, and hides nothing
    with suppress(KeyError, TypeError, ValueError):
        after = str(uuid.UUID(bytes=bytes(item[after_name(shard)]["B"])))
    with suppress(KeyError, TypeError, ValueError):
        next_check = int(item[check_name(shard)]["N"])

    hint = Hint(after, next_check)
    with suppress(KeyError, TypeError, ValueError):
        hint = _unpacked(hint, bytes(item[times_name(shard)]["B"]))
    return hint


def _pack(hint: Hint) -> bytes:
    """Return the times packed, so that a row of sixteen shards stays within a write unit."""
    packed = _time(hint.scan_at) + _time(hint.checked)
    if hint.later:
        due, _, message_id = hint.later.partition("#")
        packed += _time(int(due)) + uuid.UUID(message_id).bytes
    return packed


def _unpacked(hint: Hint, packed: bytes) -> Hint:
    scan_at, checked = (int.from_bytes(packed[at : at + _TIME_BYTES]) for at in (0, _TIME_BYTES))
    later, rest = "", packed[2 * _TIME_BYTES :]
    if rest:
        due = int.from_bytes(rest[:_TIME_BYTES])
        later = f"{due_sk(due)}#{uuid.UUID(bytes=rest[_TIME_BYTES:])}"
    return replace(hint, scan_at=scan_at, checked=checked, later=later)


def _time(milliseconds: int) -> bytes:
    return milliseconds.to_bytes(_TIME_BYTES)


@dataclass(frozen=True, slots=True)
class HintMove:
    """A hint to be written if it is unchanged since it was read; segments of passed messages."""

    shard: Shard
    before: Hint
    after: Hint
    passes: tuple[Segment, ...] = ()


class HintRows(Rows):
    """Reads and changes hint rows."""

    def __init__(self, calls: Calls, table: str, segments: Callable[[], SegmentRows]) -> None:
        super().__init__(calls, table)
        self._segments = segments

    def read(self, topic: str, epoch: int, group: int) -> dict[int, Hint]:
        """Return the hints of sixteen shards by shard, eventually consistent (0.5 RRU)."""
        # a stale hint costs reads; whoever moves it is refused, and learns the present one
        item = self._calls.get(self._table, hint_key(topic, epoch, group), consistent=False) or {}
        first = group * SHARDS_A_ROW
        return {shard: read_hint(item, shard) for shard in range(first, first + SHARDS_A_ROW)}

    def move(self, move: HintMove) -> Hint | None:
        """File the segments of a move, then write its hint if it is unchanged since it was read.

        Returns:
            None if it was written; the present hint if another process was faster.
        """
        # segments first: of a hint that moved without them, only the scan finds what it passed
        if move.passes:
            self._segments().file(move.shard, move.passes)

        _, epoch, shard = move.shard
        old, new = hint_values(move.before, shard), hint_values(move.after, shard)
        write = WriteExpressions()
        for place, name in zip(("a", "l", "t"), hint_names(shard), strict=True):
            write.same(place, name, old.get(name), f"old_{place}")
            write.put(place, name, new.get(name))

        item = self._calls.refused(
            "update_item",
            TableName=self._table,
            Key=hint_key(move.shard[0], epoch, group_of(shard)),
            **write.expressions,
            **write.bound,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        there = None if item is None else read_hint(item, shard)
        # ours, when the answer to an earlier try was lost
        return None if there == move.after else there

    def statements(self, move: HintMove) -> list[Statement]:
        """Return the same move as statements, for a row that is there."""
        topic, epoch, shard = move.shard
        old, new = hint_values(move.before, shard), hint_values(move.after, shard)
        wheres, parameters = same({name: old.get(name) for name in hint_names(shard)})
        # unlike an update, a statement makes no missing row
        moved = statement(
            "UPDATE",
            self._table,
            hint_key(topic, epoch, group_of(shard)),
            clauses=" ".join(f'SET "{name}" = ?' for name in new),
            values=list(new.values()),
            wheres=wheres,
            parameters=parameters,
        )

        filed = self._segments().statements(move.shard, move.passes) if move.passes else []
        return [moved, *filed]

    def wake(self, refs: Sequence[MessageRef]) -> None:
        """Let receives find messages that lie before where they begin, or are due soon."""
        groups: dict[tuple[str, int, int], list[MessageRef]] = defaultdict(list)
        for ref in refs:
            groups[ref.topic, ref.epoch, group_of(ref.shard)].append(ref)

        # a read for each row, not each message
        for (topic, epoch, group), members in groups.items():
            hints = self.read(topic, epoch, group)

            checks: dict[int, int] = {}
            behind: dict[int, str] = {}
            for ref in members:
                hint = hints[ref.shard]
                self._lower_later((topic, epoch, ref.shard), hint, ref)
                if ref.due is None and hint.after and ref.id <= hint.after:
                    behind[ref.shard] = min(ref.id, behind.get(ref.shard, ref.id))
                # no next check: nobody has looked yet, so that the next receive checks anyway
                elif (
                    ref.due is not None
                    and hint.next_check is not None
                    and ref.due < hint.next_check
                ):
                    checks[ref.shard] = min(ref.due, checks.get(ref.shard, ref.due))

            # a write for each shard: with the lowest id, receives find the others too
            for shard, first in behind.items():
                self.lower_after((topic, epoch, shard), first)
            if checks:
                self.lower_checks(topic, epoch, checks)

    def lower_after(self, shard: Shard, message_id: str) -> bool:
        """Let receives begin no later than at this message; return whether they had passed it."""
        topic, epoch, number_ = shard
        bound = hint_values(Hint(after=before(message_id)), number_)[after_name(number_)]
        return self._lower(topic, epoch, group_of(number_), {after_name(number_): bound})

    def lower_checks(self, topic: str, epoch: int, checks: Mapping[int, int]) -> None:
        """Schedule scans from the heads of these shards at these times (ms), if not before."""
        groups: dict[int, dict[str, Any]] = {}
        for shard, due in checks.items():
            groups.setdefault(group_of(shard), {})[check_name(shard)] = number(due)

        for group, values in groups.items():
            if self._lower(topic, epoch, group, values) or len(values) == 1:
                continue
            for name, value in values.items():  # some are lower already: each for itself
                self._lower(topic, epoch, group, {name: value})

    def come_back(self, shard: Shard, segments: Sequence[Segment]) -> None:
        """File segments that end before a shard's next check, and make that check come in time."""
        self._segments().file(shard, segments)
        at = min(segment.end for segment in segments)
        # else the regular check reads them, without a write
        if at < milliseconds(self._calls.clock) + RECEIVES_CHECK_MS:
            self._call_back(shard, at)

    def _call_back(self, shard: Shard, at: int) -> None:
        """Let segments that were filed with an end at a time (ms) be read then (1 WRU)."""
        topic, epoch, number_ = shard
        place = {"TableName": self._table, "Key": hint_key(topic, epoch, group_of(number_))}

        try:
            answer = self._calls.call(
                "update_item",
                **place,
                UpdateExpression="SET #l = :l",
                # a check that comes sooner must not be put off
                ConditionExpression="#l > :l",
                ExpressionAttributeNames={"#l": check_name(number_)},
                ExpressionAttributeValues={":l": number(at)},
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
            item = answer["Attributes"]
        except ConditionFailed as failed:
            item = failed.old

        def called(hint: Hint) -> Hint:
            # a check under another clock has read segments up to a later time
            return hint if hint.checked < at else replace(hint, checked=at - 1, next_check=at)

        self._swap(shard, read_hint(item, number_), called)

    def _lower_later(self, shard: Shard, hint: Hint, ref: MessageRef) -> None:
        """Make receives find a delayed message that was committed in a part already passed."""
        due = ref.due
        if due is None or message_sk(ref.id, due, "later") > hint.later:
            return
        # receives begin behind the place: it is to lie just below the message
        place = message_sk(before(ref.id), due, "later")

        def lower(hint: Hint) -> Hint:
            next_check = due if hint.next_check is None else min(hint.next_check, due)
            return replace(hint, later=min(hint.later, place), next_check=next_check)

        self._swap(shard, hint, lower)

    def _swap(self, shard: Shard, hint: Hint, decide: Callable[[Hint], Hint]) -> None:
        """Change a hint; one that others keep changing is left to the next check."""
        swap(hint, decide, lambda new, old: self.move(HintMove(shard, old, new)), _TRIES)

    def _lower(self, topic: str, epoch: int, group: int, values: Mapping[str, Any]) -> bool:
        """Set attributes where all of them are greater; a missing one is as low as can be."""
        fields = {f"#f{n}": name for n, name in enumerate(values)}
        return self._calls.written(
            "update_item",
            TableName=self._table,
            Key=hint_key(topic, epoch, group),
            UpdateExpression="SET " + ", ".join(f"{f} = :{f[1:]}" for f in fields),
            ConditionExpression=" AND ".join(f"{f} > :{f[1:]}" for f in fields),
            ExpressionAttributeNames=fields,
            ExpressionAttributeValues={f":f{n}": value for n, value in enumerate(values.values())},
        )
