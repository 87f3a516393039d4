"""Reclaim of messages that receives have passed: their claim has ended, or they are due now.

One consumer at a time checks a shard, under a lease in the shard's hint. It reads the segments that
have ended, claims the free messages in them, and files the held ones again. Once a minute it also
scans the lane from its head, because segments may be missing: a write was lost, or clocks were
apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fairbox.errors import FAILED
from fairbox.model.clock import Clock, milliseconds
from fairbox.queue.rotation import Reading
from fairbox.queue.unordered_reader import MOVE_OVER, Ask, LaneReader, Room, Window
from fairbox.tables.hints import MAX_CHECK_AHEAD_MS, RECEIVES_CHECK_MS, Hint, HintMove
from fairbox.tables.keys import due_sk, message_sk
from fairbox.tables.segments import ClaimEnd, Segment, joined, segment_of, segments_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from fairbox.model.messages import MessageRef, OpenLane, Shard
    from fairbox.queue.claims import Claimer
    from fairbox.queue.models import Taken
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

_LEASE_MS: Final = 1_500  # after which another process checks, because the first may have died
_SCAN_LEASE_MS: Final = 5_000  # the same of a scan, which goes on from receive to receive
_APART_MS: Final = 500  # between checks that are not called for
_SETTLED_MS: Final = 2_000  # how long ago a delayed message was due, to be passed
_SCAN_SHARE: Final = 0.5  # of the room of a receive
_TRIES: Final = 4


@dataclass(slots=True)
class _Run:
    """A check of one shard under way.

    Attributes:
        ask, room: the request, and the units left.
        now: when it began (ms).
        taken: the messages claimed.
        filed: the segments to file.
        next: times of the next check (ms), of which the first counts.
        reading: how far the receive has read the shard.
    """

    ask: Ask
    room: Room
    now: int
    taken: list[Taken] = field(default_factory=list)
    filed: list[Segment] = field(default_factory=list)
    next: list[int] = field(default_factory=list)
    reading: Reading = field(default_factory=Reading)

    @property
    def wanted(self) -> int:
        """The number of messages still wanted."""
        return self.ask.wanted - len(self.taken)


class Reclaim:
    """The checks that one process makes.

    Args:
        clock, rng: time, and which lane comes first.
    """

    def __init__(
        self, tables: Tables, reader: LaneReader, claimer: Claimer, clock: Clock, rng: Random
    ) -> None:
        self._tables = tables
        self._reader = reader
        self._claimer = claimer
        self._clock = clock
        self._rng = rng
        # the lane that this process scans, and up to which sort key it has
        self._scans: dict[Shard, tuple[OpenLane, str]] = {}

    def due(self, shard: Shard, hint: Hint) -> bool:
        """Whether a check is due, or this process is in the middle of a scan."""
        return shard in self._scans or hint.check_due(milliseconds(self._clock))

    def scans(self, shard: Shard) -> bool:
        """Whether this process is in the middle of a scan."""
        return shard in self._scans

    def run(self, ask: Ask, hint: Hint, room: Room, reading: Reading) -> tuple[list[Taken], Hint]:
        """Check a shard, unless another process does; return messages and the hint (2 WRU).

        A scan that this process has begun goes on without a write, until its lease is to be renewed
        or it ends.

        Raises:
            Throttled, Unavailable: messages claimed without an answer are visible again in time.
        """
        now = milliseconds(self._clock)
        run = _Run(ask, room, now, reading=reading)
        if not hint.check_due(now):
            return run.taken, self._scan_on(run, hint)

        scans = ask.shard in self._scans or hint.scan_due(now)
        scan_at = now + _SCAN_LEASE_MS if scans else hint.scan_at
        leased = replace(hint, next_check=now + _LEASE_MS, scan_at=scan_at)
        there = self._tables.hints.move(HintMove(ask.shard, hint, leased))
        if there is not None:
            # others have changed the hint, and may be checking now: a scan begins anew
            self._scans.pop(ask.shard, None)
            return [], there

        steps = [self._segments, self._later]
        if self._rng.randrange(2):  # neither starves the other
            steps.reverse()
        after = leased
        for step in steps:
            after = step(run, hint, after)

        if scans:
            after = self._scan(run, after)
        return run.taken, self._end(run, leased, after)

    def _scan_on(self, run: _Run, hint: Hint) -> Hint:
        """Go on with a scan between checks; return the hint."""
        shard = run.ask.shard
        after = self._scan(run, hint)
        self._tables.segments.file(shard, run.filed)
        if after == hint and hint.scan_at > run.now + _SCAN_LEASE_MS // 2:
            return hint
        scan_at = run.now + _SCAN_LEASE_MS if after == hint else after.scan_at
        next_check = min([hint.next_check or run.now, *(segment.end for segment in run.filed)])
        after = replace(hint, scan_at=scan_at, next_check=next_check)
        return self._tables.hints.move(HintMove(shard, hint, after)) or after

    def _segments(self, run: _Run, hint: Hint, after: Hint) -> Hint:
        """Read the stretches whose claims have ended; return the hint with the time checked."""
        if hint.next_check is None:
            return replace(after, checked=run.now - 1)  # nobody has filed anything yet

        # a time in the future was written under another clock
        ahead = hint.checked > run.now + MAX_CHECK_AHEAD_MS
        checked = run.now - MAX_CHECK_AHEAD_MS if ahead else hint.checked
        found, more = self._tables.segments.read(run.ask.shard, checked)
        ended = [segment for segment in found if segment.end <= run.now]
        if len(ended) < len(found):
            run.next.append(found[len(ended)].end)
        elif more:
            run.next.append(run.now)
            last = ended[-1].end
            # those behind may end at the same time
            if ended[0].end < last:
                ended = [segment for segment in ended if segment.end < last]

        if not ended:
            return after

        checked = max(segment.end for segment in ended)
        stretches = [
            stretch
            for lane in ("ready", "later")
            for stretch in joined(segment for segment in ended if segment.lane == lane)
        ]
        for stretch in stretches:
            self._read(run, stretch, checked)

        return replace(after, checked=checked)

    def _read(self, run: _Run, stretch: Segment, checked: int) -> None:
        """Claim the free messages of a stretch; file the held ones, and the part not read."""
        window = Window(stretch.lane, cursor=stretch.after, upto=stretch.last)
        again = max(run.now, checked + 1)
        passed: list[ClaimEnd] = []

        while run.wanted > 0 and not window.ended:
            known = len(window.seen)
            free = self._reader.read(window, run.ask, run.room)
            if free is None:
                break
            ends = self._claim(run, free)
            for stored in window.seen[known:]:
                until = ends.get(stored.ref) or stored.claimed_until(run.now) or again
                passed.append(ClaimEnd(_key(stored), max(until, again)))

        run.filed += segments_of(passed, stretch.after)
        if not window.ended:
            run.filed.append(Segment(again, window.cursor, stretch.last))

    def _later(self, run: _Run, hint: Hint, after: Hint) -> Hint:
        """Claim delayed messages that are due; return the hint behind the held ones."""
        if run.wanted <= 0:
            run.next.append(run.now)  # a receive that finds nothing else must not miss them
            return after

        # a place in the future was written under another clock
        start = hint.later if hint.later < due_sk(run.now) else ""
        reading = run.reading
        window = Window("later", cursor=max(start, reading.later))
        returns = [reading.later_ends] if reading.later_ends else []
        run.next += returns

        free = self._reader.read(window, run.ask, run.room)
        if free is None:
            run.next.append(run.now)
            return after

        ends = self._claim(run, free)
        passed: list[ClaimEnd] = []
        for stored in window.seen:
            until = ends.get(stored.ref) or stored.claimed_until(run.now)
            settled = (stored.ref.due or 0) <= run.now - _SETTLED_MS
            if until is None or not settled:
                break
            passed.append(ClaimEnd(_key(stored), max(until, hint.checked + 1)))

        # the hint passes nothing that this check has not seen
        passes = len(passed) >= MOVE_OVER and reading.later <= start
        if passes:
            run.filed += segments_of(passed, start)
            after = replace(after, later=passed[-1].key)

        times = [
            ends.get(stored.ref) or stored.claimed_until(run.now) or stored.ref.due or 0
            for stored in window.seen[len(passed) if passes else 0 :]
        ]
        run.next += times

        reading.later, reading.later_ends = "", 0
        if not window.ended:
            # the next visit of this receive goes on here, and remembers when to come back
            reading.later = window.cursor
            reading.later_ends = min([*times, *returns], default=0)
            run.next.append(run.now)

        return after

    def _scan(self, run: _Run, after: Hint) -> Hint:
        """Go on with the scan of both lanes, from the head to the hint's places.

        Returns:
            The hint with the time of the next scan, if this one has ended.
        """
        shard = run.ask.shard
        begun, place = self._scans.pop(shard, ("ready", ""))
        spare = run.room.all * (1 - _SCAN_SHARE)
        lanes: tuple[tuple[OpenLane, str], ...] = (("ready", after.after), ("later", after.later))

        for lane, upto in lanes:
            if not upto or (lane, begun) == ("ready", "later"):
                continue
            window = Window(lane, cursor=place if lane == begun else "", upto=upto)
            while not window.ended:
                cursor = window.cursor
                free = self._reader.read(window, run.ask, run.room, spare=spare)
                ends = self._claim(run, free or [])
                # they lie before the hint: without segments only the next scan would find them
                run.filed += [segment_of(m.ref, ends[m.ref]) for m in free or [] if m.ref in ends]
                if free is None or any(m.ref not in ends for m in free):
                    self._scans[shard] = lane, cursor
                    return after

        return replace(after, scan_at=run.now + RECEIVES_CHECK_MS)

    def _claim(self, run: _Run, free: Sequence[StoredMessage]) -> dict[MessageRef, int]:
        """Claim messages as far as they are wanted; return until when each is held (ms)."""
        claimed = self._claimer.claim(
            free, run.wanted, run.ask.visibility, consumer=run.ask.consumer
        )
        run.taken += claimed.taken
        return claimed.ends()

    def _end(self, run: _Run, leased: Hint, after: Hint) -> Hint:
        """File segments, and write the time checked and the next check; return the hint."""
        shard = run.ask.shard
        try:
            self._tables.segments.file(shard, run.filed)
        except FAILED:
            if run.taken:
                return leased  # when the lease ends, the same segments are read again
            raise

        times = [segment.end for segment in run.filed] + run.next
        called = [time for time in times if time <= run.now + 1]
        soonest = run.now if called else run.now + _APART_MS
        bound = max(soonest, min([*times, run.now + RECEIVES_CHECK_MS]))
        after = replace(after, next_check=bound)

        before = leased
        for _ in range(_TRIES):
            there = self._tables.hints.move(HintMove(shard, before, after))
            if there is None:
                return after
            if there.checked != leased.checked:
                return there  # another process was called to check, and was faster
            # receives have moved on meanwhile, or called for a check
            next_check = (
                bound
                if there.next_check == leased.next_check
                else min(bound, there.next_check or 0)
            )
            later = after.later if there.later == leased.later else there.later
            before = there
            after = replace(after, after=there.after, next_check=next_check, later=later)

        # others kept moving the hint: they check soon, and read the same segments again
        topic, epoch, number = shard
        self._tables.hints.lower_checks(topic, epoch, {number: bound})
        return replace(before, next_check=min(bound, before.next_check or bound))


def _key(stored: StoredMessage) -> str:
    return message_sk(stored.ref.id, stored.ref.due, stored.lane)
