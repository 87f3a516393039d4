"""Receives from unordered topics: claims in place, by conditional updates.

Messages in flight stay in their lane, so that hints tell where a receive begins. What a hint passes
is filed in segments, which are looked at when claims end. A wrong hint costs reads or time, never a
message: each shard is scanned from its head at least once a minute.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from fairbox.codec.hints import group_of
from fairbox.codec.segments import segment_of
from fairbox.errors import Throttled, Unavailable
from fairbox.model.clock import milliseconds
from fairbox.model.ids import before
from fairbox.model.stored_messages import Hint
from fairbox.queue.claims import Claimed, Claimer
from fairbox.queue.looks import Looks
from fairbox.queue.ports import HintMove
from fairbox.queue.read_window import Ask, LaneReader, Room, Window, passed
from fairbox.queue.shard_rotation import ShardRotation
from fairbox.queue.start_spread import LOST, StartSpread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from fairbox.model.clock import Clock
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import TopicState
    from fairbox.queue.hint_cache import HintCache
    from fairbox.queue.models import Taken
    from fairbox.queue.ports import ClaimStore
    from fairbox.queue.shard_rotation import Place

_SHARDS_A_CALL: Final = 8
_EMPTY_UNITS: Final = 0.5  # the cost of an empty shard


class UnorderedReceive:
    """Receives from unordered topics.

    Args:
        store: the tables.
        copies: hint rows of this process.
        clock, rng: time, tokens and turns.
    """

    def __init__(self, store: ClaimStore, copies: HintCache, clock: Clock, rng: Random) -> None:
        self._store = store
        self._copies = copies
        self._clock = clock
        self._turns = ShardRotation(rng, at_most=_SHARDS_A_CALL)
        self._reader = LaneReader(store, clock)
        self._claimer = Claimer(store, clock, rng)
        self._looks = Looks(store, self._reader, self._claimer, clock, rng)
        self._ahead = StartSpread(store, rng)
        self._scatter = False  # whether others were faster in this receive
        self._unfinished = False  # whether there was no room to read the last shard to its end

    def receive(
        self,
        topic: TopicState,
        wanted: int,
        visibility: int,
        consumer: str = "",
        left: set[Place] | None = None,
    ) -> list[Taken]:
        """Claim messages of the next shard that has any.

        Args:
            topic: the topic.
            wanted: maximum number.
            visibility: duration of the claims in milliseconds.
            consumer: the name to show with them; empty: none.
            left: shards to which the receive is limited, one at least; those that it has read to
                the end are taken off. None: all of the topic.

        Returns:
            The claimed messages; none if eight shards, or fewer with much in flight, had none.

        Raises:
            Throttled, Unavailable: messages claimed without an answer are visible again in time.
        """
        epoch, shards = self._turns.next(topic, left)
        places = [(epoch, shard) for shard in shards]
        name = topic.topic.name
        row = name, epoch, group_of(shards[0])
        room = Room(wanted)
        asks = [
            Ask((name, epoch, shard), wanted, visibility, topic.topic.retry.max_attempts, consumer)
            for shard in shards
        ]
        copy = self._copies.get(row)
        taken = (
            []
            if copy is None
            else self._from_shard(asks[0], copy.get(shards[0], Hint()), room, 0.0)
        )
        if taken:
            self._turns.visited(topic, places[0], [], left)
            return self._finish(topic, taken)
        hints = self._store.hints(*row)
        self._copies.keep(row, hints)
        for number, ask in enumerate(asks, start=1):
            others = (len(asks) - number) * _EMPTY_UNITS
            taken = self._from_shard(ask, hints.get(ask.shard[2], Hint()), room, others)
            if taken or number == len(asks) or room.items(1) <= 0:
                done = places[: number - bool(taken or self._unfinished)]
                self._turns.visited(topic, places[number - 1], done, left)
                break
        if not taken:
            self._copies.forget(asks[0].shard)
        return self._finish(topic, taken)

    def _finish(self, topic: TopicState, taken: list[Taken]) -> list[Taken]:
        """Return messages oldest first; leave the shard to others if they compete for it."""
        if self._scatter:
            self._turns.scatter(topic)
        self._scatter = False
        return sorted(taken, key=lambda one: one.stored.ref.id)

    def _from_shard(self, ask: Ask, hint: Hint, room: Room, others: float) -> list[Taken]:
        """Claim messages of a shard; after the first page, keep `others` units for other shards."""
        self._unfinished = False
        if self._looks.due(ask.shard, hint):
            self._copies.forget(ask.shard)
            room.add_look()
            taken, hint = self._looks.look(ask, hint, room)
            if taken:
                return taken
            self._unfinished = self._looks.due(ask.shard, hint)
        taken_ahead = self._from_ahead(ask, hint, room, others)
        return self._from_hint(ask, hint, room, others) if taken_ahead is None else taken_ahead

    def _from_ahead(self, ask: Ask, hint: Hint, room: Room, others: float) -> list[Taken] | None:
        """Claim messages ahead of the hint; None: no reason to, or there are none."""
        now = milliseconds(self._clock)
        window = self._ahead.start(ask.shard, hint.after, now)
        if window is None:
            return None
        free = self._reader.read(window, ask, room)
        while free == [] and not window.ended:
            free = self._reader.read(window, ask, room, spare=others)
        if free is None:
            self._unfinished = True
            if window.upto is None:
                self._ahead.held(ask.shard, window.cursor, now)
            return []
        left = free[ask.wanted :]
        self._ahead.read_ahead(ask.shard, window)
        if left and window.upto is not None:
            window.cursor, window.ended = before(left[0].ref.id), False  # for the next receive
        return self._claim(free, ask) or None

    def _from_hint(self, ask: Ask, hint: Hint, room: Room, others: float) -> list[Taken]:
        window = Window("ready", cursor=hint.after)
        free = self._reader.read(window, ask, room)
        self._ahead.read(ask.shard, window.seen)
        while free is not None:
            now = milliseconds(self._clock)
            free = self._ahead.unreserved(ask.shard, hint, free)
            claiming = {m.ref: now + ask.visibility for m in free[: ask.wanted]}
            moved = passed(window.seen, claiming, hint, now)
            move = None if moved is None else HintMove(ask.shard, hint, *moved)
            if free:
                taken = self._claim(free, ask, move)
                if taken := taken or self._from_ahead(ask, hint, room, others) or []:
                    return taken
                hint = hint if move is None else move.after
            elif move is not None:
                there = self._store.move_hint(move)
                self._copies.moved(move.shard, there or move.after)
                hint = there or move.after
            if window.ended:
                return []
            free = self._reader.read(window, ask, room, spare=others)
        self._unfinished = True
        if window.seen:
            self._ahead.held(ask.shard, window.cursor, milliseconds(self._clock))
        return []

    def _claim(
        self, free: Sequence[StoredMessage], ask: Ask, move: HintMove | None = None
    ) -> list[Taken]:
        claimed = self._claimer.claim(free, ask.wanted, ask.visibility, move, consumer=ask.consumer)
        if move is not None:
            # whether it was written or not
            self._copies.moved(move.shard, move.after)
            self._file_lost(move, claimed)
        lost = len(claimed.lost)
        self._ahead.claimed(ask.shard, lost)
        if lost >= LOST:
            self._copies.forget(ask.shard)
            self._scatter = True
        return claimed.taken

    def _file_lost(self, move: HintMove, claimed: Claimed) -> None:
        """Let messages come back in time that others claimed for a shorter time than expected."""
        early = [
            segment_of(ref, end)
            for ref, end in claimed.lost.items()
            if 0 < end < min(segment.end for segment in move.passes) and ref.id <= move.after.after
        ]
        if early:
            with suppress(Throttled, Unavailable):  # messages are claimed; a scan finds these
                self._store.come_back(move.shard, early)
