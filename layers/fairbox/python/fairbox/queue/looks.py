"""Looks at what receives have passed: ended claims, delayed messages, and what nobody filed.

One consumer at a time looks at a shard, under a lease in the shard's hint. It reads the segments
that have ended, claims what is free in them, and files again what is still held. Once a minute it
also scans the lane from its head, because segments may be missing: a write was lost, or clocks were
apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fairbox.codec.keys import due_sk, message_sk
from fairbox.codec.segments import segment_of
from fairbox.dispatch.relay import RECEIVES_LOOK_MS
from fairbox.errors import FAILED
from fairbox.model.clock import milliseconds
from fairbox.model.segments import Held, Segment, joined, segments_of
from fairbox.model.stored_messages import MAX_LOOK_MS
from fairbox.queue.ports import HintMove
from fairbox.queue.read_window import MOVE_OVER, Window
from fairbox.queue.shard_rotation import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import Hint, StoredMessage
    from fairbox.model.walk_positions import OpenLane
    from fairbox.queue.claims import Claimer
    from fairbox.queue.models import Taken
    from fairbox.queue.ports import ClaimStore, Shard
    from fairbox.queue.read_window import Ask, LaneReader, Room

_LEASE_MS: Final = 1_500  # after which another process looks, because the first may have died
_SCAN_LEASE_MS: Final = 5_000  # the same of a scan, which goes on from receive to receive
_APART_MS: Final = 500  # between looks that are not called for
_SETTLED_MS: Final = 2_000  # how long ago a delayed message was due, to be passed
_SCAN_SHARE: Final = 0.5  # of the room of a receive
_TRIES: Final = 4


@dataclass(slots=True)
class _Look:
    """A look under way.

    Attributes:
        ask, room: the request, and the units left.
        now: when it began (ms).
        taken: the messages claimed.
        filed: the segments to file.
        next: times of the next look (ms), of which the first counts.
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


