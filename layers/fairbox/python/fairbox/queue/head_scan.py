"""Scans from the head of a shard: they find expired claims and ended delays.

Messages in flight lie at the head, so that a scan may have much to read. It reads as much as a
receive may, and the process continues the scan at its next receive of the shard.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fairbox.codec.keys import message_sk
from fairbox.dispatch.relay import RECEIVES_LOOK_MS
from fairbox.model.clock import milliseconds
from fairbox.model.stored_messages import Hint
from fairbox.queue.ports import HintMove
from fairbox.queue.read_window import Window, passed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from fairbox.model.clock import Clock
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.queue.claims import Claimer
    from fairbox.queue.models import Taken
    from fairbox.queue.ports import ClaimStore, Shard
    from fairbox.queue.read_window import Ask, LaneReader, Room

_SCAN_MS: Final = 5_000  # after which another process scans, because the first may have died
_LATER_SHARE: Final = 0.25  # of the room of a receive


@dataclass(slots=True)
class _HeadScan:
    """A scan under way: the hint as written at its begin, and the part of lane `ready` read."""

    hint: Hint
    ready: Window = field(default_factory=lambda: Window("ready"))


@dataclass(slots=True)
class _Delayed:
    """The messages that a scan found in lane `later`.

    Attributes:
        taken: the claimed ones.
        due: others that might be claimed.
        check_at: times (ms) of the next scan, of which the first counts.
    """

    taken: list[Taken]
    due: list[StoredMessage]
    check_at: list[int]


class HeadScans:
    """The head scans of one process.

    Args:
        store: the tables.
        reader, claimer: read lanes, claim messages.
        clock, rng: time, and which lane gets the odd message.
    """

    def __init__(
        self, store: ClaimStore, reader: LaneReader, claimer: Claimer, clock: Clock, rng: Random
    ) -> None:
        self._store = store
        self._reader = reader
        self._claimer = claimer
        self._clock = clock
        self._rng = rng
        self._begun: dict[Shard, _HeadScan] = {}
        # of lane `later`: the sort key up to which all is held, and until when that is so
        self._later: dict[Shard, tuple[str, int]] = {}

    def due(self, shard: Shard, hint: Hint) -> bool:
        """Whether a scan is due, or this process is in the middle of one."""
        now = milliseconds(self._clock)
        return shard in self._begun or hint.look_due(now)

    def begin(self, shard: Shard, hint: Hint) -> bool:
        """Begin a scan, or continue one; return whether this process scans (1 WRU)."""
        now = milliseconds(self._clock)
        begun = self._begun.pop(shard, None)
        if begun is not None and not begun.hint.look_due(now):
            self._begun[shard] = begun
            return True
        renewed = Hint(hint.after, now + _SCAN_MS)
        if not hint.look_due(now) or not self._store.move_hint(HintMove(shard, hint, renewed)):
            return False
        self._begun[shard] = _HeadScan(renewed, Window("ready") if begun is None else begun.ready)
        return True

    def hint(self, shard: Shard) -> Hint | None:
        """Return the hint during a scan; None: there is no scan."""
        begun = self._begun.get(shard)
        return None if begun is None else begun.hint

    def moved(self, shard: Shard, hint: Hint) -> None:
        """Note that this process moved the hint, during a scan or not."""
        if shard in self._begun:
            self._begun[shard].hint = hint

    def scan(self, ask: Ask, room: Room) -> list[Taken]:
        """Read a page of `later` and one from the head, and claim; `hint` tells if the scan ended.

        Raises:
            Throttled, Unavailable: messages claimed without an answer are visible again in time.
        """
        ready = self._begun[ask.shard].ready
        share = (ask.wanted + self._rng.randrange(2)) // 2  # neither lane starves the other
        later = self._scan_later(ask, share, room)
        free = self._reader.read(ready, ask, room) or []
        if not free and not ready.ended:
            return later.taken  # goes on at the next receive
        rest = self._claim(free, ask.wanted - len(later.taken), ask)
        taken = later.taken + rest
        left = ask.wanted - len(taken)
        if left and later.due:
            taken += self._claim(later.due, left, ask)
            later.due = later.due[left:]
        self._end(ask.shard, later, taken, free)
        return taken

    def _claim(self, free: Sequence[StoredMessage], wanted: int, ask: Ask) -> list[Taken]:
        return self._claimer.claim(free, wanted, ask.visibility, consumer=ask.consumer).taken

    def _scan_later(self, ask: Ask, share: int, room: Room) -> _Delayed:
        """Claim a share of the due messages in `later`; return them, other due ones, next times."""
        now = milliseconds(self._clock)
        cursor, good_until = self._later.get(ask.shard, ("", 0))
        window = Window("later", cursor=cursor if now < good_until else "")
        check_at = [good_until] if window.cursor else []
        others = max(0.0, room.left - room.all * _LATER_SHARE)
        free = self._reader.read(window, ask, room, spare=others) or []
        taken = self._claim(free, share, ask)
        mine = {t.stored.ref: t.until for t in taken}
        held = 0
        for stored in window.seen:
            until = mine.get(stored.ref) or stored.held_until(now)
            if until is None:
                break
            held += 1
            check_at.append(until)
        if held:
            last = window.seen[held - 1].ref
            self._later[ask.shard] = (message_sk(last.id, last.due, "later"), min(check_at))
        check_at += [max(m.ref.due or 0, m.held_until(now) or 0) for m in window.seen[held:]]
        check_at = [time for time in check_at if time > now]
        if not window.ended and not free:
            check_at.append(now)
        return _Delayed(taken, [m for m in free if m.ref not in mine][: ask.wanted], check_at)

    def _end(
        self, shard: Shard, later: _Delayed, taken: list[Taken], free: list[StoredMessage]
    ) -> None:
        """Write the place where receives begin now, and the time of the next scan."""
        scan = self._begun.pop(shard)
        now = milliseconds(self._clock)
        claimed = {t.stored.ref: t.until for t in taken}
        check_at = later.check_at + [t.until for t in taken if t.place == "later"]
        check_at += [now] if later.due else []
        base = Hint(look_at=now + RECEIVES_LOOK_MS)
        behind = passed(scan.ready.seen, claimed, base, now, least=1) or base
        after = replace(behind, look_at=min([behind.look_at or now, *check_at]))
        left = [m.ref.id for m in free if m.ref not in claimed]
        if not self._store.move_hint(HintMove(shard, scan.hint, after)) and left:
            # another process moved the hint: it would pass messages that are free and unclaimed
            self._store.lower_after(shard, left[0])
