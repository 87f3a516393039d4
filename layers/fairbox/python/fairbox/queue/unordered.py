"""Receives from unordered topics: claims in place, by conditional updates.

Messages in flight stay in their lane, so that hints tell where a receive begins. The messages that
a hint passes are filed in segments. These are checked when claims end. A wrong hint costs reads or
time, never a message: each shard is scanned from its head at least once a minute.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.errors import FAILED
from fairbox.model.clock import Clock, milliseconds
from fairbox.model.ids import bound_of, time_of
from fairbox.queue.claims import LOST, Claimed, Claimer
from fairbox.queue.reclaim import Reclaim
from fairbox.queue.rotation import Reading, Round, ShardRotation
from fairbox.queue.unordered_reader import YOUNG_MS, Ask, LaneReader, Room, Window, passed
from fairbox.tables.hints import Hint, HintMove, group_of
from fairbox.tables.segments import segment_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from fairbox.model.messages import Shard
    from fairbox.model.topic_states import TopicState
    from fairbox.queue.known_rows import HintCache
    from fairbox.queue.models import Taken
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

RECEIVES: Final = 64
"""Receives of a topic that choose at random after others were competitors."""
SCANS: Final = 8
"""Visits of a shard for which a receive that finds nothing goes on with a scan from the head."""
_SHARDS_A_CALL: Final = 8
_EMPTY_UNITS: Final = 0.5  # the cost of an empty shard


@dataclass(slots=True)
class _Visit:
    """A visit to a shard.

    Attributes:
        ask, room: the request, and the units left of the receive.
        reading: how far this receive has read the shard.
        others: units that are kept for other shards after the first page.
        ended: whether the shard was read to its end.
        lost: whether others claimed messages that this receive wanted.
    """

    ask: Ask
    room: Room
    reading: Reading
    others: float = 0.0
    ended: bool = True
    lost: bool = False


class UnorderedReceive:
    """Receives from unordered topics.

    Args:
        hints: hint rows of this process.
    """

    def __init__(self, tables: Tables, hints: HintCache, clock: Clock, rng: Random) -> None:
        self._tables = tables
        self._hints = hints
        self._clock = clock
        self._rng = rng
        self._rotation = ShardRotation(rng, at_most=_SHARDS_A_CALL)
        self._reader = LaneReader(tables, clock)
        self._claimer = Claimer(tables, clock, rng)
        self._reclaim = Reclaim(tables, self._reader, self._claimer, clock, rng)
        self._competition: dict[str, int] = {}  # receives of a topic that still choose at random
        # sort keys up to which all was held, too young for the hint, and until when (ms)
        self._young: dict[Shard, tuple[str, int]] = {}

    def receive(
        self, topic: TopicState, wanted: int, visibility: int, consumer: str, round_: Round
    ) -> list[Taken]:
        """Claim messages of the next shard that has any.

        Args:
            topic: the topic.
            wanted: maximum number.
            visibility: duration of the claims in milliseconds.
            consumer: the name to show with them; empty: none.
            round_: the shards to read, one at least, and how far each was read. Shards read to the
                end are taken off.

        Returns:
            The claimed messages; none if eight shards, or fewer with much in flight, had none.

        Raises:
            Throttled, Unavailable: messages claimed without an answer are visible again in time.
        """
        epoch, shards = self._rotation.next(topic, round_.left)
        places = [(epoch, shard) for shard in shards]
        name = topic.topic.name
        row = name, epoch, group_of(shards[0])
        room = Room(wanted)
        visits = [
            _Visit(
                Ask((name, *place), wanted, visibility, topic.topic.retry.max_attempts, consumer),
                room,
                round_.reading(place),
            )
            for place in places
        ]

        copy = self._hints.get(row)
        taken: list[Taken] = []
        if copy is not None:
            # what the copy shows counts as read only if it shows a message
            first = replace(visits[0], reading=Reading())
            taken = self._from_shard(first, copy.get(shards[0], Hint()))
            visits[0].lost = first.lost
        if taken:
            self._rotation.visited(topic, places[0], [], round_.left)
            return self._in_order(topic, taken, [first])

        hints = self._tables.hints.read(*row)
        self._hints.keep(row, hints)
        for number, visit in enumerate(visits, start=1):
            visit.others = (len(visits) - number) * _EMPTY_UNITS
            taken = self._from_shard(visit, hints.get(shards[number - 1], Hint()))
            if taken or number == len(visits) or room.items(1) <= 0:
                read = [p for p, v in zip(places[:number], visits, strict=False) if v.ended]
                done = read[:-1] if taken and visit.ended else read
                self._rotation.visited(topic, places[number - 1], done, round_.left)
                break
        if not taken:
            self._hints.forget(visits[0].ask.shard)
        return self._in_order(topic, taken, visits)

    def _in_order(
        self, topic: TopicState, taken: list[Taken], visits: Sequence[_Visit]
    ) -> list[Taken]:
        """Return messages oldest first; leave the shard to others if they compete for it."""
        name = topic.topic.name
        if any(visit.lost for visit in visits):
            self._rotation.scatter(topic)
            self._competition[name] = RECEIVES
        elif self._competition.get(name):
            self._competition[name] -= 1
        return sorted(taken, key=lambda one: one.stored.ref.id)

    def _from_shard(self, visit: _Visit, hint: Hint) -> list[Taken]:
        """Claim messages of a shard: from a check, else from lane `ready`."""
        shard = visit.ask.shard
        if self._reclaim.due(shard, hint):
            self._hints.forget(shard)
            visit.room.add_reclaim()
            taken, hint = self._reclaim.run(visit.ask, hint, visit.room, visit.reading)
            if taken:
                return taken
            # a scan finds only what lost writes left: it goes on for some visits, not to its end
            scans = self._reclaim.scans(shard) and visit.reading.scans < SCANS
            visit.reading.scans += scans
            visit.ended = not scans and not hint.check_due(milliseconds(self._clock))

        return self._from_ahead(visit, hint) or self._from_hint(visit, hint)

    def _from_ahead(self, visit: _Visit, hint: Hint) -> list[Taken]:
        """Claim messages ahead of the hint, where fewer are held or fewer consumers read.

        That is behind young ones that were all held when they were read, or at a random place
        while others compete. Who finds nothing there begins at the hint.
        """
        reading = visit.reading
        if reading.ready is not None:
            return []  # this receive has begun at the hint
        if reading.ahead is None:
            reading.ahead = reading.upto = self._place_ahead(visit.ask, hint)
        if reading.ahead is None or reading.ahead <= hint.after:
            reading.ahead = reading.upto = None
            return []

        window = Window("ready", cursor=reading.ahead)
        taken = self._from_window(visit, window, None)
        reading.ahead = None if window.ended else window.cursor
        return taken

    def _place_ahead(self, ask: Ask, hint: Hint) -> str | None:
        """Return the sort key after which a receive begins, if not at the hint."""
        cursor, until = self._young.get(ask.shard, ("", 0))
        now = milliseconds(self._clock)
        if now < until <= now + YOUNG_MS:
            return cursor
        if not hint.after or not self._competes(ask):
            return None
        waited = max(1, now - time_of(hint.after))
        return bound_of(now - self._rng.randrange(waited))

    def _from_hint(self, visit: _Visit, hint: Hint) -> list[Taken]:
        """Claim messages from the hint on, or from where this receive has read up to."""
        if visit.reading.ahead is not None:
            return []  # there was no room to read what lies ahead
        start = max(hint.after, visit.reading.ready or "")
        window = Window("ready", cursor=start, upto=visit.reading.upto)
        taken = self._from_window(visit, window, hint if start == hint.after else None)
        visit.reading.ready = window.cursor
        return taken

    def _from_window(self, visit: _Visit, window: Window, hint: Hint | None) -> list[Taken]:
        """Claim messages of a window, page by page; move the hint, if the window begins there."""
        ask, room = visit.ask, visit.room
        competes = self._competes(ask)
        start, free = window.cursor, self._reader.read(window, ask, room, whole=competes)
        while free is not None:
            if competes:
                # others read the same page, and want what is oldest too
                self._rng.shuffle(free)
            now = milliseconds(self._clock)
            claiming = {m.ref: now + ask.visibility for m in free[: ask.wanted]}
            moved = None if hint is None else passed(window.seen, claiming, hint, now)
            move = None if hint is None or moved is None else HintMove(ask.shard, hint, *moved)

            if free:
                claimed = self._claim(free, visit, move)
                if claimed.taken:
                    return claimed.taken
                if claimed.untried:
                    # read this page again: others hold most of it by then
                    visit.ended, window.cursor, window.ended = False, start, False
                    return []
                hint = hint if move is None else move.after
            elif move is not None:
                there = self._tables.hints.move(move)
                self._hints.moved(move.shard, there or move.after)
                hint = there or move.after
            if window.ended:
                return []
            start = window.cursor
            free = self._reader.read(window, ask, room, spare=visit.others, whole=competes)

        visit.ended = False
        if window.seen:
            self._young[ask.shard] = window.cursor, milliseconds(self._clock) + YOUNG_MS
        return []

    def _competes(self, ask: Ask) -> bool:
        return self._competition.get(ask.shard[0], 0) > 0

    def _claim(
        self, free: Sequence[StoredMessage], visit: _Visit, move: HintMove | None
    ) -> Claimed:
        ask = visit.ask
        claimed = self._claimer.claim(free, ask.wanted, ask.visibility, move, consumer=ask.consumer)
        if move is not None:
            # whether it was written or not
            self._hints.moved(move.shard, move.after)
            self._file_lost(move, claimed)
        if len(claimed.lost) >= LOST:
            self._hints.forget(ask.shard)
            visit.lost = True
        return claimed

    def _file_lost(self, move: HintMove, claimed: Claimed) -> None:
        """Let messages come back in time that others claimed for a shorter time than expected."""
        early = [
            segment_of(ref, end)
            for ref, end in claimed.lost.items()
            if 0 < end < min(segment.end for segment in move.passes) and ref.id <= move.after.after
        ]
        if early:
            with suppress(*FAILED):  # messages are claimed; a scan finds these
                self._tables.hints.come_back(move.shard, early)
