"""Receiving from unordered topics: claims in place, by conditional update.

What is in flight stays in its lane, so hints say where a receive begins. A wrong hint costs reads
or time, never a message: a look from the head comes once a minute at the latest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from fairbox.clock import milliseconds
from fairbox.codec.hints import group_of
from fairbox.codec.keys import message_sk
from fairbox.dispatch.finishing import bury_marked, finish_marked
from fairbox.dispatch.relay import RECEIVES_LOOK_MS
from fairbox.ids import time_of
from fairbox.queueing.attempts import crashed, dying
from fairbox.queueing.models import Taken
from fairbox.queueing.ports import Claiming, HintMove
from fairbox.queueing.turns import Turns
from fairbox.receipts import TOKEN_BYTES
from fairbox.stored import Claim, Hint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from fairbox.clock import Clock
    from fairbox.messages import MessageRef
    from fairbox.queueing.ports import ClaimStore, Shard
    from fairbox.stored import StoredMessage
    from fairbox.topics import TopicState

_LOOKING_MS: Final = 5_000  # after which another looks, when who began has died of it
_YOUNG_MS: Final = 500  # ids behind which others may still be committed
_SHARDS_A_CALL: Final = 8
_MOVE_OVER: Final = 4  # claimed messages that are worth a write to pass
_SPARE: Final = 5  # read beyond what is wanted, for what others claim meanwhile
_PAGE: Final = 100
_PAGES: Final = 3
_LOOK_PAGES: Final = 5

Lane = Literal["ready", "later"]


@dataclass(frozen=True, slots=True)
class _Ask:
    """What a receive asks of one shard: how many messages, for how long (ms), tries allowed."""

    shard: Shard
    wanted: int
    visibility: int
    max_attempts: int


@dataclass(slots=True)
class _Window:
    """What was read of a lane, in key order.

    Attributes:
        lane: which.
        cursor: the sort key up to which it was read.
        seen: the messages that lie there, due or not.
        ended: it was read to its end, or to what is not due within the minute.
    """

    lane: Lane
    cursor: str = ""
    seen: list[StoredMessage] = field(default_factory=list)
    ended: bool = False


class InPlace:
    """Receives from unordered topics.

    Args:
        store: the tables.
        clock, rng: time, tokens and turns.
    """

    def __init__(self, store: ClaimStore, clock: Clock, rng: Random) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._turns = Turns(rng, at_most=_SHARDS_A_CALL)
        # of lane `later`: the sort key up to which all is held, and until when that is so
        self._later: dict[Shard, tuple[str, int]] = {}

    def receive(self, topic: TopicState, wanted: int, visibility: int) -> list[Taken]:
        """Claim messages of the first shard in turn that has any.

        Args:
            topic: whose.
            wanted: at most so many.
            visibility: for so many milliseconds.

        Returns:
            What is held now; empty when eight shards gave nothing.

        Raises:
            Throttled, Unavailable: what is claimed without being known comes back in time.
        """
        epoch, shards = self._turns.next(topic)
        name = topic.topic.name
        hints = self._store.hints(name, epoch, group_of(shards[0]))
        for number, shard in enumerate(shards, start=1):
            ask = _Ask((name, epoch, shard), wanted, visibility, topic.topic.retry.max_attempts)
            taken = self._from_shard(ask, hints.get(shard, Hint()))
            if taken or number == len(shards):
                self._turns.visited(topic, number)
                return taken
        return []

    def _from_shard(self, ask: _Ask, hint: Hint) -> list[Taken]:
        now = milliseconds(self._clock)
        if hint.look_due(now):
            looking = Hint(hint.after, now + _LOOKING_MS)
            if self._store.move_hint(HintMove(ask.shard, hint, looking)):
                return self._look(ask, looking)
        window = _Window("ready", cursor=hint.after)
        taken: list[Taken] = []
        moved = hint
        for page in range(_PAGES):
            free = self._read(window, ask, page)
            claiming = {m.ref: now + ask.visibility for m in free[: ask.wanted]}
            passed = self._passed(window.seen, claiming, moved)
            move = None if passed is None else HintMove(ask.shard, moved, passed)
            if free:
                taken = self._claim(free, ask, ask.wanted, move)
            elif move is not None:
                self._store.move_hint(move)
            moved = passed or moved
            if taken or window.ended:
                break
        return taken

    def _look(self, ask: _Ask, hint: Hint) -> list[Taken]:
        """Read from the head and in lane `later`: expired claims come back, delays end."""
        share = (ask.wanted + self._rng.randrange(2)) // 2  # neither lane starves the other
        later, delayed, looks = self._look_later(ask, share)
        ready = _Window("ready")
        taken: list[Taken] = []
        free: list[StoredMessage] = []
        for page in range(_LOOK_PAGES):
            free = self._read(ready, ask, page)
            if free or ready.ended:
                break
        taken = later + self._claim(free, ask, ask.wanted - len(later))
        rest = ask.wanted - len(taken)
        if rest and delayed:
            taken += self._claim(delayed, ask, rest)
            delayed = delayed[rest:]
        now = milliseconds(self._clock)
        if delayed:
            looks.append(now)
        claimed = {t.stored.ref: t.until for t in taken}
        looks += [t.until for t in taken if t.place == "later"]
        passed = self._passed(ready.seen, claimed, Hint(look_at=now + RECEIVES_LOOK_MS), least=1)
        passed = passed or Hint(look_at=now + RECEIVES_LOOK_MS)
        look_at = min([passed.look_at or now, *looks])
        self._store.move_hint(HintMove(ask.shard, hint, Hint(passed.after, look_at)))
        return taken

    def _look_later(
        self, ask: _Ask, share: int
    ) -> tuple[list[Taken], list[StoredMessage], list[int]]:
        """Claim a share of what is due in `later`; return it, what else is due, when to look."""
        now = milliseconds(self._clock)
        cursor, good_until = self._later.get(ask.shard, ("", 0))
        window = _Window("later", cursor=cursor if now < good_until else "")
        looks = [good_until] if window.cursor else []
        free: list[StoredMessage] = []
        for page in range(_LOOK_PAGES):
            free = self._read(window, ask, page)
            if free or window.ended:
                break
        taken = self._claim(free, ask, share)
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
        return taken, [m for m in free if m.ref not in mine][: ask.wanted], looks

    def _read(self, window: _Window, ask: _Ask, page: int) -> list[StoredMessage]:
        """Read a page on; return what of it may be claimed."""
        now = milliseconds(self._clock)
        found = self._store.read_lane(
            window.lane,
            *ask.shard,
            limit=_PAGE if page else ask.wanted + _SPARE,
            after=window.cursor or None,
            until_due=now + RECEIVES_LOOK_MS if window.lane == "later" else None,
            consistent=False,
        )
        for item in found.unreadable:
            self._store.bury_raw(item, "unreadable")
        finish_marked(self._store, [m for m in found.messages if m.gone])
        free = []
        for stored in found.messages:
            if stored.gone or self._exhausted(stored, ask, now):
                continue
            window.seen.append(stored)
            if stored.held_until(now) is None and (stored.ref.due or 0) <= now:
                free.append(stored)
        window.cursor = found.last or window.cursor
        window.ended = found.last is None
        return free

    def _exhausted(self, stored: StoredMessage, ask: _Ask, now: int) -> bool:
        """Bury a message that was received as often as may be, when nobody holds it any more."""
        claim = stored.claim
        if claim is None or claim.count < ask.max_attempts or claim.until > now:
            return False
        dead = dying(stored, claim.count, claim.until)
        if self._store.save_claimed(dead, stored) == "saved":
            bury_marked(self._store, dead)
        return True

    def _claim(
        self,
        free: Sequence[StoredMessage],
        ask: _Ask,
        wanted: int,
        move: HintMove | None = None,
    ) -> list[Taken]:
        """Claim up to `wanted` of these; where another was faster, the next."""
        taken: list[Taken] = []
        rest = list(free)
        while rest and len(taken) < wanted:
            chosen, rest = rest[: wanted - len(taken)], rest[wanted - len(taken) :]
            until = milliseconds(self._clock) + ask.visibility
            claims = [self._claiming(stored, until) for stored in chosen]
            for claiming, held in zip(claims, self._store.claim(claims, move), strict=True):
                if held:
                    claim = claiming.claim
                    lane: Lane = "later" if claiming.stored.lane == "later" else "ready"
                    taken.append(
                        Taken(claiming.stored, lane, claim.token, claim.count, claim.until)
                    )
            move = None
        return taken

    def _claiming(self, stored: StoredMessage, until: int) -> Claiming:
        count = 1 if stored.claim is None else stored.claim.count + 1
        token = self._rng.getrandbits(8 * TOKEN_BYTES).to_bytes(TOKEN_BYTES, "big")
        return Claiming(stored, Claim(count, until, token), crashed(stored))

    def _passed(
        self,
        seen: Sequence[StoredMessage],
        claiming: Mapping[MessageRef, int],
        hint: Hint,
        *,
        least: int = _MOVE_OVER,
    ) -> Hint | None:
        """Return the hint behind the held messages at the front; None: too few to be worth it."""
        now = milliseconds(self._clock)
        after, looks, passed = hint.after, [hint.look_at or now], 0
        for stored in seen:
            until = claiming.get(stored.ref) or stored.held_until(now)
            if until is None or time_of(stored.ref.id) > now - _YOUNG_MS:
                break
            after = stored.ref.id
            looks.append(until)
            passed += after > hint.after
        if passed < least:
            return None
        return Hint(after, min([*looks, now + RECEIVES_LOOK_MS]))
