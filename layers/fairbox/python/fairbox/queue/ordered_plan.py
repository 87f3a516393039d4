"""The plan of a receive from an ordered shard: a pure function of the shard as read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.ordered.barriers import NOTHING, Waits
from fairbox.model.ids import behind, time_of
from fairbox.queue.ordered_reader import YOUNG_MS, ShardRead, Window
from fairbox.tables.key_claims import MAX_ENTRIES, MAX_IDS, KeyClaim, KeyClaims, token_of
from fairbox.tables.stored_messages import StoredMessage, key_digest

if TYPE_CHECKING:
    from collections.abc import Iterator


_MOVE_OVER: Final = 4  # messages behind held ones that are worth a write to pass


@dataclass(frozen=True, slots=True)
class Ask:
    """The request of a receive: messages, of one key at most, end of the claims (ms), and a token.

    The tokens of the claims count up from it in their last byte. `waits` has the keys that an older
    shard of the topic lists: they are held until it is looked at again.
    """

    wanted: int
    per_key: int
    until: int
    token: bytes
    waits: Waits = NOTHING


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A message that may be claimed, its key, and the key's entry if it was received before."""

    stored: StoredMessage
    key: bytes
    entry: KeyClaim | None = None


class Plan:
    """Decides which messages to claim, which entries to drop, where the next receive begins.

    It keeps an invariant: each message up to `after` is held, or its key is. So the first message
    of a key without an entry, in the row or aside, lies behind `after`.

    Args:
        read: the shard as it was read; messages of ended entries that were not found do not exist.
        ask: the request.

    Attributes:
        taken: the messages to claim, with their receive counts and tokens, oldest first.
        row: the row to write.
        passed: messages that the next receive need not read.
        moved: whether the row is to be written although nothing is claimed.
        followed: by waiting key beside the row, its first message that the next receive passes.
        short: whether messages were left because the row is full.
    """

    def __init__(self, read: ShardRead, ask: Ask) -> None:
        self._read = read
        self._row = read.row
        self._window = read.window
        self._ask = ask
        self._of_key: dict[bytes, list[StoredMessage]] = defaultdict(list)
        for stored in read.window.messages:
            self._of_key[key_digest(stored)].append(stored)

        self.followed: dict[bytes, str] = {}
        self.short = False
        self.passed = 0
        self._kept: dict[bytes, KeyClaim] = {}
        self._freed: dict[bytes, KeyClaim] = {}
        self._again: list[_Candidate] = []

        self._sort_entries()
        self._ids = sum(1 + len(entry.run) + len(entry.acked) for entry in self._kept.values())
        self._claims: dict[bytes, list[StoredMessage]] = {}
        self._claim()
        self._fill()
        self.taken = sorted(self._issue(), key=lambda taken: taken[0].ref.id)

        self._went_on = False
        self.row = self._next_row()
        back = self.row.after < self._row.after
        self.moved = back or self._went_on or self.passed >= _MOVE_OVER

    @property
    def quiet(self) -> bool:
        """Whether nothing that could be received was left in the window, to its end."""
        known = self._kept.keys() | self._read.aside.keys()
        return self._window.ended and not self._window.newer and known >= self._of_key.keys()

    @property
    def last(self) -> str:
        """The id up to which the window was read; if it is empty, the id behind which it began."""
        messages = self._window.messages
        return messages[-1].ref.id if messages else self._window.after

    def _sort_entries(self) -> None:
        there = self._read.there
        ended = {entry.key for entry in self._read.ended}
        for entry in self._row.entries:
            if entry.key not in ended:
                self._kept[entry.key] = entry
            # who acknowledges deletes; leftovers of crashes were deleted before
            elif any(i in there for i in (*entry.acked, entry.id)):
                left = tuple(i for i in entry.acked if i in there)
                self._kept[entry.key] = kept = replace(entry, acked=left)
                if entry.state != "acked" and entry.id in there:
                    self._again.append(_Candidate(there[entry.id], entry.key, kept))
            else:
                self._freed[entry.key] = entry

    def _candidates(self) -> list[_Candidate]:
        """Return the messages that may be claimed, in the order in which they are.

        Half of the room at most is for messages that were received before, if others are there.
        """
        fresh = [
            _Candidate(found[0], key)
            for key in self._freed.keys() & self._read.sides.keys()
            if (found := self._of_side(key))
        ]
        fresh += [
            _Candidate(found[0], key)
            for key, found in self._of_key.items()
            if key not in self._kept and key not in self._read.aside and not self._beside(key)
        ]

        for several in (self._again, fresh):
            several.sort(key=lambda one: one.stored.ref.id)
        half = (self._ask.wanted + 1) // 2
        return [*self._again[:half], *fresh, *self._again[half:]]

    def _beside(self, key: bytes) -> bool:
        """Whether the next message of a freed key was looked for in a window of its own."""
        return key in self._freed and key in self._read.sides

    def _of_side(self, key: bytes) -> list[StoredMessage]:
        """Return the messages of a freed key in its own window."""
        return [m for m in self._read.sides[key].messages if key_digest(m) == key]

    def _claim(self) -> None:
        """Claim one message of a key at most."""
        for one in self._candidates():
            if len(self._claims) >= self._ask.wanted:
                return
            if one.entry is None and (len(self._kept) >= MAX_ENTRIES or self._ids >= MAX_IDS):
                self.short = True
                continue

            count = 0 if one.entry is None else one.entry.count
            behind = self._follower(one) if one.entry is None else one.entry.next
            # a key that an older shard still lists waits, until that shard is looked at again
            entry = KeyClaim(
                one.key, one.stored.ref.id, "waiting", self._ask.waits.again, count, b"", behind
            )
            if not self._ask.waits.hold(one.stored):
                self._claims[one.key] = [one.stored]
                entry = replace(
                    entry,
                    state="claimed",
                    until=self._ask.until,
                    count=count + 1,
                    token=self._ask.token,
                )

            self._kept[one.key] = entry
            self._ids += one.entry is None

    def _follower(self, one: _Candidate) -> str:
        """Return the first possible follower of a message that lies before the window."""
        if not self._beside(one.key):
            return ""
        later = (m.ref.id for m in self._of_side(one.key) if m.ref.id > one.stored.ref.id)
        return next(later, self._beyond(self._read.sides[one.key]))

    def _beyond(self, side: Window) -> str:
        """Return the first id behind a window of one key; empty: the window of all has it."""
        reached = side.ended or side.cursor >= self._window.after
        return "" if reached and not side.newer else behind(side.cursor)

    def _fill(self) -> None:
        """Claim further messages of keys whose first is claimed for the first time, in order."""
        room = self._ask.wanted - len(self._claims)
        for key, claimed in self._claims.items():
            entry = self._kept[key]
            more = min(room, self._ask.per_key - 1, MAX_IDS - self._ids)
            # a message that has failed before comes alone
            if more <= 0 or entry.count > 1:
                continue

            found = self._of_side(key) if self._beside(key) else self._of_key[key]
            if found[:1] != claimed:
                continue  # between the first and those that were read others may lie
            claimed.extend(found[1 : 1 + more])
            run = tuple(m.ref.id for m in claimed[1:])
            self._kept[key] = replace(entry, run=run)
            if entry.follower in run:
                behind = self._follower(_Candidate(claimed[-1], key))
                self._kept[key] = replace(entry, run=run, follower=behind)

            self._ids += len(run)
            room -= len(run)

    def _issue(self) -> Iterator[tuple[StoredMessage, int, bytes]]:
        """Give each message a token of its own: they count up over the call."""
        place = 0
        for key, claimed in self._claims.items():
            entry = replace(self._kept[key], token=token_of(self._ask.token, place))
            self._kept[key] = entry
            for number, stored in enumerate(claimed):
                yield stored, entry.count, token_of(entry.token, number)
            place += len(claimed)

    def _next_row(self) -> KeyClaims:
        self._keep_looking()
        if not self._kept and not self._row.aside.count:
            return KeyClaims(self._row.version)

        after = self._reach()
        for stored in self._window.messages:
            if stored.ref.id > after:
                break
            self.passed += stored.ref.id > self._row.after
            self._follow(key_digest(stored), stored.ref.id)

        fresh = not self._window.after or not self._row.after
        since = self._read.now if fresh else self._row.since
        entries = tuple(self._kept.values())
        return replace(self._row, entries=entries, after=after, since=since if after else 0)

    def _keep_looking(self) -> None:
        """Keep freed keys whose next message lies before the window, and was not claimed."""
        for key in self._freed.keys() & self._read.sides.keys() - self._kept.keys():
            entry, found = self._freed[key], self._of_side(key)
            bound = found[0].ref.id if found else self._beyond(self._read.sides[key])
            if bound:
                self._went_on = self._went_on or bound != entry.follower
                # its message is gone: a mark would delete it if a redrive or replay puts it back
                self._kept[key] = KeyClaim(
                    entry.key, entry.id, "waiting", entry.until, 0, b"", bound
                )

    def _follow(self, key: bytes, message_id: str) -> None:
        """Note a message that the next receive passes, if it is the first of its key."""
        entry = self._kept.get(key) or self._read.aside[key]
        if entry.names(message_id):
            return
        known = (entry.follower, self.followed.get(key, ""))
        if any(first and first <= message_id for first in known):
            return
        if key in self._kept:
            self._kept[key] = replace(entry, follower=message_id)
        else:
            self.followed[key] = message_id

    def _reach(self) -> str:
        """Return the last id of the window up to which every message's key is held."""
        known = self._kept.keys() | self._read.aside.keys()
        reach = self._window.after
        for stored in self._window.messages:
            young = time_of(stored.ref.id) > self._read.now - YOUNG_MS
            if young or key_digest(stored) not in known:
                return reach
            reach = stored.ref.id
        return reach
