"""Reading an ordered shard for a receive: the row first, then the messages that may be received."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.burials import readable
from fairbox.model.clock import Clock, milliseconds
from fairbox.model.ids import before, time_of
from fairbox.model.messages import MessageRef, Shard
from fairbox.tables.key_claims import KeyClaim, KeyClaims
from fairbox.tables.keys import HEAD
from fairbox.tables.stored_messages import StoredMessage, key_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.queue.known_rows import KnownRows
    from fairbox.queue.waiting_keys import WaitingKeys
    from fairbox.tables.tables import Tables

LEFT_MS: Final = 2_000  # an acknowledged message that is older was left by a crash
MARKED_MS: Final = 3_600_000  # and later it was added again: no call lasts so long
_SPARE: Final = 5
_SPARE_ASIDE: Final = 2  # each key of them is looked for beside the row
_PAGE: Final = 50
_PAGES: Final = 2
_SIDES: Final = 2  # keys whose next message is read by itself, if it lies far before the others
_SIDE_SPARE: Final = 4
_ENDED: Final = 100
_FROM_HEAD_MS: Final = 600_000  # how often a lane is read from its head though much of it waits
_FROM_HEAD_ASIDE_MS: Final = 3_600_000  # the same when keys wait beside the row: each costs a read
_ITEMS_A_UNIT: Final = 4  # of up to 1 KB, consistent
_ENTRIES_A_UNIT: Final = 160
YOUNG_MS: Final = 2_000  # ids behind which others may still be committed


@dataclass(slots=True)
class Window:
    """The messages read from lane `ready`, in the order of ids.

    Attributes:
        after: it begins behind this id; empty: at the head.
        cursor: the sort key up to which it was read.
        messages: the messages.
        ended: it was read to its end.
        newer: only a newer release can read the next message: none behind it is handed out.
    """

    after: str = ""
    cursor: str = ""
    messages: list[StoredMessage] = field(default_factory=list)
    ended: bool = False
    newer: bool = False

    def covers(self, message_id: str) -> bool:
        """Whether a message of this id would have been read."""
        return self.after < message_id and (self.ended or message_id <= self.cursor)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request of a receive.

    Attributes:
        count: number of messages at most.
        visibility: milliseconds until others may receive them.
        per_key: number of messages of one key at most.
    """

    count: int
    visibility: int
    per_key: int = 1


@dataclass(slots=True)
class Spent:
    """Read units that a receive has spent on messages of up to 1 KB."""

    units: float = 0.0


@dataclass(slots=True)
class ShardRead:
    """A shard as it was read: its row first, then the rest.

    Attributes:
        row: the row.
        now: the time after that, in milliseconds since 1970 UTC.
        ended: entries that may end now: their messages were looked for.
        window: messages from where the row says, or from the head; it begins before the next
            message of each ended entry that has no window of its own.
        sides: windows of ended keys whose next message lies far before the others.
        there: by id, the messages of the windows, and the messages that ended entries name.
        aside: keys of the window that wait in items of their own.
    """

    row: KeyClaims
    now: int
    ended: Sequence[KeyClaim]
    window: Window
    sides: dict[bytes, Window] = field(default_factory=dict)
    there: Mapping[str, StoredMessage] = field(default_factory=dict)
    aside: Mapping[bytes, KeyClaim] = field(default_factory=dict)


