"""Receiving from ordered topics: one message of a key at a time, claims in the shard's row.

The messages are not touched. One write a shard claims all that a call takes, under the version of
the row that was read before the messages were: nothing that was claimed, acknowledged or deleted in
between can be taken for free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.ordered.resize_barrier import ResizeBarrier
from fairbox.dispatch.tombstones import bury_marked, finish_marked
from fairbox.model.clock import milliseconds
from fairbox.model.key_claims import KeyClaims, key_digest
from fairbox.model.messages import MessageRef
from fairbox.model.receipts import TOKEN_BYTES
from fairbox.model.stored_messages import Claim, StoredMessage
from fairbox.queue.attempts import dying
from fairbox.queue.models import Taken
from fairbox.queue.ordered_plan import LEFT_MS, Ask, Plan, Window, due, ended
from fairbox.queue.shard_rotation import ShardRotation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from fairbox.model.clock import Clock
    from fairbox.model.key_claims import KeyClaim
    from fairbox.model.topics import TopicState
    from fairbox.queue.ports import KeyClaimStore, Shard
    from fairbox.queue.shard_rotation import Place

_SHARDS_A_CALL: Final = 4
_CAS_TRIES: Final = 4
_SPARE: Final = 5
_PAGE: Final = 50
_PAGES: Final = 2
_FROM_HEAD_MS: Final = 600_000  # how often a lane is read from its head though much of it waits
_BLOCKED_MS: Final = 1_000  # how long a shard is not read while it waits for older ones
_ENOUGH_UNITS: Final = 4  # read by a receive that found nothing; the next goes on with other shards
_ITEMS_A_UNIT: Final = 4  # of up to 1 KB, consistent
_MOVE_OVER: Final = 4  # messages behind held ones that are worth a write to pass


@dataclass(slots=True)
class _Spent:
    """Read units that a receive has spent on messages of up to 1 KB."""

    units: int = 0


class OrderedReceive:
    """Receives from ordered topics.

    Args:
        store: the tables.
        clock, rng: time, tokens and turns.
    """

    def __init__(self, store: KeyClaimStore, clock: Clock, rng: Random) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._turns = ShardRotation(rng, at_most=_SHARDS_A_CALL)
        self._cutover = ResizeBarrier(store, clock)
        self._blocked: dict[Shard, int] = {}  # until when (ms) all of a shard waits for older ones
        self._deep: set[Shard] = set()  # shards whose receives begin far behind the head
        self.rows: dict[Shard, KeyClaims] = {}  # as this process wrote them last

    def receive(
        self,
        topic: TopicState,
        wanted: int,
        visibility: int,
        left: set[Place] | None = None,
    ) -> list[Taken]:
        """Claim messages of the next shard that has any; see `UnorderedReceive.receive`."""
        epoch, shards = self._turns.next(topic, left)
        spent = _Spent()
        for number, place in enumerate(shards, start=1):
            shard = topic.topic.name, epoch, place
            taken = self._from_shard(topic, shard, wanted, visibility, spent)
            if taken or number == len(shards) or spent.units >= _ENOUGH_UNITS:
                done = [(epoch, shard) for shard in shards[: number - bool(taken)]]
                self._turns.visited(topic, (epoch, place), done, left)
                return taken
        return []

    def _from_shard(
        self, topic: TopicState, shard: Shard, wanted: int, visibility: int, spent: _Spent
    ) -> list[Taken]:
        if milliseconds(self._clock) < self._blocked.get(shard, 0):
            return []
        self._blocked.pop(shard, None)
        for attempt in range(_CAS_TRIES):
            if attempt:
                self._clock.sleep(self._rng.random() * 0.005 * 2**attempt)
            row, window = self._read(shard, wanted, spent)
            now = milliseconds(self._clock)
            waits = self._cutover.waits(topic, shard, settled=row.settled)
            if waits.everything:
                self._blocked[shard] = min(waits.again, now + _BLOCKED_MS)
                return []
            there = self._there(shard, row, window, now)
            exhausted = [
                entry
                for entry in due(row, now)
                if entry.id in there and entry.count >= topic.topic.retry.max_attempts
            ]
            if exhausted:
                self._bury(shard, row, exhausted[0], there[exhausted[0].id])
                continue
            ask = Ask(wanted, now + visibility, self._token, waits)
            plan = Plan(row, window, there, now, ask)
            back = plan.row.after < row.after  # followers lie before the window: read them
            if not plan.taken and not back and plan.passed < _MOVE_OVER:
                return []
            other = self._store.write_held(shard, plan.row, row.version)
            self.rows[shard] = other or replace(plan.row, version=row.version + 1)
            if (other is None and (plan.taken or not back)) or (other and _all_held(other, plan)):
                return [Taken(m, "held", e.token, e.count, e.until) for m, e in plan.taken]
        return []

    def _token(self) -> bytes:
        return self._rng.getrandbits(8 * TOKEN_BYTES).to_bytes(TOKEN_BYTES, "big")

    def _there(
        self, shard: Shard, row: KeyClaims, window: Window, now: int
    ) -> dict[str, StoredMessage]:
        """Return the present messages by id, including those that entries name.

        An acknowledged message that is still there after 2 s was left by a crash: it is deleted.
        """
        there = {m.ref.id: m for m in window.messages}
        spoken = [i for e in ended(row, now) for i in (e.id, e.follower) if i]
        beyond = [MessageRef(*shard, i) for i in spoken if not window.covers(i)]
        if beyond:
            found, unreadable = self._store.read(list(dict.fromkeys(beyond)))
            self._clear(found, unreadable)
            there |= {m.ref.id: m for m in found if m.gone is None}
        left = [
            e.id
            for e in row.entries
            if e.state == "acked" and e.id in there and e.until + LEFT_MS <= now
        ]
        if left:
            self._store.delete([there.pop(i) for i in left])
            window.messages = [m for m in window.messages if m.ref.id in there]
        return there

    def _clear(
        self, found: Sequence[StoredMessage], unreadable: Sequence[Mapping[str, object]]
    ) -> None:
        for item in unreadable:
            self._store.bury_raw(item, "unreadable")
        finish_marked(self._store, [m for m in found if m.gone])

    def _bury(self, shard: Shard, row: KeyClaims, entry: KeyClaim, stored: StoredMessage) -> None:
        """Bury a message after its last attempt, and remove its claim (4 WRU)."""
        token = entry.token if entry.state == "claimed" else b""
        claimed = replace(stored, claim=Claim(entry.count, entry.until, token))
        dead = replace(dying(claimed, entry.count, entry.until), claim=stored.claim)
        changed = row.without(entry, milliseconds(self._clock))
        if self._store.save_and_hold(dead, stored, shard, changed, row.version):
            bury_marked(self._store, dead)

    def _read(self, shard: Shard, wanted: int, spent: _Spent) -> tuple[KeyClaims, Window]:
        """Read the row, then messages from the first place that may be free (consistent)."""
        window = Window()
        limit = wanted + _SPARE
        if shard in self._deep:
            row = self._store.held(shard)
            spent.units += 1
        else:
            held = self._held(shard)
            # one page past a few that are held; past many the hint of the row is cheaper
            first = limit + 1 + (held if held <= limit else 0)
            row = self._page(shard, window, first, spent) or KeyClaims()
        now = milliseconds(self._clock)
        # a time in the future was written under another clock
        start = row.after if abs(now - row.since) < _FROM_HEAD_MS else ""
        if start and not window.covers(start):
            self._deep.add(shard)
            window = Window(after=start, cursor=start)
        else:
            self._deep.discard(shard)
        for page in range(_PAGES):
            held, free = _divided(row, window, now)
            # a page full of held messages says little about free ones behind it
            if window.ended or window.newer or free >= wanted or free > held:
                break
            self._page(shard, window, _PAGE if page and not free else limit, spent)
        return row, window

    def _held(self, shard: Shard) -> int:
        """Return the number of messages that this process knows to be held."""
        now = milliseconds(self._clock)
        row = self.rows.get(shard, KeyClaims())
        return sum(e.state == "claimed" and e.until > now for e in row.entries)

    def _page(self, shard: Shard, window: Window, limit: int, spent: _Spent) -> KeyClaims | None:
        page = self._store.read_lane(
            "ready", *shard, limit=limit, after=window.cursor or None, consistent=True
        ).before_newer()
        spent.units += max(1, math.ceil(len(page.messages) / _ITEMS_A_UNIT))
        self._clear(page.messages, page.unreadable)
        window.messages += [m for m in page.messages if m.gone is None]
        window.cursor = page.last or window.cursor
        window.ended, window.newer = page.last is None, bool(page.newer)
        return page.held


def _divided(row: KeyClaims, window: Window, now: int) -> tuple[int, int]:
    """Return the numbers of held messages and of free keys in a window."""
    live = {e.key: e.id for e in row.entries if e not in ended(row, now)}
    keys = {key_digest(m) for m in window.messages}
    held = set(live.values())
    return sum(m.ref.id in held for m in window.messages), len(keys - live.keys())


def _all_held(row: KeyClaims, plan: Plan) -> bool:
    """Whether claims whose answer was lost were written, although others changed the row."""
    tokens = {entry.token for entry in row.entries}
    return bool(plan.taken) and all(entry.token in tokens for _, entry in plan.taken)
