"""What a receive makes of an ordered shard: pure, from what was read to what is to be written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.ordered.resize_barrier import NOTHING
from fairbox.model.ids import before, behind, time_of
from fairbox.model.key_claims import MAX_ENTRIES, Entry, HeldRow, key_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fairbox.dispatch.ordered.resize_barrier import Waits
    from fairbox.model.stored_messages import StoredMessage

YOUNG_MS: Final = 2_000  # ids behind which others may still be committed
LEFT_MS: Final = 2_000  # after which what was acknowledged and lies there was left by a crash


@dataclass(slots=True)
class Window:
    """What was read of lane `ready`, in the order of ids.

    Attributes:
        after: it begins behind this id; empty: at the head.
        cursor: the sort key up to which it was read.
        messages: what lies there.
        ended: it was read to its end.
        newer: what comes next only a newer release can read: nothing behind it is handed out.
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
class Ask:
    """What a receive asks: messages, until when (ms), and what gives it tokens.

    `waits` has the keys that an older shard of the topic lists: they are held until it is looked at
    again.
    """

    wanted: int
    until: int
    token: Callable[[], bytes]
    waits: Waits = NOTHING


def due(row: HeldRow, now: int) -> list[Entry]:
    """Return the entries whose claim or wait has ended."""
    return [e for e in row.entries if e.state != "acked" and e.until <= now]


def ended(row: HeldRow, now: int) -> list[Entry]:
    """Return the entries that may end now: their messages, and who follows, are to be read."""
    return [e for e in row.entries if e.state == "acked" or e.until <= now]


class Plan:
    """Decides which messages to claim, which entries to drop, where the next receive begins.

    The invariant that it keeps: what lies up to `after` is held, or of a key that is; so a key
    without entry has its first message behind `after`.

    Args:
        row: as it was read before any message.
        window: messages read from where the row says, or from the head.
        there: by id, the window's messages and those that entries speak of; what an entry that
            may end speaks of and that is not among them is not there.
        now: milliseconds since 1970 UTC.
        ask: what to claim.
    """

    def __init__(
        self,
        row: HeldRow,
        window: Window,
        there: Mapping[str, StoredMessage],
        now: int,
        ask: Ask,
    ) -> None:
        self._row = row
        self._window = window
        self._there = there
        self._now = now
        self._waits = ask.waits
        self.taken: list[tuple[StoredMessage, Entry]] = []
        self._kept: dict[bytes, Entry] = {}
        self._freed: list[Entry] = []
        for entry in row.entries:
            if self._stays(entry):
                self._kept[entry.key] = entry
            else:
                self._freed.append(entry)
        self._claim(ask)
        self.passed = 0
        self.row = self._next_row()

    def _stays(self, entry: Entry) -> bool:
        # whoever acknowledged a message deletes it; what a crash left was deleted before this
        live = entry.state != "acked" and entry.until > self._now
        return live or entry.id in self._there

    def _claim(self, ask: Ask) -> None:
        for stored, entry in sorted(self._candidates(), key=lambda found: found[0].ref.id):
            if len(self.taken) >= ask.wanted:
                return
            key = key_digest(stored)
            if entry is None and len(self._kept) >= MAX_ENTRIES:
                continue
            if self._waits.hold(stored):
                self._kept[key] = self._waiting(key, stored, entry)
                continue
            count = 1 if entry is None else entry.count + 1
            follower = self._unknown_follower(stored.ref.id) if entry is None else entry.follower
            claimed = Entry(key, stored.ref.id, "claimed", ask.until, count, ask.token(), follower)
            self._kept[key] = claimed
            self.taken.append((stored, claimed))

    def _waiting(self, key: bytes, stored: StoredMessage, entry: Entry | None) -> Entry:
        """Return what holds a key until the older shards are looked at again."""
        if entry is not None:
            return replace(entry, state="waiting", until=self._waits.again, token=b"")
        follower = self._unknown_follower(stored.ref.id)
        return Entry(key, stored.ref.id, "waiting", self._waits.again, 0, b"", follower)

    def _candidates(self) -> Iterator[tuple[StoredMessage, Entry | None]]:
        """Yield what may be claimed: what is due again, and the first of each key not held."""
        for entry in due(self._row, self._now):
            if entry.id in self._there:
                yield self._there[entry.id], entry
        firsts: dict[bytes, StoredMessage] = {}
        unknown = set()
        for entry in self._freed:
            follower = self._there.get(entry.follower)
            if follower is not None:
                firsts[entry.key] = follower
            elif entry.follower and not self._window.covers(entry.follower):
                unknown.add(entry.key)  # its first message lies before what was read
        for stored in self._window.messages:
            key = key_digest(stored)
            if key not in firsts or stored.ref.id < firsts[key].ref.id:
                firsts[key] = stored
        for key, stored in firsts.items():
            if key not in self._kept and key not in unknown:
                yield stored, None

    def _unknown_follower(self, message_id: str) -> str:
        """Return where followers may begin of a message that lies before what was read."""
        passed = message_id <= self._row.after and not self._window.covers(message_id)
        return behind(message_id) if passed else ""

    def _next_row(self) -> HeldRow:
        if not self._kept:
            return HeldRow(self._row.version)
        after = self._reach()
        for entry in self._freed:
            unseen = entry.follower and not self._window.covers(entry.follower)
            kept = self._kept.get(entry.key)
            if unseen and (kept is None or kept.id > entry.follower):
                after = min(after, before(entry.follower))
        for stored in self._window.messages:
            if stored.ref.id > after:
                break
            self.passed += stored.ref.id > self._row.after
            entry = self._kept[key_digest(stored)]
            first = not entry.follower or stored.ref.id < entry.follower
            if stored.ref.id != entry.id and first:
                self._kept[entry.key] = replace(entry, follower=stored.ref.id)
        entries = tuple(sorted(self._kept.values(), key=lambda e: e.id))
        fresh = not self._window.after or not self._row.after
        since = self._now if fresh else self._row.since
        return HeldRow(self._row.version, entries, after, since if after else 0)

    def _reach(self) -> str:
        """Return the last id of the window up to which all is held, or behind what is held."""
        reach = self._window.after
        for stored in self._window.messages:
            young = time_of(stored.ref.id) > self._now - YOUNG_MS
            if young or key_digest(stored) not in self._kept:
                return reach
            reach = stored.ref.id
        return reach