class Looks:
    """The looks of one process.

    Args:
        store: the tables.
        reader, claimer: read lanes, claim messages.
        clock, rng: time, and which lane comes first.
    """

    def __init__(
        self, store: ClaimStore, reader: LaneReader, claimer: Claimer, clock: Clock, rng: Random
    ) -> None:
        self._store = store
        self._reader = reader
        self._claimer = claimer
        self._clock = clock
        self._rng = rng
        # the lane that this process scans, and up to which sort key it has
        self._scans: dict[Shard, tuple[OpenLane, str]] = {}

    def due(self, shard: Shard, hint: Hint) -> bool:
        """Whether a look is due, or this process is in the middle of a scan."""
        return shard in self._scans or hint.look_due(milliseconds(self._clock))

    def scans(self, shard: Shard) -> bool:
        """Whether this process is in the middle of a scan."""
        return shard in self._scans

    def look(self, ask: Ask, hint: Hint, room: Room, reading: Reading) -> tuple[list[Taken], Hint]:
        """Look at a shard, unless another process does; return messages and the hint (2 WRU).

        A scan that this process has begun goes on without a write, until its lease is to be renewed
        or it ends.

        Raises:
            Throttled, Unavailable: messages claimed without an answer are visible again in time.
        """
        now = milliseconds(self._clock)
        look = _Look(ask, room, now, reading=reading)
        if not hint.look_due(now):
            return look.taken, self._scan_on(look, hint)
        scans = ask.shard in self._scans or hint.scan_due(now)
        scan_at = now + _SCAN_LEASE_MS if scans else hint.scan_at
        leased = replace(hint, look_at=now + _LEASE_MS, scan_at=scan_at)
        there = self._store.move_hint(HintMove(ask.shard, hint, leased))
        if there is not None:
            self._scans.pop(ask.shard, None)
            return [], there
        steps = [self._segments, self._later]
        if self._rng.randrange(2):  # neither starves the other
            steps.reverse()
        after = leased
        for step in steps:
            after = step(look, hint, after)
        if scans:
            after = self._scan(look, after)
        return look.taken, self._end(look, leased, after)

    def _scan_on(self, look: _Look, hint: Hint) -> Hint:
        """Go on with a scan between looks; return the hint."""
        shard = look.ask.shard
        after = self._scan(look, hint)
        self._store.file_segments(shard, look.filed)
        if after == hint and hint.scan_at > look.now + _SCAN_LEASE_MS // 2:
            return hint
        scan_at = look.now + _SCAN_LEASE_MS if after == hint else after.scan_at
        look_at = min([hint.look_at or look.now, *(segment.end for segment in look.filed)])
        after = replace(hint, scan_at=scan_at, look_at=look_at)
        return self._store.move_hint(HintMove(shard, hint, after)) or after

    def _segments(self, look: _Look, hint: Hint, after: Hint) -> Hint:
        """Read the stretches whose claims have ended; return the hint with what was checked."""
        if hint.look_at is None:
            return replace(after, checked=look.now - 1)  # nobody has filed anything yet
        # a time in the future was written under another clock
        ahead = hint.checked > look.now + MAX_LOOK_MS
        checked = look.now - MAX_LOOK_MS if ahead else hint.checked
        found, more = self._store.segments(look.ask.shard, checked)
        ended = [segment for segment in found if segment.end <= look.now]
        if len(ended) < len(found):
            look.next.append(found[len(ended)].end)
        elif more:
            look.next.append(look.now)
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
            self._read(look, stretch, checked)
        return replace(after, checked=checked)

    def _read(self, look: _Look, stretch: Segment, checked: int) -> None:
        """Claim what is free in a stretch; file what is held, and what was not read."""
        window = Window(stretch.lane, cursor=stretch.after, upto=stretch.last)
        again = max(look.now, checked + 1)
        held: list[Held] = []
        while look.wanted > 0 and not window.ended:
            known = len(window.seen)
            free = self._reader.read(window, look.ask, look.room)
            if free is None:
                break
            ends = self._claim(look, free)
            for stored in window.seen[known:]:
                until = ends.get(stored.ref) or stored.held_until(look.now) or again
                held.append(Held(_key(stored), max(until, again)))
        look.filed += segments_of(held, stretch.after)
        if not window.ended:
            look.filed.append(Segment(again, window.cursor, stretch.last))

    def _later(self, look: _Look, hint: Hint, after: Hint) -> Hint:
        """Claim delayed messages that are due; return the hint behind those that are held."""
        if look.wanted <= 0:
            look.next.append(look.now)  # a receive that finds nothing else must not miss them
            return after
        # a place in the future was written under another clock
        start = hint.later if hint.later < due_sk(look.now) else ""
        reading = look.reading
        window = Window("later", cursor=max(start, reading.later))
        passed = [reading.later_ends] if reading.later_ends else []
        look.next += passed
        free = self._reader.read(window, look.ask, look.room)
        if free is None:
            look.next.append(look.now)
            return after
        ends = self._claim(look, free)
        held: list[Held] = []
        for stored in window.seen:
            until = ends.get(stored.ref) or stored.held_until(look.now)
            settled = (stored.ref.due or 0) <= look.now - _SETTLED_MS
            if until is None or not settled:
                break
            held.append(Held(_key(stored), max(until, hint.checked + 1)))
        # the hint passes nothing that this look has not seen
        passes = len(held) >= MOVE_OVER and reading.later <= start
        if passes:
            look.filed += segments_of(held, start)
            after = replace(after, later=held[-1].key)
        times = [
            ends.get(stored.ref) or stored.held_until(look.now) or stored.ref.due or 0
            for stored in window.seen[len(held) if passes else 0 :]
        ]
        look.next += times
        reading.later, reading.later_ends = "", 0
        if not window.ended:
            # the next visit of this receive goes on here, and remembers when to come back
            reading.later = window.cursor
            reading.later_ends = min([*times, *passed], default=0)
            look.next.append(look.now)
        return after

    def _scan(self, look: _Look, after: Hint) -> Hint:
        """Go on with the scan of what lies before the places in both lanes.

        Returns:
            The hint with the time of the next scan, if this one has ended.
        """
        shard = look.ask.shard
        begun, place = self._scans.pop(shard, ("ready", ""))
        spare = look.room.all * (1 - _SCAN_SHARE)
        lanes: tuple[tuple[OpenLane, str], ...] = (("ready", after.after), ("later", after.later))
        for lane, upto in lanes:
            if not upto or (lane, begun) == ("ready", "later"):
                continue
            window = Window(lane, cursor=place if lane == begun else "", upto=upto)
            while not window.ended:
                cursor = window.cursor
                free = self._reader.read(window, look.ask, look.room, spare=spare)
                ends = self._claim(look, free or [])
                look.filed += [segment_of(m.ref, ends[m.ref]) for m in free or [] if m.ref in ends]
                if free is None or any(m.ref not in ends for m in free):
                    self._scans[shard] = lane, cursor
                    return after
        return replace(after, scan_at=look.now + RECEIVES_LOOK_MS)

    def _claim(self, look: _Look, free: Sequence[StoredMessage]) -> dict[MessageRef, int]:
        """Claim messages as far as they are wanted; return until when each is held (ms)."""
        claimed = self._claimer.claim(
            free, look.wanted, look.ask.visibility, consumer=look.ask.consumer
        )
        look.taken += claimed.taken
        return claimed.ends()

    def _end(self, look: _Look, leased: Hint, after: Hint) -> Hint:
        """File segments, and write what was checked and when to look again; return the hint."""
        shard = look.ask.shard
        try:
            self._store.file_segments(shard, look.filed)
        except FAILED:
            if look.taken:
                return leased  # when the lease ends, the same segments are read again
            raise
        times = [segment.end for segment in look.filed] + look.next
        called = [time for time in times if time <= look.now + 1]
        soonest = look.now if called else look.now + _APART_MS
        bound = max(soonest, min([*times, look.now + RECEIVES_LOOK_MS]))
        after = replace(after, look_at=bound)
        before = leased
        for _ in range(_TRIES):
            there = self._store.move_hint(HintMove(shard, before, after))
            if there is None:
                return after
            if there.checked != leased.checked:
                return there  # another process was called to look, and was faster
            # receives have moved on meanwhile, or called for a look
            look_at = bound if there.look_at == leased.look_at else min(bound, there.look_at or 0)
            later = after.later if there.later == leased.later else there.later
            before = there
            after = replace(after, after=there.after, look_at=look_at, later=later)
        # others kept moving the hint: they look soon, and read the same segments again
        topic, epoch, number = shard
        self._store.lower_looks(topic, epoch, {number: bound})
        return replace(before, look_at=min(bound, before.look_at or bound))


def _key(stored: StoredMessage) -> str:
    return message_sk(stored.ref.id, stored.ref.due, stored.lane)