class ShardReader:
    """Reads ordered shards.

    Args:
        rows: the rows that this process knows.
        waiting: the keys that wait beside them.
    """

    def __init__(self, tables: Tables, rows: KnownRows, waiting: WaitingKeys, clock: Clock) -> None:
        self._tables = tables
        self._rows = rows
        self._waiting = waiting
        self._clock = clock
        self._deep: set[Shard] = set()  # shards whose receives begin far behind the head

    def silent(self, shard: Shard, spent: Spent) -> bool:
        """Whether no message has come since a receive found none left (0.5 RRU).

        The read is eventually consistent: the next receive finds missed messages.
        """
        quiet, row = self._rows.quiet(shard), self._rows.fresh(shard)
        if quiet is None or row is None:
            return False
        now = milliseconds(self._clock)
        if row.aside.count and row.aside.next_check <= now:
            return False
        if any(not self._over(entry) for entry in _may_end(row, now)):
            return False

        page = self._tables.lanes.page(
            "ready", *shard, limit=1, after=quiet or HEAD, consistent=False
        )
        spent.units += 0.5
        return not (page.messages or page.unreadable or page.newer)

    def _over(self, entry: KeyClaim) -> bool:
        """Whether an entry stands for nothing: its messages are gone, and none waits for them."""
        gone = all(i in self._rows.deleted for i in entry.done)
        return entry.state == "acked" and gone and not entry.next

    def row(self, shard: Shard, wanted: int, spent: Spent) -> tuple[KeyClaims, Window]:
        """Return a shard's row, and the messages at the lane's head if they came with it."""
        window = Window()
        known = self._rows.fresh(shard)
        if known is not None and (known.after or shard in self._deep):
            return known, window

        if shard in self._deep:
            row = self._tables.key_claims.get(shard)
            spent.units += 1 + len(row.entries) // _ENTRIES_A_UNIT
        else:
            claimed = 0 if known is None else _claimed(known, milliseconds(self._clock))
            # one page past a few that are held; past many the hint of the row is cheaper
            limit = wanted + _SPARE
            first = limit + 1 + (claimed if claimed <= limit else 0)
            row = self._page(shard, window, first, spent) or KeyClaims()

        row = row.aged(milliseconds(self._clock) - MARKED_MS)
        self._rows.keep(shard, row)
        return row, window

    def read(
        self, shard: Shard, row: KeyClaims, window: Window, wanted: Wanted, spent: Spent
    ) -> ShardRead:
        """Read from the first place where a message may be free (consistent).

        Args:
            shard: the shard.
            row: its row.
            window: the messages that came with it.
            wanted: the request.
            spent: counts the units of the reads.
        """
        now = milliseconds(self._clock)
        ended = self._ended(row, now)
        start, sides = _starts(row, ended, now)
        if not start or window.covers(start):
            sides = []  # it has their next messages too
            self._deep.discard(shard)
        else:
            self._deep.add(shard)
            window = Window(after=start, cursor=start)

        read = ShardRead(row, now, ended, window)
        self._fill(shard, read, wanted.count, spent)
        for entry in sides:
            read.sides[entry.key] = side = Window(before(entry.next), before(entry.next))
            self._page(shard, side, min(wanted.count, wanted.per_key) + _SIDE_SPARE, spent)

        self._find(shard, read)
        keys = {key_digest(m) for m in window.messages}
        read.aside = self._waiting.among(shard, row, keys)
        return read

    def _fill(self, shard: Shard, read: ShardRead, wanted: int, spent: Spent) -> None:
        window = read.window
        limit = wanted + (_SPARE_ASIDE if read.row.aside.count else _SPARE)
        for page in range(_PAGES):
            free = _free_keys(read)
            if window.ended or window.newer or free >= wanted:
                break
            # a page of few keys says little about those behind it, unless it is too young to pass
            if 2 * free > len(window.messages) or (free and _young(read)):
                break
            self._page(shard, window, _PAGE if page and 2 * free < wanted else limit, spent)

    def _ended(self, row: KeyClaims, now: int) -> list[KeyClaim]:
        """Return entries that may end now: their messages are looked for."""
        found = _may_end(row, now)
        acked = [entry for entry in found if entry.state == "acked"]
        return [*acked, *(entry for entry in found if entry.state != "acked")][:_ENDED]

    def _find(self, shard: Shard, read: ShardRead) -> None:
        """Find the messages that ended entries name.

        An acknowledged message that is still there after 2 s was left by a crash: it is deleted,
        unless the row was not written for an hour. The row is read again before that (1 RRU).
        """
        windows = [read.window, *read.sides.values()]
        there = {m.ref.id: m for window in windows for m in window.messages}
        named = (i for entry in read.ended for i in (*entry.done, entry.id))
        beyond = [
            MessageRef(*shard, i)
            for i in dict.fromkeys(named)
            if i not in self._rows.deleted and not any(w.covers(i) for w in windows)
        ]

        if beyond:
            found = readable(self._tables, *self._tables.lanes.read(beyond))
            there |= {m.ref.id: m for m in found}

        left = {
            i
            for entry in read.ended
            if entry.state != "acked" or entry.until + LEFT_MS <= read.now
            for i in entry.done
            if i in there
        }
        if left:
            # a replay takes the mark away before it puts a message back: this row may be older
            left &= self._tables.key_claims.get(shard).done
        if left:
            self._tables.lanes.delete_messages([there.pop(i) for i in sorted(left)])
            for window in windows:
                window.messages = [m for m in window.messages if m.ref.id in there]

        read.there = there

    def _page(self, shard: Shard, window: Window, limit: int, spent: Spent) -> KeyClaims | None:
        page = self._tables.lanes.page(
            "ready", *shard, limit=limit, after=window.cursor or None, consistent=True
        ).before_newer()
        spent.units += max(1, math.ceil(len(page.messages) / _ITEMS_A_UNIT))
        window.messages += readable(self._tables, page.messages, page.unreadable)
        window.cursor = page.last or window.cursor
        window.ended, window.newer = page.last is None, bool(page.newer)
        return page.claims


def _may_end(row: KeyClaims, now: int) -> list[KeyClaim]:
    return [e for e in row.entries if e.state == "acked" or e.until <= now]


def _claimed(row: KeyClaims, now: int) -> int:
    return sum(len(entry.claimed) for entry in row.entries if entry.until > now)


def _starts(row: KeyClaims, ended: Sequence[KeyClaim], now: int) -> tuple[str, list[KeyClaim]]:
    """Return the id behind which to read, and the ended keys to be read by themselves.

    Those are few, and furthest back: else one key with many messages would hold up all others.
    """
    period = _FROM_HEAD_ASIDE_MS if row.aside.count else _FROM_HEAD_MS
    # a time in the future was written under another clock
    start = row.after if abs(now - row.since) < period else ""
    back = [entry for entry in ended if entry.next and entry.next <= start]
    back.sort(key=lambda entry: entry.next)
    sides, others = back[:_SIDES], back[_SIDES:]
    return min([start, *(before(entry.next) for entry in others)]), sides


def _free_keys(read: ShardRead) -> int:
    """Return the number of keys in the window that no entry holds."""
    ended = {entry.key for entry in read.ended}
    live = {entry.key for entry in read.row.entries} - ended
    return len({key_digest(m) for m in read.window.messages} - live)


def _young(read: ShardRead) -> bool:
    """Whether receives do not yet pass the last message of the window."""
    return time_of(read.window.messages[-1].ref.id) > read.now - YOUNG_MS
