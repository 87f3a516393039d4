"""Looks from the head of a shard: expired claims come back, delays end.

What is in flight lies at the head, so a look may have much to read. It reads as much as a receive
may, and the process goes on there at its next receive of the shard.
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
    from random import Random

    from fairbox.model.clock import Clock
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.queue.claims import Claimer
    from fairbox.queue.models import Taken
    from fairbox.queue.ports import ClaimStore, Shard
    from fairbox.queue.read_window import Ask, LaneReader, Room

_LOOKING_MS: Final = 5_000  # after which another looks, when who began has died of it
_LATER_SHARE: Final = 0.25  # of the room of a receive


@dataclass(slots=True)
class _Look:
    """A look that began: the hint as it was written then, and what was read of lane `ready`."""

    hint: Hint
    ready: Window = field(default_factory=lambda: Window("ready"))


@dataclass(slots=True)
class _Delayed:
    """What a look found in lane `later`.

    Attributes:
        taken: claimed.
        due: what else might be claimed.
        looks: when to look again (ms).
    """

    taken: list[Taken]
    due: list[StoredMessage]
    looks: list[int]


class Looks:
    """Looks of one process.

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
        self._begun: dict[Shard, _Look] = {}
        # of lane `later`: the sort key up to which all is held, and until when that is so
        self._later: dict[Shard, tuple[str, int]] = {}

    def due(self, shard: Shard, hint: Hint) -> bool:
        """Whether a look is due, or this process is in the middle of one."""
        now = milliseconds(self._clock)
        return shard in self._begun or hint.look_due(now)

    def begin(self, shard: Shard, hint: Hint) -> bool:
        """Begin a look, or go on with one; return whether it is this process's (1 WRU)."""
        now = milliseconds(self._clock)
        begun = self._begun.pop(shard, None)
        if begun is not None and not begun.hint.look_due(now):
            self._begun[shard] = begun
            return True
        looking = Hint(hint.after, now + _LOOKING_MS)
        if not hint.look_due(now) or not self._store.move_hint(HintMove(shard, hint, looking)):
            return False
        self._begun[shard] = _Look(looking, Window("ready") if begun is None else begun.ready)
        return True

    def hint(self, shard: Shard) -> Hint | None:
        """Return the hint while a look goes on; None: there is none."""
        begun = self._begun.get(shard)
        return None if begun is None else begun.hint

    def moved(self, shard: Shard, hint: Hint) -> None:
        """Note that this process moved the hint, in the middle of a look or not."""
        if shard in self._begun:
            self._begun[shard].hint = hint

    def look(self, ask: Ask, room: Room) -> list[Taken]:
        """Read a page on in `later` and from the head, and claim; see `hint` for whether it ended.

        Raises:
            Throttled, Unavailable: what is claimed without being known comes back in time.
        """
        ready = self._begun[ask.shard].ready
        share = (ask.wanted + self._rng.randrange(2)) // 2  # neither lane starves the other
        later = self._look_later(ask, share, room)
        free = self._reader.read(ready, ask, room) or []
        if not free and not ready.ended:
            return later.taken  # goes on at the next receive
        rest = self._claimer.claim(free, ask.wanted - len(later.taken), ask.visibility).taken
        taken = later.taken + rest
        left = ask.wanted - len(taken)
        if left and later.due:
            taken += self._claimer.claim(later.due, left, ask.visibility).taken
            later.due = later.due[left:]
        self._end(ask.shard, later, taken, free)
        return taken

    def _look_later(self, ask: Ask, share: int, room: Room) -> _Delayed:
        """Claim a share of what is due in `later`; return it, what else is due, when to look."""
        now = milliseconds(self._clock)
        cursor, good_until = self._later.get(ask.shard, ("", 0))
        window = Window("later", cursor=cursor if now < good_until else "")
        looks = [good_until] if window.cursor else []
        others = max(0.0, room.left - room.all * _LATER_SHARE)
        free = self._reader.read(window, ask, room, spare=others) or []
        taken = self._claimer.claim(free, share, ask.visibility).taken
        mine = {t.stored.ref: t.until for t in taken}
        held = 0
        for stored in window.seen:
            until = mine.get(stored.ref) or stored.held_until(now)
            if until is None:
                break
            held += 1
            looks.append(until)
        if held:
            last = window.seen[held - 1].ref
            self._later[ask.shard] = (message_sk(last.id, last.due, "later"), min(looks))
        looks += [max(m.ref.due or 0, m.held_until(now) or 0) for m in window.seen[held:]]
        looks = [look for look in looks if look > now]
        if not window.ended and not free:
            looks.append(now)
        return _Delayed(taken, [m for m in free if m.ref not in mine][: ask.wanted], looks)

    def _end(
        self, shard: Shard, later: _Delayed, taken: list[Taken], free: list[StoredMessage]
    ) -> None:
        """Write where receives begin now, and when to look again."""
        look = self._begun.pop(shard)
        now = milliseconds(self._clock)
        claimed = {t.stored.ref: t.until for t in taken}
        looks = later.looks + [t.until for t in taken if t.place == "later"]
        looks += [now] if later.due else []
        base = Hint(look_at=now + RECEIVES_LOOK_MS)
        behind = passed(look.ready.seen, claimed, base, now, least=1) or base
        after = replace(behind, look_at=min([behind.look_at or now, *looks]))
        left = [m.ref.id for m in free if m.ref not in claimed]
        if not self._store.move_hint(HintMove(shard, look.hint, after)) and left:
            # others moved it meanwhile: they would pass what is free again and was not claimed
            self._store.lower_after(shard, left[0])
